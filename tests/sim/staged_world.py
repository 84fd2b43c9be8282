"""A world in which most records are staged first, and then attached to their transactions by manifests, while brokers crash as in
`world.py`. The clients of `clients.py` stage their records in chunks and attach them instead of producing them. Some attempts fail after
staging; no reader may ever get their records. A restarted broker has lost the staged chunks and keeps the attached ones, so repeated attach
requests are the most critical. I48 is judged at each refusal, I47 by the history: no record may be missing, duplicated or at another
offset.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from crc32c import crc32c

from ottla.base.config import load
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.handlers.records import attach_records, stage_records
from ottla.replication.attaching import Attached, Attaching, Manifest
from ottla.replication.leader import Leader
from ottla.replication.stages import ChunkToken, Found, PartitionStages
from ottla.wire.messages.attach_records import AttachPartition, AttachRecordsRequest, AttachTopic, StagedChunk
from ottla.wire.messages.stage_records import StagePartition, StageRecordsRequest, StageTopic
from ottla.wire.records import Record, encode_batch
from tests.sim.broker import SimBroker, SimNode
from tests.sim.clients import Producer
from tests.sim.history import Transaction
from tests.sim.process import Steps
from tests.sim.seed_search import catch_seed
from tests.sim.world import World

STAGED = 0.8
"""How many writes are staged; the others are produced, between those that are attached."""
FAILED_ATTEMPTS = 0.3
RETENTION_MS = 4_000
TURNS_MS = (0, 5)
"""The time that attaching has in each turn of the loop: one batch, or all of them."""


class StagedProducer(Producer):
    """A producer whose tasks stage their batches on the leaders; it attaches the manifests of the tasks that did not fail."""

    attempts = 0

    def _produce(self, partition: TopicPartition, values: list[str], sequence: int) -> Steps:
        if self.chance.random() >= STAGED:
            yield from super()._produce(partition, values, sequence)
            return
        history = self.world.history
        transaction = history.writers[values[0]]
        more = [history.new_value(transaction, partition) for _ in range(self.chance.randint(0, 7))]
        self.sequences[partition] += len(more)
        token = random.Random(self.chance.random()).randbytes(16)
        if self.chance.random() < FAILED_ATTEMPTS:
            yield from self._stage(token, partition, self._lost_values(partition))
        manifest = yield from self._stage(token, partition, [*values, *more])
        answer = yield from self._must(*self._attach(token, partition, manifest, sequence))
        base_offset = answer.topics[0].partitions[0].base_offset
        if base_offset >= 0:
            history.promise(values[:1], base_offset)

    def _lost_values(self, partition: TopicPartition) -> list[str]:
        """Returns the values of a task that failed after it had staged them; they belong to a transaction that is never committed."""
        lost: Transaction = self.world.history.begin("failed")
        return [self.world.history.new_value(lost, partition) for _ in range(self.chance.randint(1, 3))]

    def _stage(self, token: bytes, partition: TopicPartition, values: Sequence[str]) -> Steps:
        """Stages the values in chunks of one or more batches, in any order; returns the manifest."""
        self.attempts += 1
        chunks = self._chunks(values)
        manifest = [
            StagedChunk(attempt_id=self.attempts, chunk=number, records=count, length=len(data), crc=crc32c(data))
            for number, (count, data) in enumerate(chunks)
        ]
        for number in self.chance.sample(range(len(chunks)), len(chunks)):
            part = StagePartition(index=partition.partition, chunk=number, records=chunks[number][1])
            yield from self._must(
                stage_records,
                0,
                lambda attempt=self.attempts, part=part: StageRecordsRequest(
                    batch_token=token, attempt_id=attempt, topics=[StageTopic(name="t", partitions=[part])]
                ),
                lambda answer: answer.topics[0].partitions[0].error_code,
                partition,
            )
        return manifest

    def _chunks(self, values: Sequence[str]) -> list[tuple[int, bytes]]:
        """Returns (records, bytes) of each chunk."""
        chunks: list[tuple[int, bytes]] = []
        rest = list(values)
        while rest:
            left, data = len(rest), b""
            for size in self.chance.choices((1, 2), k=self.chance.randint(1, 3)):
                batch, rest = rest[:size], rest[size:]
                data += self._encode(batch) if batch else b""
            chunks.append((left - len(rest), data))
        return chunks

    def _encode(self, values: Sequence[str]) -> bytes:
        now_ms = self.world.clock.wall_ms()
        return bytes(encode_batch([Record(0, now_ms, None, value.encode()) for value in values], is_transactional=True))

    def _attach(
        self, token: bytes, partition: TopicPartition, manifest: list[StagedChunk], sequence: int
    ) -> tuple[Any, int, Callable[[], Any], Callable[[Any], int], TopicPartition]:
        producer_id, epoch = self.identity  # the current identity: a copy that arrives late must not have a later one
        part = AttachPartition(index=partition.partition, base_sequence=sequence, chunks=manifest)

        def body() -> AttachRecordsRequest:
            return AttachRecordsRequest(
                transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, acks=-1, timeout_ms=1_000,
                batch_token=token, topics=[AttachTopic(name="t", partitions=[part])],
            )  # fmt: skip

        return (
            attach_records,
            1 if self.is_v2 else 0,
            body,
            lambda answer: answer.topics[0].partitions[0].error_code,
            partition,
        )


class StagedBroker(SimBroker):
    """A broker whose clients have asked for extensions, and on which staged chunks expire soon."""

    def prepare(self, node: SimNode) -> None:
        super().prepare(node)
        node.stages.turns.piece_ms = self._chance.choice(TURNS_MS)
        node.stages._config = load(assignments=(f"ottla.stage.retention.ms={RETENTION_MS}",))[0]
        arrived = node.listeners.on_arrival

        def arrive(listener: str, local_host: str, peer_host: str) -> None:
            if arrived is not None:
                arrived(listener, local_host, peer_host)
            next(reversed(node.listeners.connections)).info.has_extensions = True

        node.listeners.on_arrival = arrive


class StagedWorld(World):
    """The world with staged producers; its producers without transactions are those of `world.py`."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.brokers = {number: StagedBroker(self, number) for number in self.brokers}
        # Counts that show that a run was useful: attached manifests, manifests that were attached before in part or completely, and
        # refusals.
        self.attached = self.retries = self.refusals = 0

    def run(self) -> None:
        with mock.patch.object(attach_records, "Attaching", self._attaching):
            super().run()

    def make_producer(self, transactional_id: str, group_id: str, is_v2: bool) -> Producer:
        return StagedProducer(self, transactional_id, group_id, is_v2)

    def _attaching(
        self, leader: Leader, manifest: Manifest, *rest: Any, done: Callable[[Attached | ApiError], None], **options: Any
    ) -> Attaching:
        """Checks each outcome."""

        def judged(outcome: Attached | ApiError) -> None:
            if isinstance(outcome, Attached):
                self.attached += 1
                self.retries += outcome.base_offset < 0
            elif outcome.code is ErrorCode.UNKNOWN_STAGE:
                self.refusals += 1
                judge_refusal(leader, manifest, outcome)
            done(outcome)

        return Attaching(leader, manifest, *rest, done=judged, **options)


