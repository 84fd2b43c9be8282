"""Keeps a snapshot of the cluster in memory, which a thread renews. List pages are made from it, so opening a page sends no request to the
cluster. If the cluster does not answer, pages show the last snapshot, and `problem` has the reason. The snapshot is renewed less often
while no page is open.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.analysis.sample import Look, Sampler
from ottla.base.errors import ApiError, OttlaError
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.client.core.group_admin import ListedGroup
from ottla.console.broker_ports import BrokerPorts, Exported
from ottla.console.changes import Changes
from ottla.console.group_history import GroupHistory
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

INTERVAL_S = 5.0
"""Seconds between looks while pages are open. The history then covers 15 minutes."""
IDLE_INTERVAL_S = 30.0
"""Seconds between looks when no page was requested for `IDLE_AFTER_S`."""
COST_SHARE_MAX = 0.01
"""Share of a core that looks may take. A look that costs more CPU time than 50 ms delays the next one. A broker's cost of a look is smaller
than the console's."""
METADATA_EVERY_S = 20.0
"""Seconds between requests for the metadata of all topics. An action of this console asks at once."""
IDLE_AFTER_S = 120.0
HISTORY_POINTS = 180
"""Looks whose figures the charts show."""
DISKS_EVERY_S = 30.0
SETTINGS_EVERY_S = 60.0
"""Seconds between requests for the settings of all topics that lists show (`TopicSettings`). An action of this console asks at once."""
FIRST_SETTINGS_MAX = 500
"""Topics whose settings the first look asks for. With more topics the next look does, so that the first page need not wait."""
LAST_RECORDS_MAX = 500
"""Partitions whose newest record one look asks for."""
GROUPS_MAX = 500
"""Groups whose lag a look computes."""
FIRST_VIEW_S = 5.0
"""Seconds that a page waits for the first view of a new snapshot, and an action for the look after it."""

SERIES = ("messages", "bytes_in", "bytes_out", "produce_p99", "fetch_p99", "lag", "open_transactions", "committed", "aborted")


class Directory(NamedTuple):
    """A log directory of a broker, with the bytes of each (topic, partition)."""

    broker: int
    path: str
    error: str
    total_bytes: int
    usable_bytes: int
    sizes: dict[tuple[str, int], int]


class TopicSettings(NamedTuple):
    """The settings of a topic that lists show."""

    cleanup: str
    min_in_sync: int


class View(NamedTuple):
    """The cluster as it was at `at_s` (seconds since 1970). `metadata` is the answer with all topics, `lags` the lag by group and topic,
    `commit_texts` the metadata of a committed offset of each group that has any.
    `settings` lacks topics whose settings are not known or which this identity may not see. `exported` has the metrics of the brokers that
    export them. `last_records` has the time of the newest record by topic, in milliseconds since 1970: if the topic has grown since the
    console was started, the time of the last sample that showed growth; otherwise the record's own timestamp."""

    at_s: float
    look: Look
    metadata: MetadataResponse
    topics: dict[str, MetadataResponseTopic]
    groups: list[ListedGroup]
    lags: dict[str, dict[str, int]]
    commit_texts: dict[str, str]
    directories: list[Directory]
    disk_note: str
    settings: Mapping[str, TopicSettings]
    exported: Mapping[int, Exported]
    last_records: Mapping[str, int]


