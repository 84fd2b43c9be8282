"""Runs schedules of the model: Spark drivers execute the relay's real code against a broker in memory, in an order that a seed decides.
Every driver is a thread; only one runs at a time, from one request to the next. At each step the schedule may continue any driver, deliver
a delayed request, time out a transaction, start another driver, or kill one. The schedules therefore include crashes at every step, drivers
that were given up and continue later, and late duplicates of every request.

A run is good when the sink has, for each batch, the whole output of one execution and nothing else.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ottla.client import ConnectError, StagedChunk, TopicPartition
from ottla.spark.decision import BatchRange
from ottla.spark.errors import OffsetConflictError, PipelineError
from ottla.spark.output_digest import DigestPart
from ottla.spark.relay import Relay, Target
from ottla.spark.spool import SpoolWriter, StagedOutput, StagedPart, TaskOutput
from ottla.wire.checksum import crc32c
from tests.spark.encoded import encode
from tests.spark.model.broker import COMMITTED, OPEN, ModelBroker
from tests.spark.model.client import ModelClient, ask

STEPS_MAX = 8_000
DRIVERS_MAX = 6
DELIVERED, TIMED_OUT, STARTED = 0.04, 0.005, 0.02
STAGES_LOST = 0.004
LOSER, NO_ROOM = 0.2, 0.2
"""How often an attempt of a task is run again, and how often a broker has no room for the last chunk of one."""

LOSER_TAKEN = "a loser's manifest taken"
"""A planted fault: the driver takes the message of an attempt that lost beside that of the winner."""

KILLED = 0.5
"""How often the driver before is killed when another is started; else both run."""

A, B, NEW = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("in", 2)
SINK = [TopicPartition("out", 0), TopicPartition("out", 1)]

PLAN = [
    BatchRange({A: 0, B: 0}, {A: 0, B: 0}),
    BatchRange({A: 0, B: 0}, {A: 3, B: 0}),
    BatchRange({A: 3, B: 0}, {A: 3, B: 0}),
    BatchRange({A: 3, B: 0}, {A: 5, B: 2, NEW: 4}),
    BatchRange({A: 5, B: 2, NEW: 4}, {A: 5, B: 2, NEW: 4}),
    BatchRange({A: 5, B: 2, NEW: 4}, {A: 9, B: 2, NEW: 4}),
]
"""The batches of the query: every second one moves no offset, and one brings a new partition."""

PLAN_OF_TWO_SOURCES = [
    BatchRange({A: 0}, {A: 0}),
    BatchRange({A: 0}, {A: 3}, apart=("", "one ahead")),
    BatchRange({A: 3}, {A: 3}, apart=("one ahead", "farther ahead")),
    BatchRange({A: 3}, {A: 6}, apart=("farther ahead", "")),
    BatchRange({A: 6}, {A: 7}),
]
"""Two sources that read one partition: they stand apart for a while, and once only the faster moves."""


class KilledError(BaseException):
    """Ends a driver's thread like kill -9: no code catches it."""


class Driver(threading.Thread):
    """One driver process: it runs the batches after the last one in Spark's commit log, until all are done or one fails."""

    def __init__(self, world: World, relay: Relay) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.relay = relay
        self.may_run = threading.Semaphore(0)
        self.is_killed = False
        self.is_over = False
        self.start()

    def run(self) -> None:
        self.may_run.acquire()
        try:
            self._drive()
        except (KilledError, PipelineError):
            pass
        except BaseException as error:
            self.world.failure = error
        finally:
            self.is_over = True
            self.world.has_stepped.release()

    def _drive(self) -> None:
        world, batch_id = self.world, self.world.logged
        while batch_id < len(world.plan):
            world.step()
            try:
                outcome = self.relay.commit(world.execute(batch_id), batch_id=batch_id, query_id="q", batch_range=world.plan[batch_id])
            except PipelineError as error:
                world.ends[type(error).__name__] += 1
                if isinstance(error, OffsetConflictError) and world.logged <= batch_id and not world.is_past(batch_id):
                    world.has_false_alarm = True
                raise
            world.ends[f"{'sent' if outcome.is_committed_now else 'skipped'}{' again' if outcome.tries > 1 else ''}"] += 1
            world.step()
            batch_id += 1
            world.logged = max(world.logged, batch_id)


