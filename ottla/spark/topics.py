"""Asks the cluster what the driver needs before it plans a batch: the partitions of a subscription, their bounds, the offsets of
timestamps.

A plan needs one request for metadata and one or two per leader for offsets, whatever the number of partitions.

The sink needs a topic's number of partitions and its largest batch. For the option `topic` the driver asks and sends the answer with the
writer. For topics named by rows, the first task in a process asks. An answer is used for `REMEMBERED_S` seconds. Before the tasks of a
batch run, the driver checks for an open transaction of an earlier driver. Before a commit it checks that the topics that the batch
reads are on the sink's cluster.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.client import EARLIEST, LATEST, AuthorizationError, Client, Committed, ErrorCode, KafkaError, TopicPartition, uuid_to_text
from ottla.spark.batch_range import find_batch_range, find_last_batch, find_query_id, group_of_query, source_cluster
from ottla.spark.connections import ask
from ottla.spark.decision import BatchRange, PlannedBatch, decide
from ottla.spark.errors import OffsetConflictError, OptionError, OutputError, PipelineError
from ottla.spark.options import ClusterConnection, SinkOptions, SourcePartitions
from ottla.spark.planning import LogBounds, SourceOffsets
from ottla.spark.relay import STABLE_S, STREAM_ID_PREFIX

LEFT_OPEN_S = 1.0
LEFT_OPEN_POLL_S = 0.05

ABSENT_TRIES = 5
"""Attempts to find a topic. A broker that has just started may not know it for a moment."""
ABSENT_PAUSE_S = 0.5

_ABSENT = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_TOPIC_EXCEPTION,
                     ErrorCode.TOPIC_AUTHORIZATION_FAILED})  # fmt: skip
"""Codes in metadata that answer a request finally: the description, no such topic, or no permission to describe it. A topic with another
code exists, but cannot be described now.
"""

GONE_S = 30.0
"""Seconds after which a topic that no broker knows counts as deleted. 30, because a broker with many topics takes several seconds to
start."""

REMEMBERED_S = 10.0
"""Seconds after which limits of topics are requested again, because they may have changed."""
REMEMBERED_MAX = 10_000

SAMPLE_BYTES = 64 * 1024
SAMPLED_PARTITIONS = 8


class Present(NamedTuple):
    """The existing partitions of a subscription, in order, and the topics that exist but cannot be described now."""

    partitions: list[TopicPartition]
    unready: frozenset[str]


def present_partitions(client: Client, subscription: SourcePartitions) -> Present:
    """Requests the partitions of a subscription. Raises `AuthorizationError` for a named topic without permission to describe it."""
    names = None if subscription.pattern else subscription.topics or sorted({partition.topic for partition in subscription.partitions})
    described = [topic for topic in client.cluster.refresh(names).topics if topic.name is not None]
    if subscription.pattern:
        wanted = re.compile(subscription.pattern)
        described = [topic for topic in described if not topic.is_internal and wanted.fullmatch(topic.name or "")]
    elif denied := [topic.name for topic in described if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED]:
        raise AuthorizationError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {denied[0]!r}")
    present = {
        TopicPartition(topic.name or "", found.partition_index) for topic in described if not topic.error_code for found in topic.partitions
    }
    unready = frozenset(topic.name or "" for topic in described if topic.error_code not in _ABSENT)
    return Present(sorted(present & set(subscription.partitions) if subscription.partitions else present), unready)


def settled_partitions(client: Client, subscription: SourcePartitions) -> list[TopicPartition]:
    """Returns the partitions of a subscription when all of its topics can be described. Raises `PipelineError` if a topic still
    cannot be described after `ABSENT_TRIES` attempts.

    A query that began without such a topic would later treat it as new, and read it from its first record.
    """
    for tries_left in reversed(range(ABSENT_TRIES)):
        partitions, unready = present_partitions(client, subscription)
        if not unready:
            return partitions
        if tries_left:
            time.sleep(ABSENT_PAUSE_S)
    raise unready_error(subscription, unready)


def unready_error(subscription: SourcePartitions, unready: Iterable[str]) -> PipelineError:
    return PipelineError(
        f"{subscription.option}: topic {min(unready)!r} exists, but its brokers cannot describe it now; nothing is lost, start the query "
        "again when they can"
    )


def check_subscription(
    client: Client, subscription: SourcePartitions, present: Iterable[TopicPartition], *, may_match_later: bool = False
) -> None:
    """Raises `UnknownTopicError`, `AuthorizationError` or `OptionError` if a named topic or partition cannot be read.

    A pattern must match a topic now, unless it `may_match_later`.
    """
    known = set(present)
    topics = {partition.topic for partition in known}
    for topic in subscription.topics or sorted({partition.topic for partition in subscription.partitions}):
        if topic not in topics:
            client.describe_topic(topic)
    missing = sorted(set(subscription.partitions) - known)
    if missing:
        raise OptionError(f"{subscription.option}: partition {missing[0]} does not exist")
    if subscription.pattern and not known and not may_match_later:
        raise OptionError(f"{subscription.option}: no topic matches {subscription.pattern!r}")


class Absence:
    """Decides whether topics missing in metadata are deleted or temporarily missing. `is_undecided` is True while this is not yet known for
    a topic.

    A broker that has just started, or a topic whose leaders are being elected, answers LEADER_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION
    for a while. Such an answer proves no loss, so a query keeps the positions of these partitions (SPARK-41375). A partition is deleted if
    the query's options no longer name its topic, or if the cluster has answered UNKNOWN_TOPIC_OR_PARTITION for `GONE_S` without
    interruption.

    Until that is decided the query runs no batch, because the sink commits the offsets of all partitions, and no coordinator accepts
    offsets of a topic that does not exist. A topic that exists without a leader does not delay other topics.
    """

    def __init__(self, subscription: SourcePartitions, now: Callable[[], float] = time.monotonic) -> None:
        self._subscription = subscription
        self._now = now
        self._unknown_since: dict[str, float] = {}
        self.is_undecided = False

    def observe(self, missing: Iterable[TopicPartition], unready: Collection[str]) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Processes one observation of metadata; returns the deleted partitions, and the temporarily missing ones.

        `unready` are the topics that exist but that no broker could describe.
        """
        partitions, now = set(missing), self._now()
        unknown = {one.topic for one in partitions if self._subscription.covers(one) and one.topic not in unready}
        self._unknown_since = {topic: self._unknown_since.get(topic, now) for topic in sorted(unknown)}
        deleted = {topic for topic, since in self._unknown_since.items() if now - since >= GONE_S}
        self.is_undecided = deleted != unknown
        gone = {one for one in partitions if not self._subscription.covers(one) or one.topic in deleted}
        return gone, partitions - gone