class Snapshot:
    """See the module."""

    def __init__(self, cluster: Cluster, ports: BrokerPorts) -> None:
        """The addresses of `ports` are requested over the same connections."""
        self.cluster = cluster
        self.ports = ports
        self.view: View | None = None
        self.problem = "The cluster has not answered yet."
        self.history: deque[tuple[float, dict[str, float | None]]] = deque(maxlen=HISTORY_POINTS)
        self.changes = Changes()
        self.groups = GroupHistory()
        self._sampler = Sampler(cluster, ports.read, groups_max=GROUPS_MAX, metadata_every_s=METADATA_EVERY_S)
        self._directories: list[Directory] = []
        self._disk_note = ""
        self._disks_at = 0.0
        self._settings: dict[str, TopicSettings] = {}
        self._settings_at = 0.0
        self._last_records: dict[str, int] = {}
        self._asked: set[str] = set()
        """The topics whose newest record was asked for."""
        self._looked_s = time.monotonic()
        self._wanted = threading.Event()
        self._renewed = threading.Condition()
        self._begun = self._ended = 0
        """How many looks have begun and ended."""
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)
        self._thread.start()

    def current(self) -> View:
        """Returns the view. Waits for the first one. Raises `OttlaError` with the problem if there is none."""
        was_idle = time.monotonic() - self._looked_s > IDLE_AFTER_S
        self._looked_s = time.monotonic()
        if was_idle:
            self._wanted.set()
        if self.view is None:
            with self._renewed:
                self._renewed.wait_for(lambda: self.view is not None or self._ended, timeout=FIRST_VIEW_S)
        if self.view is None:
            raise OttlaError(self.problem)
        return self.view

    def renew(self) -> None:
        """Takes a sample after an action has changed the cluster, and waits for it, at most `FIRST_VIEW_S` seconds."""
        with self._renewed:
            wanted = self._begun + 1
            self._sampler.forget_metadata()
            self._disks_at = self._settings_at = 0.0
            self._wanted.set()
            self._renewed.wait_for(lambda: self._ended >= wanted, timeout=FIRST_VIEW_S)

    def stop(self) -> None:
        """Ends the thread, which closes the connections."""
        self._is_over = True
        self._wanted.set()
        self.cluster.close()
        self._thread.join(timeout=FIRST_VIEW_S)

    def _run(self) -> None:
        while not self._is_over:
            with self._renewed:
                if not self._is_over:
                    self._wanted.clear()
                self._begun += 1
            begun_s = time.thread_time()
            try:
                self.view = self._look()
                self.problem = ""
            except OttlaError as error:
                self.problem = str(error)
                self.cluster.close()
            with self._renewed:
                self._ended = self._begun
                self._renewed.notify_all()
            is_idle = time.monotonic() - self._looked_s > IDLE_AFTER_S
            self._wanted.wait(pause_s(time.thread_time() - begun_s, is_idle=is_idle))
        self.cluster.close()

    def _look(self) -> View:
        look = self._sampler.look()
        answer = self._sampler.metadata
        assert answer is not None, "a look has asked for the metadata"
        if self.view is not None and answer is self.view.metadata:
            topics = self.view.topics
        else:
            topics = {topic.name: topic for topic in answer.topics if topic.name is not None and not topic.error_code}
            self.changes.note(time.time(), topics)
        if time.monotonic() >= self._disks_at:
            self._ask_disks(look)
        if time.monotonic() >= self._settings_at and (self.view is not None or len(topics) <= FIRST_SETTINGS_MAX):
            self._ask_settings(topics)
        self._note_last_records(look, topics)
        view = View(
            time.time(), look, answer, topics, self._sampler.listed, self._sampler.lags, self._sampler.commit_texts,
            self._directories, self._disk_note,
            self._settings, dict(self.ports.exported), dict(self._last_records),
        )  # fmt: skip
        self._note(view)
        return view

    def _ask_disks(self, look: Look) -> None:
        self._directories, self._disk_note = [], ""
        for broker in sorted(self.cluster.metadata.brokers):
            try:
                found = admin.describe_log_dirs(self.cluster, broker)
            except OttlaError as error:
                self._disk_note = str(error)
                continue
            self._directories += [_directory(broker, each) for each in found]
        self._disks_at = time.monotonic() + DISKS_EVERY_S

    def _ask_settings(self, topics: Iterable[str]) -> None:
        keys = ("cleanup.policy", "min.insync.replicas")
        self._settings, self._settings_at = {}, time.monotonic() + SETTINGS_EVERY_S
        try:
            found = admin.describe_configs(self.cluster, admin.TOPIC_RESOURCE, sorted(topics), keys=keys)
        except ApiError:  # a broker older than Kafka 0.11 has no DescribeConfigs
            return
        for name, entries in found.items():
            values = {one.name: one.value or "" for one in entries} if isinstance(entries, list) else {}
            if len(values) == 2 and values["min.insync.replicas"].isdecimal():
                self._settings[name] = TopicSettings(values["cleanup.policy"], int(values["min.insync.replicas"]))

    def _note_last_records(self, look: Look, topics: Mapping[str, MetadataResponseTopic]) -> None:
        now_ms = int(time.time() * 1000)
        self._last_records = {name: at_ms for name, at_ms in self._last_records.items() if name in topics}
        self._asked.intersection_update(topics)
        self._last_records.update((one.name, now_ms) for one in look.topics if one.rate)
        if self.view is None:  # the first page need not wait
            return
        wanted: list[TopicPartition] = []
        for one in look.topics:
            if one.end and one.name not in self._asked and one.name in topics and len(wanted) + one.partitions <= LAST_RECORDS_MAX:
                self._asked.add(one.name)
                wanted += [TopicPartition(one.name, each.partition_index) for each in topics[one.name].partitions if each.leader_id >= 0]
        if wanted:
            self._ask_last_records(wanted)

    def _ask_last_records(self, wanted: Iterable[TopicPartition]) -> None:
        try:
            found = admin.list_offsets(self.cluster, dict.fromkeys(wanted, admin.MAX_TIMESTAMP))
        except ApiError:  # a broker older than Kafka 3.0 cannot find the newest record
            return
        for place, at in found.items():
            if isinstance(at, admin.OffsetAt) and at.timestamp >= 0:
                self._last_records[place.topic] = max(at.timestamp, self._last_records.get(place.topic, -1))

    def _note(self, view: View) -> None:
        """Adds a point to the history of the cluster and of each group."""
        self.groups.note(view.at_s, view.groups, {group.name: group.lag for group in view.look.groups})
        p99 = {row.name: row.p99_ms for row in view.look.requests or ()}
        known = [topic.rate for topic in view.look.topics if topic.rate is not None]
        self.history.append((view.at_s, {
            "messages": sum(max(0.0, rate) for rate in known) if known else None,
            **{name: self.ports.total(name) for name in ("bytes_in", "bytes_out", "committed", "aborted")},
            "produce_p99": p99.get("Produce"),
            "fetch_p99": p99.get("Fetch"),
            "lag": sum(group.lag for group in view.look.groups),
            "open_transactions": len(view.look.transactions),
        }))  # fmt: skip


def pause_s(cost_s: float, *, is_idle: bool) -> float:
    """Returns the seconds until the next sample, after a sample that has taken `cost_s` seconds of CPU time."""
    return max(IDLE_INTERVAL_S if is_idle else INTERVAL_S, cost_s / COST_SHARE_MAX)


def _directory(broker: int, found: Any) -> Directory:
    sizes = {(topic.name, one.partition_index): one.partition_size for topic in found.topics for one in topic.partitions}
    error = "" if not found.error_code else f"error {found.error_code}"
    return Directory(broker, found.log_dir, error, found.total_bytes, found.usable_bytes, sizes)
