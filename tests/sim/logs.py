"""Judges the logs at the end of a run: markers, epochs, and the state changes of each transactional id."""

from __future__ import annotations

from ottla.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.machine.contract import LogRecord
from ottla.replication.partition import Partition
from ottla.transactions.metadata import Marker
from ottla.transactions.records import read_record
from ottla.transactions.states import ALLOWED, EMPTY, PREPARE_COMMIT, PREPARED, TransactionState
from ottla.wire.batch_header import BatchHeader, read_batch_header
from ottla.wire.records import iter_batches, read_control_record, read_records


class Story:
    """The state of one producer id in one partition: the epoch that writes, and the last marker."""

    def __init__(self) -> None:
        self.last_epoch = -1
        self.open_epoch: int | None = None
        self.last_marker: tuple[int, int] | None = None

    def write(self, where: str, epoch: int) -> None:
        assert epoch >= self.last_epoch, f"{where}: epoch {epoch} after {self.last_epoch} (I26)"
        assert self.open_epoch in (None, epoch), f"{where}: epoch {epoch} writes into the transaction of {self.open_epoch} (I29)"
        self.last_epoch = self.open_epoch = epoch
        self.last_marker = None

    def end(self, where: str, marker: tuple[int, int]) -> None:
        """Notes a marker by its epoch and its coordinator's epoch. Another coordinator may repeat a marker; the same coordinator must not.
        """
        assert marker[0] >= self.last_epoch, f"{where}: a marker of epoch {marker[0]} after {self.last_epoch} (I25)"
        assert marker != self.last_marker, f"{where}: the same marker twice (I25)"
        self.last_epoch, self.last_marker, self.open_epoch = marker[0], marker, None


def judge(partition: Partition) -> None:
    """Judges a log by its contents: records and offsets of transactions, or the states of transactional ids."""
    topic = partition.topic_partition.topic
    if topic in ("t", GROUP_METADATA_TOPIC):
        judge_markers(partition)
    elif topic == TRANSACTION_STATE_TOPIC:
        judge_moves(partition)


def judge_markers(partition: Partition) -> None:
    """I25, I26, I29: checks that each transaction has one marker, after all its records, and that no transaction has two epochs."""
    stories: dict[int, Story] = {}
    for start, batch in batches(partition):
        header: BatchHeader = read_batch_header(batch, 0)
        if header.producer_id < 0:
            continue
        story = stories.setdefault(header.producer_id, Story())
        where = f"{partition.topic_partition}@{start}"
        control = read_control_record(batch) if header.is_control else None
        if control is None:
            story.write(where, header.producer_epoch)
        else:
            story.end(where, (header.producer_epoch, control.coordinator_epoch))


def judge_stable(partition: Partition) -> None:
    """I24: checks the last stable offset against the log. It must be the smaller of the high watermark and the first offset of the oldest
    open transaction. A transaction whose marker may still be lost is open too.
    """
    opened: dict[int, int] = {}
    high_watermark = partition.high_watermark
    for start, batch in batches(partition):
        if start >= high_watermark:
            break
        header: BatchHeader = read_batch_header(batch, 0)
        if header.is_control:
            opened.pop(header.producer_id, None)
        elif header.is_transactional:
            opened.setdefault(header.producer_id, start)
    expected = min([high_watermark, *opened.values()])
    found = partition.last_stable_offset
    assert found == expected, f"{partition.topic_partition}: the last stable offset is {found}, the log says {expected} (I24)"


def open_transactions(partition: Partition) -> dict[int, tuple[int, int]]:
    """Returns the producers that have no marker after their last records, with the epoch and the first offset of these records."""
    opened: dict[int, tuple[int, int]] = {}
    for start, batch in batches(partition):
        header: BatchHeader = read_batch_header(batch, 0)
        if header.is_control:
            opened.pop(header.producer_id, None)
        elif header.is_transactional:
            opened.setdefault(header.producer_id, (header.producer_epoch, start))
    return opened


def why_open(partition: Partition, coordinator: Partition) -> str:
    """Returns which transactions are open in a partition, and their last state in the coordinator's log."""
    states: dict[int, str] = {}
    for _, batch in batches(coordinator):
        for record in read_records(batch):
            decoded = read_record(LogRecord(bytes(record.key or b""), None if record.value is None else bytes(record.value)))
            if decoded is not None and decoded.metadata is not None:
                states[decoded.metadata.producer_id] = decoded.metadata.state.value
    found = (
        f"of {producer_id}/{epoch} from {offset}, whose coordinator has {states.get(producer_id)}, has no marker"
        for producer_id, (epoch, offset) in open_transactions(partition).items()
    )
    return f"{partition.topic_partition}: a transaction hangs (I31): {'; '.join(found)} (I25)"


def judge_moves(partition: Partition) -> None:
    """I27: checks that every record of a transactional id is a transition that the table `ALLOWED` has."""
    states: dict[str, TransactionState] = {}
    for _, batch in batches(partition):
        for record in read_records(batch):
            decoded = read_record(LogRecord(bytes(record.key or b""), None if record.value is None else bytes(record.value)))
            assert decoded is not None, "a record that cannot be decoded"
            transactional_id, metadata = decoded
            if metadata is None:
                states.pop(transactional_id, None)
                continue
            before = states.get(transactional_id, EMPTY)
            assert metadata.state in ALLOWED[before], f"{transactional_id}: {before.value} -> {metadata.state.value} (I27)"
            states[transactional_id] = metadata.state


def judge_decision(partition: Partition, durable_end: int, marker: Marker) -> None:
    """I27: checks that the Prepare record of this marker is committed in the coordinator's log, so that it cannot be lost. A late marker of
    an earlier abort, by a takeover or a timeout, may have the same epoch. As in the partitions, the version of the transaction
    distinguishes it from the end of a transaction by a client of version 1.
    """
    wanted = (marker.producer_id, marker.producer_epoch, marker.transaction_version, marker.is_commit)
    for _, batch in batches(partition, durable_end):
        for record in read_records(batch):
            decoded = read_record(LogRecord(bytes(record.key or b""), None if record.value is None else bytes(record.value)))
            found = decoded.metadata if decoded is not None else None
            if found is not None and found.state in PREPARED:
                decision = (found.producer_id, found.producer_epoch, found.client_transaction_version, found.state is PREPARE_COMMIT)
                assert decision != wanted, f"a marker of {decision[0]}/{decision[1]} before its Prepare is durable (I27)"


def batches(partition: Partition, start_offset: int = 0) -> list[tuple[int, memoryview]]:
    """Yields every batch from an offset on, with its first offset, segment by segment."""
    log, offset = partition.log, max(start_offset, partition.log.log_start_offset)
    found: list[tuple[int, memoryview]] = []
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 30, end_offset=log.log_end_offset)
        assert read is not None, f"{partition.topic_partition}: nothing at {offset}, the end is {log.log_end_offset}"
        data = memoryview(read.read())
        for start, header in iter_batches(data):
            found.append((header.base_offset, data[start : start + header.size_bytes]))
            offset = header.next_offset
    return found
