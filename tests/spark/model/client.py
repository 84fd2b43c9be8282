"""A fake of the part of `ottla.client` that the relay uses, on the broker in memory: each request may be delayed or repeated, or its answer
may be lost. Like the real client, it repeats a request without an answer, and gives up after some attempts. The schedule decides when a
delayed request arrives, perhaps long after its sender has continued or died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.client import Committed, ConnectError, ErrorCode, KafkaError, OutcomeUnknownError, StagedChunk, TopicPartition
from ottla.wire.batch_header import read_batch_header

if TYPE_CHECKING:
    from tests.spark.model.world import World

T = TypeVar("T")

DELAYED = 0.06
ANSWER_LOST = 0.06
TRIES = 3
PRODUCER_ID = 7


class Group(NamedTuple):
    members: tuple[str, ...] = ()


class ModelClient:
    """A fake of `ottla.client.Client`."""

    def __init__(self, world: World) -> None:
        self.world = world

    def close(self) -> None:
        pass

    def describe_group(self, group: str) -> Group:
        return Group()

    def committed(
        self, group: str, partitions: Iterable[TopicPartition], *, require_stable: bool, timeout_s: float | None = None
    ) -> dict[TopicPartition, Committed]:
        assert require_stable
        broker = self.world.broker
        for _ in range(TRIES):
            self.world.step()
            if not broker.has_pending_offsets:
                return {partition: broker.committed[partition] for partition in partitions if partition in broker.committed}
        raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, group)

    def transaction(self, transactional_id: str, **_: Any) -> ModelTransaction:
        return ModelTransaction(self.world)

    def ask(self, call: Callable[..., T], *arguments: Any) -> T:
        return ask(self.world, call, *arguments)


class ModelTransaction:
    """A fake of `ottla.client.Transaction`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.producer_id = self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._is_touched = False

    def initialize(self, producer_id: int = -1, epoch: int = -1) -> None:
        self._take_over(ask(self.world, self.world.broker.initialize, epoch))

    def _take_over(self, epoch: int) -> None:
        self.producer_id, self.epoch = PRODUCER_ID, epoch
        self._sequences.clear()
        self._is_touched = False

    def begin(self) -> None:
        self._is_touched = False

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        some = list(partitions)
        if some and not self.world.broker.uses_v2:
            self._is_touched = True
            ask(self.world, self.world.broker.add, self.epoch, some)

    def produce(self, batches: Mapping[TopicPartition, Sequence[bytearray]]) -> None:
        self._is_touched = True
        for partition, some in batches.items():
            for batch in some:
                sequence = self._sequences.get(partition, 0)
                self._sequences[partition] = sequence + read_batch_header(batch).record_count
                ask(self.world, self.world.broker.produce, self.epoch, partition, sequence, bytes(batch))

    def attach(self, token: bytes, manifest: Mapping[TopicPartition, Sequence[StagedChunk]]) -> None:
        self._is_touched = True
        for partition, chunks in manifest.items():
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + sum(chunk.records for chunk in chunks)
            ask(self.world, self.world.broker.attach, self.epoch, partition, sequence, token, tuple(chunks))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        self._is_touched = True
        if not self.world.broker.uses_v2:
            ask(self.world, self.world.broker.add, self.epoch, ())
        ask(self.world, self.world.broker.commit_offsets, self.epoch, dict(offsets))

    def commit(self) -> None:
        if not self._is_touched:
            return
        try:
            epoch = ask(self.world, self.world.broker.end, self.epoch)
        except ConnectError as error:
            raise OutcomeUnknownError(str(error)) from None
        if epoch != self.epoch:
            self._take_over(epoch)


def ask(world: World, call: Callable[..., T], *arguments: Any) -> T:
    """Sends a request until it is answered. Raises `ConnectError` after some attempts."""
    for _ in range(TRIES):
        world.step()
        chance = world.random.random()
        if chance < DELAYED:
            world.delayed.append((call, arguments))
            continue
        answer = call(*arguments)
        if chance >= DELAYED + ANSWER_LOST:
            return answer
    raise ConnectError(f"no answer to {call.__name__}")
