"""What a scrape says of topics and partitions: offsets, replicas, sizes, traffic.

Most partitions of a broker have not moved since the scrape before. So a partition's lines are kept with the numbers that they were made
of, and the text of a topic with its partitions: a topic at rest costs a comparison. The walk is cut into pieces of `PIECE` partitions, and
the loop may serve clients between them.

Counters never go back: what a deleted topic has counted stays in the series without a label, and its own series end.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from ottla.controller.state import ClusterMetadata, PartitionMetadata, TopicMetadata
from ottla.handlers.context import Partitions
from ottla.replication.partition import Partition
from ottla.replication.traffic import Traffic
from ottla.server.metric_families import TRAFFIC
from ottla.server.metric_page import Page, escape, labels_text

PIECE = 100

_of_partition = attrgetter(
    "high_watermark", "log.log_start_offset", "log.log_end_offset", "isr_state.members", "min_insync", "is_leading",
)  # fmt: skip

COUNTERS = (
    ("messagesin_total", "messages_in"),
    ("bytesin_total", "bytes_in"),
    ("bytesout_total", "bytes_out"),
    ("totalproducerequests_total", "produces"),
    ("totalfetchrequests_total", "fetches"),
    ("failedproducerequests_total", "failed_produces"),
    ("failedfetchrequests_total", "failed_fetches"),
)
_of_traffic = attrgetter(*(attribute for _, attribute in COUNTERS))

PARTITION_FAMILIES = (
    "kafka_topic_partition_leader",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "kafka_cluster_partition_underminisr",
    "kafka_cluster_partition_atminisr",
    "kafka_log_log_size",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_logendoffset",
)
_SHARED = 5
"""The first families tell of every partition of the cluster, the others of those with a replica here."""

_NO_COUNTS = (0,) * len(COUNTERS)

SUMS = (
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
)
"""Each is a number of partitions; a row says with 0 or 1 whether it is one of them."""

_NO_SUMS = (0,) * len(SUMS)


class _Row:
    """One partition's lines, and the numbers behind them."""

    __slots__ = ("counts", "flags", "labels", "lines", "traffic", "values")

    def __init__(self, topic: str, index: int) -> None:
        self.labels = f'{{topic="{escape(topic)}",partition="{index}"}} '
        self.values: object = None
        self.lines: tuple[str, ...] = ("",) * len(PARTITION_FAMILIES)
        self.flags: tuple[int, ...] = _NO_SUMS
        self.traffic: Traffic | None = None
        self.counts: tuple[int, ...] = _NO_COUNTS


class _Topic:
    """One topic's rows, and the text that they made."""

    __slots__ = ("base", "counts", "rows", "sums", "texts", "traffic_lines")

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.texts: tuple[str, ...] = ("",) * len(PARTITION_FAMILIES)
        self.sums: tuple[int, ...] = _NO_SUMS
        self.base: tuple[int, ...] = _NO_COUNTS  # counted by replicas that have since been opened anew
        self.counts: tuple[int, ...] = _NO_COUNTS
        self.traffic_lines: tuple[str, ...] = ()