def committed_offsets(client: Client, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
    """Returns the committed offsets of a group.

    It waits for a pending transactional commit of a pipeline. If the transaction is still open after `STABLE_S` and is not ending, its
    driver seems to have died, and the older offsets are returned. The sink ends such a transaction before it compares its batch with the
    group's offsets, and stops if the transaction was committed after all.
    """
    wanted = list(partitions)
    try:
        return client.committed(group, wanted, timeout_s=STABLE_S)
    except KafkaError as error:
        if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise
    return client.committed(group, wanted, require_stable=not _may_be_left_open(client, f"{STREAM_ID_PREFIX}{group}"))


def _may_be_left_open(client: Client, transactional_id: str) -> bool:
    """Whether a killed driver may have left the transaction open: it is open and not ending, or cannot be described. Such a transaction
    stays open until its timeout, a minute or more.
    """
    try:
        return client.describe_transaction(transactional_id).state == "Ongoing"
    except KafkaError:
        return True


def known_ids(client: Client, partitions: Iterable[TopicPartition]) -> dict[str, str]:
    """Returns the topic ids in the client's last metadata, in Kafka's text form; topics without an id are omitted."""
    known = client.cluster.metadata.topics
    found = {name: bytes(known[name].topic_id) for name in sorted({one.topic for one in partitions}) if name in known}
    return {name: uuid_to_text(topic_id) for name, topic_id in found.items() if any(topic_id)}


def read_ids(client: Client, names: Sequence[str]) -> dict[str, str]:
    """Requests the current ids of topics; topics that do not exist are omitted."""
    client.cluster.refresh(names)
    return known_ids(client, [TopicPartition(name, 0) for name in names])


def list_offsets(client: Client, wanted: Mapping[TopicPartition, int], isolation: str) -> SourceOffsets:
    """Returns the offset of a timestamp, `EARLIEST` or `LATEST` in each partition, -1 for a timestamp after the last record."""
    return {one: found.offset for one, found in client.list_offsets(wanted, isolation=isolation).items()} if wanted else {}


def read_bounds(client: Client, partitions: Iterable[TopicPartition], isolation: str) -> dict[TopicPartition, LogBounds]:
    wanted = list(partitions)
    starts, ends = read_starts(client, wanted), read_ends(client, wanted, isolation)
    return {partition: LogBounds(starts[partition], ends[partition]) for partition in wanted}


def read_starts(client: Client, partitions: Iterable[TopicPartition]) -> SourceOffsets:
    return list_offsets(client, dict.fromkeys(partitions, EARLIEST), "read_uncommitted")


def read_ends(client: Client, partitions: Iterable[TopicPartition], isolation: str) -> SourceOffsets:
    """Returns the end of each partition: the last stable offset with read_committed."""
    return list_offsets(client, dict.fromkeys(partitions, LATEST), isolation)


def sample_offset_bytes(client: Client, starts: Mapping[TopicPartition, int], isolation: str) -> float | None:
    """Returns the average stored bytes per offset, sampled from the next records of some partitions; None if there are no records, or if a
    broker refuses the request.
    """
    some = dict(sorted(starts.items())[:: max(1, len(starts) // SAMPLED_PARTITIONS)][:SAMPLED_PARTITIONS])
    try:
        sampled = client.fetch(some, isolation=isolation, max_wait_ms=0, max_bytes=SAMPLE_BYTES, partition_max_bytes=SAMPLE_BYTES)
    except KafkaError:
        return None  # for example, the first record was deleted; the tasks will report that
    offsets = sum(found.next_offset - found.start for found in sampled)
    size = sum(header.size_bytes for found in sampled for header, _ in found.batches)
    return size / offsets if offsets and size else None


# Limits of topics, for the sink


class TopicLimits(NamedTuple):
    """The number of partitions of a topic, and its batch size: the smaller of the option and the topic's limit."""

    partitions: int
    batch_bytes: int


class KnownTopics(NamedTuple):
    """The topics that the driver has requested. `refused` is the error of the driver's request; a task with rows raises it."""

    limits: Mapping[str, TopicLimits]
    refused: PipelineError | None = None


NONE_KNOWN = KnownTopics({})


def known_topics(options: SinkOptions) -> KnownTopics:
    """Requests the topic of the option `topic`; returns `NONE_KNOWN` if rows name their topics. Does not raise `PipelineError`, but returns
    it as `refused`."""
    if options.topic is None:
        return NONE_KNOWN
    try:
        return KnownTopics({options.topic: remembered_topic(options, options.topic)})
    except PipelineError as error:
        return KnownTopics({}, error)


_known: dict[tuple[int, ClusterConnection, int, str], tuple[float, TopicLimits]] = {}
"""Cached limits of topics, with the time of the request."""


def remembered_topic(options: SinkOptions, topic: str) -> TopicLimits:
    """Returns a topic's limits, at most `REMEMBERED_S` old. Raises `PipelineError` like `ask_topic`."""
    key, now = (os.getpid(), options.connection, options.batch_bytes, topic), time.monotonic()
    asked_at, limits = _known.get(key, (now - REMEMBERED_S, None))
    if limits is None or now - asked_at >= REMEMBERED_S:
        limits = ask_topic(options, topic)
        if len(_known) >= REMEMBERED_MAX:
            _known.clear()
        _known[key] = now, limits
    return limits


def ask_topic(options: SinkOptions, topic: str) -> TopicLimits:
    """Requests a topic's limits; raises `PipelineError` if it does not exist or may not be described."""

    def question(client: Client) -> TopicLimits:
        partitions = len(client.describe_topic(topic).partitions)
        return TopicLimits(partitions, min(options.batch_bytes, _message_bytes_max(client, topic) or options.batch_bytes))

    return ask(options.connection, "topic", question)


_present: set[tuple[int, ClusterConnection, str]] = set()
"""Source topics that were found on the sink's cluster, by process. Each topic is checked once, before the first commit of its offsets."""


def check_one_cluster(options: SinkOptions, batch_range: BatchRange) -> None:
    """Raises `OutputError` if the sink's cluster is not the source's, or lacks a topic that the batch reads. Other errors are ignored here;
    the commit raises them."""
    if batch_range.is_counted:
        return
    try:
        ours = ask(options.connection, "topic", lambda client: client.cluster_id)
    except PipelineError:
        return
    theirs = source_cluster(options.group or "")
    if ours and theirs and ours != theirs:
        raise OutputError(
            f"kafka.bootstrap.servers: the sink is on cluster {ours!r}, the source on cluster {theirs!r}; both have to be on one, "
            "since the source's offsets are committed with the output"
        )
    start = batch_range.start or {}
    moved = {partition.topic for partition, end in batch_range.end.items() if start.get(partition) != end}
    wanted = {(os.getpid(), options.connection, topic) for topic in moved} - _present
    absent = sorted(topic for *_, topic in wanted)
    for tries_left in reversed(range(ABSENT_TRIES if absent else 0)):
        try:
            absent = ask(options.connection, "topic", partial(_absent, names=absent))
        except PipelineError:
            return
        if not absent:
            break
        if not tries_left:
            raise OutputError(
                f"kafka.bootstrap.servers: the sink's cluster has no topic {absent[0]!r}, whose offsets are to be committed with the "
                "output; the topics of source and sink have to exist, all of them on one cluster"
            )
        time.sleep(ABSENT_PAUSE_S)
    _present.update(wanted)


def _absent(client: Client, names: Sequence[str]) -> list[str]:
    described = client.cluster.refresh(names).topics
    return sorted(topic.name or "" for topic in described if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _message_bytes_max(client: Client, topic: str) -> int:
    """Returns the topic's `max.message.bytes`; 0 if the principal may not read it."""
    try:
        return int(client.topic_configs(topic).get("max.message.bytes") or 0)
    except AuthorizationError:
        return 0


# Open transactions of killed drivers


def end_left_open(options: SinkOptions) -> None:
    """Ends the open transaction of a killed driver of this stream, before the tasks of a batch run. Errors are ignored here; the commit
    raises them.

    The commit of the batch would end it too, but only after the tasks. Until then, consumers with read_committed wait at the transaction's
    first record. A transaction that stays open for `LEFT_OPEN_S` is assumed to belong to a dead driver; if it does not, that driver is
    fenced now instead of at the commit. Nothing is ended if this query is a stale copy: the group's offsets show that its batch would be
    refused.

    Each batch is checked, because one process plans the batches of many runs. The check is one request, about 0.06 ms on one host.
    """
    group = options.group or _own_group(options)
    if group is None:
        return
    try:
        ask(options.connection, "group", lambda client: _end(client, options, group))
    except PipelineError:
        pass


def _own_group(options: SinkOptions) -> str | None:
    query_id = find_query_id(options.checkpoint)
    return None if query_id is None else group_of_query(query_id)


def _end(client: Client, options: SinkOptions, group: str) -> None:
    transactional_id = f"{STREAM_ID_PREFIX}{group}"
    began = _open_since(client, transactional_id)
    deadline = time.monotonic() + LEFT_OPEN_S
    while began is not None and time.monotonic() < deadline:
        time.sleep(LEFT_OPEN_POLL_S)
        if _open_since(client, transactional_id) != began:
            return
    if began is not None and not _is_stale(client, options, group):
        client.transaction(transactional_id, timeout_ms=options.transaction_timeout_ms).initialize()


def _is_stale(client: Client, options: SinkOptions, group: str) -> bool:
    """Whether the planned batch conflicts with the group's offsets; False if the checkpoint cannot be read as files."""
    batch_id = find_last_batch(options.checkpoint)
    if batch_id is None:
        return False
    try:
        planned = find_batch_range(options.checkpoint, batch_id, group=options.group, sink_topic=options.topic)
        batch = PlannedBatch(group, find_query_id(options.checkpoint) or "", batch_id, planned, False, options.is_checkpoint_trusted)
        decide(batch, client.committed(group), ())
    except OffsetConflictError:
        return True
    return False


def _open_since(client: Client, transactional_id: str) -> int | None:
    """Returns when the open transaction began; None if there is none, or it may not be described."""
    try:
        found = client.describe_transaction(transactional_id)
    except KafkaError:
        return None
    return found.start_ms if found.state == "Ongoing" else None
