"""Metrics of topics and partitions: offsets, replicas, sizes, traffic.

Most partitions do not change between two scrapes, and most changed ones keep their leader. So the text lines of each partition are cached
with the numbers in them. There are three groups of lines: leader and replicas (`standing`), start offset (`starts`), and end offset and
size (`ends`). Each topic caches the encoded text of its partitions. An unchanged partition costs two comparisons. After each `PIECE`
partitions the event loop may serve clients.

Counters never decrease: when a topic is deleted, its series end, but the total of all topics still includes its counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.base.cluster_metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from ottla.base.metric_text import escape, labels_text
from ottla.handlers.context import Partitions
from ottla.replication.partition import Partition
from ottla.replication.traffic import Traffic
from ottla.server.monitoring.metric_families import TRAFFIC
from ottla.server.monitoring.metric_page import Page

PIECE = 100

COUNTERS = (
    "messagesin_total",
    "bytesin_total",
    "bytesout_total",
    "totalproducerequests_total",
    "totalfetchrequests_total",
    "failedproducerequests_total",
    "failedfetchrequests_total",
)
"""The counters of `Traffic`, in the order of `_Row.counts`."""
_NO_COUNTS = (0,) * len(COUNTERS)

STANDING = (
    "kafka_topic_partition_leader",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_cluster_partition_underminisr",
    "kafka_cluster_partition_atminisr",
)
STARTS = ("kafka_topic_partition_oldest_offset", "kafka_log_log_logstartoffset")
ENDS = ("kafka_topic_partition_current_offset", "kafka_log_log_logendoffset", "kafka_log_log_size")
_NO_STARTS = ("",) * len(STARTS)
_NO_ENDS = ("",) * len(ENDS)

SUMS = (
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
)
"""Metrics that count partitions. `_Row.flags` has 1 for each metric that counts the partition, else 0."""

_NO_SUMS = (0,) * len(SUMS)


class _Row:
    """The cached lines of one partition, and the numbers in them."""

    __slots__ = ("counts", "ends", "flags", "holders", "labels", "place", "standing", "start", "starts", "traffic")

    def __init__(self, topic: str, index: int) -> None:
        self.labels = f'{{topic="{escape(topic)}",partition="{index}"}} '
        self.holders: object = None
        self.place: object = None
        self.standing: tuple[str, ...] = ("",) * len(STANDING)
        self.start: int | None = None
        self.starts: tuple[str, ...] = _NO_STARTS
        self.ends: tuple[str, ...] = _NO_ENDS
        self.flags: tuple[int, ...] = _NO_SUMS
        self.traffic: Traffic | None = None
        self.counts: Sequence[int] = _NO_COUNTS


class _Topic:
    """The rows of one topic, and the encoded text of their lines."""

    __slots__ = (
        "base", "counts", "ends", "has_moved", "has_other_holders", "has_other_starts", "rows", "standing", "starts", "sums",
        "traffic_lines",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.has_other_holders = self.has_other_starts = self.has_moved = True
        self.standing: tuple[bytes, ...] = ()
        self.starts: tuple[bytes, ...] = ()
        self.ends: tuple[bytes, ...] = ()
        self.sums: tuple[int, ...] = _NO_SUMS
        self.base: tuple[int, ...] = _NO_COUNTS  # counts of replicas before they were opened again
        self.counts: tuple[int, ...] = _NO_COUNTS
        self.traffic_lines: tuple[str, ...] = ()


class TopicMetrics:
    """Formats the metrics of all topics, and caches the text of unchanged ones."""

    def __init__(self, metadata: ClusterMetadata, partitions: Partitions) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._topics: dict[bytes, _Topic] = {}
        self._gone = list(_NO_COUNTS)

    def collect(self, page: Page) -> Iterator[None]:
        looked_at = 0
        for topic in list(self._metadata.topics()):
            known = self._topics.setdefault(topic.topic_id, _Topic())
            rows = known.rows
            rows += [_Row(topic.name, index) for index in range(len(rows), len(topic.partitions))]
            for start in range(0, len(topic.partitions), PIECE):
                piece = topic.partitions[start : start + PIECE]
                self._renew(topic.name, known, piece)
                looked_at += len(piece)
                if looked_at >= PIECE:
                    looked_at = 0
                    yield
            self._write(page, topic, known)
        self._forget_deleted()
        topics = self._topics.values()
        totals = [sum(column) for column in zip(self._gone, *(known.counts for known in topics), strict=True)]
        for suffix, total in zip(COUNTERS, totals, strict=True):
            page.put(TRAFFIC + suffix, total)
        for name, count in zip(SUMS, map(sum, zip(_NO_SUMS, *(known.sums for known in topics), strict=True)), strict=True):
            page.put(name, count)

    def _renew(self, topic: str, known: _Topic, partitions: tuple[PartitionMetadata, ...]) -> None:
        """Updates the rows of the partitions that have changed."""
        rows, get = known.rows, self._partitions.by_index(topic).get
        for state in partitions:
            row = rows[state.index]
            partition = get(state.index)
            if partition is None:
                holders: object = state
                place: tuple[Any, ...] | None = None
            else:
                # Fields instead of the properties of Partition and PartitionState, because a scrape runs this for thousands of partitions.
                log, traffic, held = partition.log, partition.traffic, partition.state
                holders = (state, held.isr_state, partition.leader is not None, log.config.min_insync_replicas)
                place = (
                    held.high_watermark, log.log_end_offset, log.log_start_offset, log.active.size, len(log.segments), traffic,
                    traffic.messages_in, traffic.bytes_in, traffic.bytes_out, traffic.produces, traffic.fetches,
                    traffic.failed_produces, traffic.failed_fetches,
                )  # fmt: skip
            if holders != row.holders:
                row.holders = holders
                row.standing = _standing(row.labels, state, partition)
                row.flags = _flags(state, partition)
                known.has_other_holders = True
            if place != row.place:
                row.place = place
                _move(known, row, partition, place)

    def _write(self, page: Page, topic: TopicMetadata, known: _Topic) -> None:
        if known.has_other_holders:
            known.has_other_holders = False
            known.standing = _join(row.standing for row in known.rows)
            known.sums = tuple(map(sum, zip(*(row.flags for row in known.rows), strict=True)))
        if known.has_other_starts:
            known.has_other_starts = False
            known.starts = _join(row.starts for row in known.rows)
        if known.has_moved:
            known.has_moved = False
            known.ends = _join_ends(row.ends for row in known.rows)
            known.counts = tuple(map(sum, zip(known.base, *(row.counts for row in known.rows), strict=True)))
            labels = labels_text(topic=topic.name)
            known.traffic_lines = tuple(
                f"{TRAFFIC}{suffix}{labels} {count}\n" for suffix, count in zip(COUNTERS, known.counts, strict=True)
            )
        for family, text in zip((*STANDING, *STARTS, *ENDS), (*known.standing, *known.starts, *known.ends), strict=True):
            page.blocks[family].append(text)
        for suffix, line in zip(COUNTERS, known.traffic_lines, strict=True):
            page.lines[TRAFFIC + suffix].append(line)
        page.put("kafka_topic_partitions", len(topic.partitions), labels_text(topic=topic.name))

    def _forget_deleted(self) -> None:
        for topic_id in [known for known in self._topics if self._metadata.topic_by_id(known) is None]:
            counts = self._topics.pop(topic_id).counts
            self._gone = [total + count for total, count in zip(self._gone, counts, strict=True)]


def _join(rows: Iterator[tuple[str, ...]]) -> tuple[bytes, ...]:
    """Joins the lines of many partitions into one text for each metric."""
    return tuple("".join(column).encode() for column in zip(*rows, strict=True))


def _standing(labels: str, state: PartitionMetadata, partition: Partition | None) -> tuple[str, ...]:
    """Returns a partition's lines for the metrics in `STANDING`, in this order."""
    replicas = len(state.replicas)
    in_sync = len(partition.isr_state.members) if partition is not None and partition.is_leading else len(state.isr)
    is_preferred = int(bool(state.replicas) and state.leader == state.replicas[0])
    shared = (
        f"kafka_topic_partition_leader{labels}{state.leader}\n",
        f"kafka_topic_partition_replicas{labels}{replicas}\n",
        f"kafka_topic_partition_in_sync_replica{labels}{in_sync}\n",
        f"kafka_topic_partition_leader_is_preferred{labels}{is_preferred}\n",
        f"kafka_topic_partition_under_replicated_partition{labels}{int(in_sync < replicas)}\n",
    )
    if partition is None:
        return (*shared, "", "")
    is_leading, min_insync = partition.is_leading, partition.min_insync
    return (
        *shared,
        f"kafka_cluster_partition_underminisr{labels}{int(is_leading and in_sync < min_insync)}\n",
        f"kafka_cluster_partition_atminisr{labels}{int(is_leading and in_sync == min_insync)}\n",
    )


