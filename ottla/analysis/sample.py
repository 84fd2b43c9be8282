"""Takes samples of a cluster, each called a look, for `ottla top` and the console: topics and their growth, groups and their lag, open
transactions, requests. For a look it lists the groups and the open transactions, and sends one ListOffsets to each leader. For at most
`groups_max` groups it sends one OffsetFetch for 100 groups of a coordinator, or for each group if the coordinator lacks version 8 of
OffsetFetch. It sends one DescribeTransactions for each of up to `TRANSACTIONS_MAX` open transactions. Rates are computed from two looks.
Counts of requests are from the metrics that a broker exports.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.analysis.metrics_text import MetricsRefused, samples_in
from ottla.analysis.moments import now_ms
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.metric_text import CLIENT_INFO
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import group_admin, transaction_admin
from ottla.client.core.admin import LATEST, OffsetAt, list_offsets
from ottla.client.core.group_admin import ListedGroup
from ottla.client.errors import ClientError
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

METADATA_EVERY_S = 5.0
"""Seconds between requests for Metadata (topics, leaders, in-sync replicas), which is the most expensive part of a look."""
GROUPS_MAX = 100
TRANSACTIONS_MAX = 100
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
PREFIX = "kafka_network_requestmetrics_"
REQUESTS = f"{PREFIX}requests_total"
TIMES = f"{PREFIX}totaltimems"


class TopicActivity(NamedTuple):
    """A topic. `end` is the sum of its end offsets. `rate` is in records a second, None at the first look at the topic, and if `end` has
    become smaller."""

    name: str
    partitions: int
    out_of_sync: int
    end: int
    rate: float | None


class GroupActivity(NamedTuple):
    """A group. `lag` is in records, `change` is the lag's change in records a second, None at the first look at the group."""

    name: str
    type: str
    state: str
    partitions: int
    lag: int
    change: float | None


class OpenTransaction(NamedTuple):
    """A transaction that is open, or that its coordinator is committing or aborting."""

    name: str
    state: str
    age_ms: int | None
    partitions: int
    client: str


class RequestActivity(NamedTuple):
    """An API: its requests a second, and the 99th percentile of the total time of a request in milliseconds."""

    name: str
    rate: float | None
    p99_ms: float | None


class PushingClient(NamedTuple):
    """A client that pushes its metrics (KIP-714) to the broker whose metrics are read."""

    name: str
    software: str
    version: str
    address: str


class Look(NamedTuple):
    """A sample of the cluster. `requests` is None if the metrics could not be read; `note` then has the reason."""

    at_s: float
    cluster_id: str
    brokers: int
    controller: int
    partitions: int
    leaderless: int
    out_of_sync: int
    topics: list[TopicActivity]
    groups: list[GroupActivity]
    group_count: int
    transactions: list[OpenTransaction]
    requests: list[RequestActivity] | None
    note: str = ""
    clients: Sequence[PushingClient] = ()


class _Known(NamedTuple):
    """A topic in the last Metadata response. `led` are the partitions of the topic that have a leader."""

    name: str
    partitions: int
    leaderless: int
    out_of_sync: int
    led: list[TopicPartition]

    @classmethod
    def of(cls, topic: MetadataResponseTopic) -> _Known:
        name, partitions = topic.name or "", topic.partitions
        led = [TopicPartition(name, one.partition_index) for one in partitions if one.leader_id >= 0]
        out_of_sync = sum(len(one.isr_nodes) < len(one.replica_nodes) for one in partitions)
        return cls(name, len(partitions), len(partitions) - len(led), out_of_sync, led)


