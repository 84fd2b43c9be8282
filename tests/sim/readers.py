"""Consumers with `read_committed`: they fetch over the network, wait in delayed fetches, and drop transactions that the answer lists as
aborted. A reader continues at its position after crashes of the broker or the network. At the end its values must equal the contents of the
partition from the first offset to its position, without a skipped value (poll-skip) and without a step back (nonmonotonic-poll).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.handlers.records import fetch
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch import PartitionData as Fetched
from ottla.wire.records import CONTROL_ABORT, iter_batches, read_control_record, read_records
from tests.sim.network import Call

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from tests.sim.base_world import ProducerWorld
    from tests.sim.history import History
    from tests.sim.process import Steps

Seen = tuple[int, str]
READ_BYTES = (200, 1 << 20)
WAIT_MS = (0, 150)
PAUSE_MS = (1, 120)


class Reader:
    """One assigned consumer of one partition."""

    def __init__(self, world: ProducerWorld, place: TopicPartition) -> None:
        self.world = world
        self.chance = world.chance
        self.place = place
        self.position = 0
        self.seen: list[Seen] = []

    def run(self) -> Steps:
        while not self.world.is_ending:
            position, wait_ms, size = self.position, self.chance.randint(*WAIT_MS), self.chance.choice(READ_BYTES)
            answer = yield Call(fetch, 11, lambda: self._request(position, wait_ms, size), self.place)  # noqa: B023
            if answer is not None and answer.responses and not answer.responses[0].partitions[0].error_code:
                self._take(answer.responses[0].partitions[0])
            yield self.chance.randint(*PAUSE_MS)

    def _request(self, position: int, wait_ms: int, size: int) -> FetchRequest:
        wanted = FetchPartition(partition=self.place.partition, fetch_offset=position, partition_max_bytes=size)
        topic = FetchTopic(topic=self.place.topic, partitions=[wanted])
        return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=size, isolation_level=READ_COMMITTED, topics=[topic])

    def _take(self, found: Fetched) -> None:
        aborted = [(entry.producer_id, entry.first_offset) for entry in found.aborted_transactions or ()]
        for offset, value in visible(memoryview(found.records or b""), aborted, self.position):
            assert offset < found.last_stable_offset, f"{self.place}@{offset} above the last stable offset {found.last_stable_offset} (I24)"
            self.seen.append((offset, value))
            self.world.history.read(self.place, offset, value)
        self.position = max(self.position, end_of(memoryview(found.records or b""), self.position))


def visible(data: memoryview, aborted: Iterable[tuple[int, int]], position: int) -> Iterable[Seen]:
    """Returns the records of fetched batches that a consumer passes to the program. `aborted` has producer ids and the first offsets of
    their aborted transactions.
    """
    waiting, hidden = sorted(aborted, key=lambda entry: entry[1]), set[int]()
    for start, header in iter_batches(data):
        batch = data[start : start + header.size_bytes]
        while waiting and waiting[0][1] <= header.last_offset:
            hidden.add(waiting.pop(0)[0])
        if header.is_control:
            control = read_control_record(batch)
            if control is not None and control.kind == CONTROL_ABORT:
                hidden.discard(header.producer_id)
        elif header.producer_id not in hidden:
            for record in read_records(batch):
                if record.offset >= position:
                    yield record.offset, bytes(record.value or b"").decode()


def end_of(data: memoryview, position: int) -> int:
    for _, header in iter_batches(data):
        position = max(position, header.next_offset)
    return position


def read_all(partition: Partition, history: History) -> list[Seen]:
    """Reads everything that a new consumer gets, from the first offset to the last, and notes it in the history."""
    found: list[Seen] = []
    position = 0
    while position < partition.last_stable_offset:
        read = partition.read(position, READ_BYTES[1], isolation=READ_COMMITTED)
        assert read.slice is not None, f"{partition.topic_partition}: nothing at {position}"
        data = memoryview(read.slice.read())
        found += visible(data, read.aborted or (), position)
        position = end_of(data, position)
    for offset, value in found:
        history.read(partition.topic_partition, offset, value)
    return found


def judge(reader: Reader, everything: list[Seen]) -> None:
    """Judges the readers; `everything` is the visible contents of the partition at the end of the run."""
    expected = [seen for seen in everything if seen[0] < reader.position]
    missed = [seen for seen in expected if seen not in reader.seen]
    assert not missed, f"poll-skip: a reader of {reader.place} is at {reader.position} and has not seen {missed[:3]}"
    assert reader.seen == expected, f"nonmonotonic-poll: a reader of {reader.place} got {reader.seen}, there is {expected}"