class World:
    """One schedule. `make_relay` makes the relay of a driver, from the arguments of `Relay`."""

    def __init__(
        self,
        seed: int,
        *,
        uses_v2: bool,
        is_verifying: bool = True,
        make_relay: Callable[..., Relay] = Relay,
        zombies: float = 1 - KILLED,
        is_staged: bool = False,
        faults: frozenset[str] = frozenset(),
        plan: Sequence[BatchRange] = PLAN,
    ) -> None:
        self.plan = plan
        self.random = random.Random(seed)
        self.broker = ModelBroker(uses_v2=uses_v2, is_verifying=is_verifying, faults=faults)
        self.logged = 0
        self.delayed: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.failure: BaseException | None = None
        self.has_false_alarm = False
        self.ends: Counter[str] = Counter()
        self.has_stepped = threading.Semaphore(0)
        self._make_relay = make_relay
        self._zombies = zombies
        self._drivers: list[Driver] = []
        self._running: Driver | None = None
        self._started = 0
        self._executions = 0
        self._attempts = 0
        self._is_staged = is_staged
        self._takes_losers = LOSER_TAKEN in faults
        self._outputs: dict[int, dict[int, Mapping[TopicPartition, list[bytes]]]] = defaultdict(dict)
        self._steps = 0

    # Called by drivers

    def step(self) -> None:
        """Suspends the running driver until the schedule continues it."""
        driver = self._running
        assert driver is not None
        self.has_stepped.release()
        driver.may_run.acquire()
        if driver.is_killed:
            raise KilledError

    def execute(self, batch_id: int) -> list[TaskOutput]:
        """Runs a batch. Each execution of a batch has different rows, and a different number of rows."""
        self._executions += 1
        output: dict[TopicPartition, list[bytes]] = {}
        for partition in SINK:
            count = self.random.randrange(1, 5)
            output[partition] = [bytes(encode(b"%d/%d/%d" % (batch_id, self._executions, number))) for number in range(count)]
        self._outputs[batch_id][self._executions] = output
        if self._is_staged:
            return self._run_staged(output)
        return [self._relayed(partition, batches) for partition, batches in output.items()]

    def _relayed(self, partition: TopicPartition, batches: list[bytes]) -> TaskOutput:
        writer = SpoolWriter(f"{partition.partition}-{self._executions}", None)
        for batch in batches:
            writer.append(partition, batch, 1)
        return writer.finish()

    def _run_staged(self, output: Mapping[TopicPartition, list[bytes]]) -> list[TaskOutput]:
        """Runs tasks that stage their output. Some run twice, the first attempt with other rows, and one may be refused its last chunk
        because of the quota.
        """
        token = b"%016d" % self._executions
        tasks: list[TaskOutput] = []
        for partition, batches in output.items():
            if self.random.random() < LOSER:
                loser = self._upload(token, partition, [bytes(encode(b"loser/%d/%d" % (self._executions, number))) for number in range(3)])
                tasks += [loser] if loser is not None and self._takes_losers else []
            is_short = self.random.random() < NO_ROOM
            staged = None
            while staged is None:
                staged = self._upload(token, partition, batches[:-1] if is_short else batches)
            rest = self._relayed(partition, batches[-1:] if is_short else [])
            tasks.append(replace(rest, rows=len(batches), staged=staged.staged if staged.rows else None))
        return tasks

    def _upload(self, token: bytes, partition: TopicPartition, batches: list[bytes]) -> TaskOutput | None:
        """Runs one attempt of a task; returns None if it fails."""
        self._attempts += 1
        chunks, digest = [], DigestPart()
        try:
            for number, data in enumerate(batches):
                ask(self, self.broker.stage, token, self._attempts, partition, number, data)
                chunks.append(StagedChunk(self._attempts, number, 1, len(data), crc32c(data)))
                digest = digest.add(data)
        except ConnectError:
            return None
        size = sum(map(len, batches))
        staged = StagedOutput(token, (StagedPart(partition, tuple(chunks), digest),), size)
        return TaskOutput("task", (), b"", len(batches), size, staged=staged)

    def is_past(self, batch_id: int) -> bool:
        """Whether another driver has committed a batch after this one."""
        texts = [one.metadata for one in self.broker.committed.values()]
        return any(f'"b":{later},' in text for text in texts for later in range(batch_id, len(self.plan)))

    # The schedule

    def run(self) -> str:
        """Runs the schedule; returns "good", or what is wrong."""
        try:
            self._start_driver()
            while self._steps < STEPS_MAX and not (self._is_done and not self.delayed):
                self._steps += 1
                self._advance()
                if self.failure is not None:
                    raise self.failure
            return self._verdict() if self._is_done else "unfinished"
        finally:
            for driver in list(self._drivers):
                self._kill(driver)

    @property
    def _is_done(self) -> bool:
        return self.logged == len(self.plan)

    def _advance(self) -> None:
        chance = self.random.random()
        if self.delayed and (chance < DELIVERED or (self._is_done and not self._drivers)):
            self._deliver()
        elif chance < DELIVERED + TIMED_OUT:
            self.broker.time_out()
        elif self._is_staged and self.random.random() < STAGES_LOST:
            self.broker.lose_stages()
        elif chance < DELIVERED + TIMED_OUT + STARTED and self._started < DRIVERS_MAX and not self._is_done:
            if self._drivers and self.random.random() >= self._zombies:
                self._kill(self.random.choice(self._drivers))
            self._start_driver()
        elif self._drivers:
            self._resume(self.random.choice(self._drivers))
        elif not self._is_done:
            self._start_driver()

    def _deliver(self) -> None:
        call, arguments = self.delayed.pop(self.random.randrange(len(self.delayed)))
        try:
            call(*arguments)
        except Exception:
            pass  # it was refused, but no driver waits for the answer

    def _start_driver(self) -> None:
        self._started += 1
        relay = self._make_relay(
            Target("model", group="g", retry_s=200.0), connect=self._connect, now=lambda: float(self._steps), pause=lambda _: self.step()
        )
        self._drivers.append(Driver(self, relay))

    def _connect(self, *_: Any, **__: Any) -> ModelClient:
        self.step()
        return ModelClient(self)

    def _resume(self, driver: Driver) -> None:
        self._running = driver
        driver.may_run.release()
        self.has_stepped.acquire()
        if driver.is_over:
            driver.join()
            self._drivers.remove(driver)

    def _kill(self, driver: Driver) -> None:
        driver.is_killed = True
        self._resume(driver)
        if not driver.is_over:  # it has not begun yet
            self._resume(driver)

    def _verdict(self) -> str:
        if self.has_false_alarm:
            return "a driver was stopped by a conflict that is none"
        self.broker.initialize(-1)
        for partition in SINK:
            log = self.broker.partition(partition).log
            if any(stored.state == OPEN for stored in log):
                return f"{partition} has a transaction that hangs"
            found = [stored.data for stored in log if stored.state == COMMITTED]
            if not self._is_right(partition, found):
                return f"{partition} is not the output of one execution a batch"
        ends = {partition: one.offset for partition, one in self.broker.committed.items()}
        return "good" if ends == self.plan[-1].end else "the offsets are not at the end"

    def _is_right(self, partition: TopicPartition, found: list[bytes]) -> bool:
        """Whether the log has the output of exactly one execution of each batch, in the order of batches."""
        for batch_id in range(len(self.plan)):
            for output in self._outputs[batch_id].values():
                wanted = output[partition]
                if found[: len(wanted)] == wanted:
                    found = found[len(wanted) :]
                    break
            else:
                return False
        return not found