class Sampler:
    """Takes looks, and keeps the counts of the last look to compute rates."""

    def __init__(
        self, cluster: Cluster, scrape: Callable[[], str] | None = None, *, groups_max: int = GROUPS_MAX,
        metadata_every_s: float = METADATA_EVERY_S,
    ) -> None:
        """`scrape` returns the text of a broker's `/metrics`. None means that no broker exports metrics."""
        self._cluster = cluster
        self._groups_max = groups_max
        self._metadata_every_s = metadata_every_s
        self.scrape = scrape
        self.metadata: MetadataResponse | None = None
        """The last answer with the metadata of all topics."""
        self.metrics_text = ""
        """The last text that `scrape` has returned."""
        self.listed: list[ListedGroup] = []
        """All groups of the last look."""
        self.lags: dict[str, dict[str, int]] = {}
        """The lag of the last look by group and topic."""
        self.commit_texts: dict[str, str] = {}
        """The metadata of a committed offset of each group that has any."""
        self._ends: dict[str, int] = {}
        self._lags: dict[str, int] = {}
        self._counts: dict[str, float] = {}
        self._seconds = 0.0
        self._last_s: float | None = None
        self._known: list[_Known] = []
        self._refresh_s = 0.0

    def look(self) -> Look:
        """Asks the brokers, and returns a look. Raises `ClientError` if they do not answer, `ApiError` if they refuse."""
        now = time.monotonic()
        self._seconds = 0.0 if self._last_s is None else max(1e-3, now - self._last_s)
        self._last_s = now
        cluster = self._cluster
        if now >= self._refresh_s:
            answer = self.metadata = cluster.refresh(None)
            self._known = [_Known.of(topic) for topic in answer.topics if topic.name is not None and not topic.error_code]
            self._refresh_s = now + self._metadata_every_s
        known = self._known
        ends = self._end_offsets()
        groups, count = self._groups(ends)
        requests, note = self._requests()
        return Look(
            now, cluster.metadata.cluster_id or "", len(cluster.metadata.brokers), cluster.metadata.controller_id,
            sum(topic.partitions for topic in known), sum(topic.leaderless for topic in known), sum(topic.out_of_sync for topic in known),
            self._topics(ends), groups, count, self._transactions(), requests, note, () if requests is None else pushing(self.metrics_text),
        )  # fmt: skip

    def forget_metadata(self) -> None:
        """Makes the next look ask for the metadata."""
        self._refresh_s = 0.0

    def _per_second(self, new: float, old: float | None) -> float | None:
        return None if old is None or not self._seconds else (new - old) / self._seconds

    def _end_offsets(self) -> dict[TopicPartition, int]:
        wanted = [partition for topic in self._known for partition in topic.led]
        found = list_offsets(self._cluster, dict.fromkeys(wanted, LATEST)) if wanted else {}
        return {partition: result.offset for partition, result in found.items() if isinstance(result, OffsetAt)}

    def _topics(self, ends: dict[TopicPartition, int]) -> list[TopicActivity]:
        """Returns the topics by rate, highest first. Equal rates are ordered by name, with names that begin with `__` last."""
        sums = {topic.name: sum(map(ends.get, topic.led, itertools.repeat(0))) for topic in self._known}
        rows = [
            TopicActivity(
                topic.name, topic.partitions, topic.out_of_sync, sums[topic.name],
                rate_of(sums[topic.name], self._ends.get(topic.name), self._seconds),
            )
            for topic in self._known
        ]  # fmt: skip
        self._ends = sums
        return sorted(rows, key=lambda row: (-(row.rate or 0), row.name.startswith("__"), row.name))

    def _groups(self, ends: dict[TopicPartition, int]) -> tuple[list[GroupActivity], int]:
        """Returns the first `groups_max` listed groups without share groups, largest lag first, and the number of all groups. Omits groups
        with offsets that cannot be read."""
        listed = self.listed = group_admin.list_groups(self._cluster)
        self.lags, self.commit_texts = {}, {}
        rows, lags = [], {}
        wanted = [found for found in listed if found.type.lower() != "share"][: self._groups_max]
        offsets = group_admin.committed_offsets_of(self._cluster, wanted)
        for group in wanted:
            committed = offsets.get(group.group_id)
            if committed is None or isinstance(committed, ApiError):
                continue  # it was deleted, moved to another coordinator, or may not be seen
            by_topic = self.lags[group.group_id] = dict[str, int]()
            if text := next((one.metadata for one in committed.values() if one.metadata), ""):
                self.commit_texts[group.group_id] = text
            for partition, found in committed.items():
                if partition in ends:
                    by_topic[partition.topic] = by_topic.get(partition.topic, 0) + max(0, ends[partition] - found.offset)
            lag = sum(by_topic.values())
            lags[group.group_id] = lag
            change = self._per_second(lag, self._lags.get(group.group_id))
            rows.append(GroupActivity(group.group_id, group.type, group.state, len(committed), lag, change))
        self._lags = lags
        return sorted(rows, key=lambda row: (-row.lag, row.name)), len(listed)

    def _transactions(self) -> list[OpenTransaction]:
        """Returns the first `TRANSACTIONS_MAX` listed open transactions, oldest first."""
        try:
            listed = transaction_admin.list_transactions(self._cluster, states=OPEN_STATES)
        except ApiError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return []
            raise
        rows = []
        for found in listed[:TRANSACTIONS_MAX]:
            try:
                one = transaction_admin.describe_transaction(self._cluster, found.transactional_id)
            except ApiError:
                continue  # most often it has just ended
            age = max(0, now_ms() - one.start_ms) if one.start_ms >= 0 else None
            rows.append(OpenTransaction(one.transactional_id, one.state, age, len(one.partitions), one.client_id))
        return sorted(rows, key=lambda row: -(row.age_ms or 0))

    def _requests(self) -> tuple[list[RequestActivity] | None, str]:
        """Returns the APIs by rate, highest first, and an empty text. Without metrics returns None and the reason."""
        if self.scrape is None:
            return None, "no metrics: start the broker with --set ottla.metrics.listen=127.0.0.1:9404"
        try:
            text = self.metrics_text = self.scrape()
        except (MetricsRefused, ClientError) as error:
            return None, str(error)
        rows, self._counts = requests_in(text, self._counts, self._seconds)
        return rows, ""


def rate_of(new: float, old: float | None, seconds: float) -> float | None:
    """Returns the rate of a count. Returns None if it was not known before, and if it has become smaller, because a broker was started or
    a topic was created again."""
    return None if old is None or new < old or seconds <= 0 else (new - old) / seconds


def requests_in(text: str, before: Mapping[str, float], seconds: float) -> tuple[list[RequestActivity], dict[str, float]]:
    """Returns the APIs in the scrapes of one or several brokers by rate, highest first, and the count of requests of each. `before` has the
    counts of `seconds` ago."""
    counts: dict[str, float] = {}
    times: dict[str, float] = {}
    for name, labels, value in samples_in(text, PREFIX):
        if name == REQUESTS:
            counts[labels["request"]] = counts.get(labels["request"], 0.0) + value
        elif name == TIMES and labels.get("quantile") == "0.99":
            times[labels["request"]] = max(times.get(labels["request"], 0.0), value)
    rows = [RequestActivity(name, rate_of(count, before.get(name), seconds), times.get(name)) for name, count in counts.items() if count]
    return sorted(rows, key=lambda row: (-(row.rate or 0), row.name)), counts


def pushing(text: str) -> list[PushingClient]:
    """Returns the clients in a scrape that push their metrics, by client id."""
    labels = [sample.labels for sample in samples_in(text, CLIENT_INFO)]
    names = ("client_id", "client_software_name", "client_software_version", "client_source_address")
    return sorted(PushingClient(*(one[name] for name in names)) for one in labels)