class TopicMetrics:
    """Walks all topics; keeps the text of what has not moved."""

    def __init__(self, metadata: ClusterMetadata, partitions: Partitions) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._topics: dict[bytes, _Topic] = {}
        self._gone = list(_NO_COUNTS)

    def collect(self, page: Page) -> Iterator[None]:
        """Adds everything about topics to the page; gives up the loop after each piece."""
        looked_at = 0
        for topic in list(self._metadata.topics()):
            known = self._topics.setdefault(topic.topic_id, _Topic())
            has_changed = self._fit(known, topic)
            for start in range(0, len(topic.partitions), PIECE):
                piece = topic.partitions[start : start + PIECE]
                has_changed = self._renew(topic.name, known, piece) or has_changed
                looked_at += len(piece)
                if looked_at >= PIECE:
                    looked_at = 0
                    yield
            self._write(page, topic, known, has_changed)
        self._forget_deleted()
        topics = self._topics.values()
        totals = [sum(column) for column in zip(self._gone, *(known.counts for known in topics), strict=True)]
        for (suffix, _), total in zip(COUNTERS, totals, strict=True):
            page.put(TRAFFIC + suffix, total)
        for name, count in zip(SUMS, map(sum, zip(_NO_SUMS, *(known.sums for known in topics), strict=True)), strict=True):
            page.put(name, count)

    def _fit(self, known: _Topic, topic: TopicMetadata) -> bool:
        """Makes rows for partitions that are new."""
        rows = known.rows
        if len(rows) == len(topic.partitions):
            return False
        rows += [_Row(topic.name, index) for index in range(len(rows), len(topic.partitions))]
        return True

    def _renew(self, topic: str, known: _Topic, partitions: tuple[PartitionMetadata, ...]) -> bool:
        """Makes the lines of the partitions that have moved; whether there were any."""
        has_changed = False
        get = self._partitions.get
        for state in partitions:
            row = known.rows[state.index]
            partition = get(topic, state.index)
            if partition is None:
                values: object = state
            else:
                values = (state, _of_partition(partition), _size_of(partition))
                self._count(known, row, partition.traffic)
            if values != row.values:
                row.values = values
                row.lines = _lines(row.labels, state, partition)
                row.flags = _flags(state, partition)
                has_changed = True
        return has_changed

    def _count(self, known: _Topic, row: _Row, traffic: Traffic) -> None:
        if row.traffic is not traffic:
            # The replica was opened anew and counts from zero.
            known.base = tuple(map(sum, zip(known.base, row.counts, strict=True)))
            row.traffic = traffic
        row.counts = _of_traffic(traffic)

    def _write(self, page: Page, topic: TopicMetadata, known: _Topic, has_changed: bool) -> None:
        if has_changed:
            known.texts = tuple(map("".join, zip(*(row.lines for row in known.rows), strict=True)))
            known.sums = tuple(map(sum, zip(*(row.flags for row in known.rows), strict=True)))
        for family, text in zip(PARTITION_FAMILIES, known.texts, strict=True):
            page.lines[family].append(text)
        labels = labels_text(topic=topic.name)
        counts = tuple(map(sum, zip(known.base, *(row.counts for row in known.rows), strict=True)))
        if counts != known.counts or not known.traffic_lines:
            known.counts = counts
            known.traffic_lines = tuple(
                f"{TRAFFIC}{suffix}{labels} {count}\n" for (suffix, _), count in zip(COUNTERS, counts, strict=True)
            )
        for (suffix, _), line in zip(COUNTERS, known.traffic_lines, strict=True):
            page.lines[TRAFFIC + suffix].append(line)
        page.put("kafka_topic_partitions", len(topic.partitions), labels)

    def _forget_deleted(self) -> None:
        for topic_id in [known for known in self._topics if self._metadata.topic_by_id(known) is None]:
            counts = self._topics.pop(topic_id).counts
            self._gone = [total + count for total, count in zip(self._gone, counts, strict=True)]


def _size_of(partition: Partition) -> int:
    log = partition.log
    return log.active.size if len(log.segments) == 1 else log.size_bytes


def _lines(labels: str, state: PartitionMetadata, partition: Partition | None) -> tuple[str, ...]:
    """In the order of `PARTITION_FAMILIES`."""
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
        return shared + ("",) * (len(PARTITION_FAMILIES) - _SHARED)
    log, min_insync = partition.log, partition.min_insync
    return (
        *shared,
        f"kafka_topic_partition_current_offset{labels}{partition.high_watermark}\n",
        f"kafka_topic_partition_oldest_offset{labels}{log.log_start_offset}\n",
        f"kafka_cluster_partition_underminisr{labels}{int(partition.is_leading and in_sync < min_insync)}\n",
        f"kafka_cluster_partition_atminisr{labels}{int(partition.is_leading and in_sync == min_insync)}\n",
        f"kafka_log_log_size{labels}{_size_of(partition)}\n",
        f"kafka_log_log_logstartoffset{labels}{log.log_start_offset}\n",
        f"kafka_log_log_logendoffset{labels}{log.log_end_offset}\n",
    )


def _flags(state: PartitionMetadata, partition: Partition | None) -> tuple[int, ...]:
    """In the order of `SUMS`."""
    is_elsewhere = int(state.leader < 0), int(not state.replicas or state.leader != state.replicas[0])
    if partition is None:
        return 0, 0, 0, 0, *is_elsewhere
    if not partition.is_leading:
        return 0, 1, 0, 0, *is_elsewhere
    in_sync = len(partition.isr_state.members)
    return 1, 1, int(in_sync < len(state.replicas)), int(in_sync < partition.min_insync), *is_elsewhere