def _starts(labels: str, start: int) -> tuple[str, ...]:
    """Returns a partition's lines for the metrics in `STARTS`, in this order."""
    return f"kafka_topic_partition_oldest_offset{labels}{start}\n", f"kafka_log_log_logstartoffset{labels}{start}\n"


def _move(known: _Topic, row: _Row, partition: Partition | None, place: tuple[Any, ...] | None) -> None:
    """Updates a row after the partition's offsets, size or counts have changed. The lines of `ENDS` are without the metrics' names, which
    `_join_ends` adds. The two offsets are usually equal, and then their lines are the same string."""
    known.has_moved = True
    if partition is None or place is None:
        known.has_other_starts = True
        row.start, row.starts, row.ends = None, _NO_STARTS, _NO_ENDS
        return
    high_watermark, end_offset, start, size, segments, traffic, *counts = place
    labels = row.labels
    if traffic is not row.traffic:
        # The replica was opened again and counts from zero.
        known.base = tuple(map(sum, zip(known.base, row.counts, strict=True)))
        row.traffic = traffic
    row.counts = counts
    if start != row.start:
        known.has_other_starts = True
        row.start, row.starts = start, _starts(labels, start)
    if segments > 1:
        size = partition.log.size_bytes
    end = f"{labels}{end_offset}\n"
    row.ends = end if high_watermark == end_offset else f"{labels}{high_watermark}\n", end, f"{labels}{size}\n"


def _join_ends(rows: Iterator[tuple[str, ...]]) -> tuple[bytes, ...]:
    """Joins the lines of `ENDS` into one text for each metric. Partitions without a replica on this broker have no lines."""
    columns = [[text for text in column if text] for column in zip(*rows, strict=True)]
    return tuple((family + family.join(column) if column else "").encode() for family, column in zip(ENDS, columns, strict=True))


def _flags(state: PartitionMetadata, partition: Partition | None) -> tuple[int, ...]:
    """Returns 1 for each metric in `SUMS` that counts the partition, else 0."""
    is_elsewhere = int(state.leader < 0), int(not state.replicas or state.leader != state.replicas[0])
    if partition is None:
        return 0, 0, 0, 0, *is_elsewhere
    if not partition.is_leading:
        return 0, 1, 0, 0, *is_elsewhere
    in_sync = len(partition.isr_state.members)
    return 1, 1, int(in_sync < len(state.replicas)), int(in_sync < partition.min_insync), *is_elsewhere
