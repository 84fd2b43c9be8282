"""Runs a cluster in which the oldest records of a topic are deleted while new ones are written and replicas lag (DeleteRecords, KIP-107).
It checks that the current leader's start offset is never below an answered deletion, after every change of leaders; that no replica's start
offset is above the highest requested deletion; and that at the end all acknowledged records above it are still there, at their offsets.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.handlers.records import delete_records
from ottla.replication.partition import Partition
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.records import iter_batches, read_records
from tests.sim.clients import GiveUp
from tests.sim.cluster_broker import ClusterBroker
from tests.sim.cluster_clients import ClusterPlainProducer
from tests.sim.cluster_world import TOPICS, ClusterWorld
from tests.sim.network import Call
from tests.sim.process import Process, Steps

DELETED = TopicPartition("d", 0)
TIMEOUT_MS = 1_500
PAUSE_MS = (50, 700)
ALL_KILLED = 0.1
"""How often every process is killed right after a deletion was answered: then only what was noted on the disks is left of it."""


class DeletionWorld(ClusterWorld):
    """See above."""

    topics = {**TOPICS, DELETED.topic: 1}
    is_swarm = False

    def __init__(self, seed: int, chaos_ms: int = 8_000, *, broker_count: int | None = None) -> None:
        super().__init__(seed, chaos_ms, broker_count=broker_count)
        self.moved_keys = [*self.moved_keys, DELETED]
        self.usurped_keys = [*self.usurped_keys, DELETED, DELETED]
        self.acknowledged: dict[int, str] = {}
        """The values of the topic that were acknowledged, by offset."""
        self.asked = self.answered = 0
        """The highest offsets below which records were to be deleted, and are said to be."""
        self.deletions = 0

    def _start_clients(self) -> None:
        super()._start_clients()
        producer, deleter = DeletedProducer(self), Deleter(self)
        self._start_client(producer.run())
        self.start_process(Process(self, deleter.run(), lambda _value: None, TIMEOUT_MS + 200))

    def _check(self) -> None:
        touched = list(self.touched)
        super()._check()
        for number in touched:
            self._check_starts(self.brokers[number])

    def _check_starts(self, broker: ClusterBroker) -> None:
        partition = broker.partitions.get(DELETED) if broker.is_up else None
        if partition is None or not partition.is_online:
            return
        start, where = partition.log.log_start_offset, f"{DELETED} on broker {broker.broker_id}"
        assert start <= self.asked, f"{where}: begins at {start}, deletions were asked for up to {self.asked} (I7)"
        state, leader = self.checks.store.states.get(DELETED), partition.leader
        if leader is not None and state is not None and (state.leader, state.leader_epoch) == (broker.broker_id, leader.epoch):
            assert start >= self.answered, f"{where}: leads and begins at {start}, up to {self.answered} records are deleted (I7)"

    def _why_not_whole(self) -> str:
        why, leader = super()._why_not_whole(), self.leader_of(DELETED)
        if why or leader is None:
            return why
        starts = {number: self.brokers[number].partitions[DELETED].log.log_start_offset for number in self.checks.store.replicas[DELETED]}
        # A former leader may have a higher start offset if its deletion was not answered.
        return "" if min(starts.values()) == leader.log.log_start_offset else f"{DELETED}: the replicas begin at {starts} (I45)"

    def _judge_logs(self) -> None:
        super()._judge_logs()
        leader = self.leader_of(DELETED)
        assert leader is not None
        found, start = values_of(leader), leader.log.log_start_offset
        for offset, value in self.acknowledged.items():
            there = found.get(offset)
            assert offset < start or there == value, f"{DELETED}: {there!r} at {offset}, acknowledged was {value!r} (I14)"


def values_of(partition: Partition) -> dict[int, str]:
    """Returns the values of all records by offset, from the batch that contains the log start offset."""
    log, found = partition.log, {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        assert read is not None
        data = memoryview(read.read())
        for position, header in iter_batches(data):
            for record in read_records(data[position : position + header.size_bytes]):
                found[record.offset] = bytes(record.value or b"").decode()
            offset = header.next_offset
    return found


class DeletedProducer(ClusterPlainProducer):
    """An idempotent producer with acks=all, whose records are deleted after a while."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._made = 0

    def _write(self) -> Steps:
        values = [f"{self._made + number}" for number in range(self.chance.randint(1, 4))]
        self._made += len(values)
        sequence = self.sequences.get(DELETED, 0)
        self.sequences[DELETED] = sequence + len(values)
        answer = yield from self._must(*self._batch(DELETED, values, sequence))
        base = answer.responses[0].partition_responses[0].base_offset
        self.world.acknowledged.update({base + number: value for number, value in enumerate(values) if base >= 0})


class Deleter:
    """Repeatedly deletes acknowledged records up to a random offset."""

    def __init__(self, world: DeletionWorld) -> None:
        self.world = world
        self.chance = world.chance

    def run(self) -> Steps:
        while not self.world.is_ending:
            yield self.chance.randint(*PAUSE_MS)
            try:
                yield from self._delete()
            except GiveUp:
                continue

    def _delete(self) -> Steps:
        world = self.world
        end = max(world.acknowledged, default=-1) + 1
        if end <= world.asked:
            raise GiveUp
        world.asked = offset = self.chance.randint(world.asked + 1, end)
        topic = DeleteRecordsTopic(name=DELETED.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        answer = yield Call(
            delete_records, 2, lambda: DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), DELETED, TIMEOUT_MS + 200
        )
        if answer is None:
            raise GiveUp
        result = answer.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            assert result.low_watermark >= offset, f"{DELETED}: deleted up to {result.low_watermark}, asked was {offset} (I7)"
            world.answered = max(world.answered, result.low_watermark)
            world.deletions += 1
            if self.chance.random() < ALL_KILLED and not world.is_ending:
                self._kill_all()

    def _kill_all(self) -> None:
        for number, broker in self.world.brokers.items():
            if broker.is_up:
                self.world.note("kill", number)
                self.world.crashes += 1
                broker.kill()