def judge_refusal(leader: Leader, manifest: Manifest, error: ApiError) -> None:
    count = sum(listed.records for listed in manifest.chunks)
    producers = leader.log.producers
    appended = producers.count_appended(manifest.producer_id, manifest.producer_epoch, manifest.base_sequence, count)
    assert appended < count, f"a retry of what is in the log was refused: {error} (I48)"


# Rules broken on purpose


def skip_manifest_check() -> Any:
    """Staged chunks are attached without comparing them with the manifest."""

    def find(stages: PartitionStages, token: ChunkToken, manifest: Sequence[Any]) -> list[Found]:
        attempts = stages._by_token.get(token, {})
        wanted = [attempts[attempt] for attempt in dict.fromkeys(listed.attempt_id for listed in manifest) if attempt in attempts]
        found = [Found(stage, chunk) for stage in wanted for _, chunk in sorted(stage.chunks.items())]
        if not found:
            raise ApiError(ErrorCode.UNKNOWN_STAGE, "nothing is staged")
        return found

    return mock.patch.object(PartitionStages, "find", find)


def look_up_the_stage_first() -> Any:
    """A retry is answered from the last sequence only if its stage is still there."""
    attach = Attaching._attach

    def look_up_first(attaching: Attaching) -> Iterator[None]:
        stages = attaching._leader.stages
        if stages is None:
            raise ApiError(ErrorCode.UNKNOWN_STAGE, "nothing is staged")
        stages.find(attaching._manifest.token, attaching._manifest.chunks)
        return attach(attaching)

    return mock.patch.object(Attaching, "_attach", look_up_first)


FAULTS: dict[str, Callable[[], Any]] = {fault.__name__: fault for fault in (skip_manifest_check, look_up_the_stage_first)}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with FAULTS[name]():
        yield


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault, and the message; (0, "") if no seed fails."""
    return catch_seed(planted(name), lambda seed: StagedWorld(seed).run(), seeds, first)
