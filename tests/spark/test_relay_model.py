"""The relay's real code is correct under random schedules of crashes, lost answers, late duplicates and several drivers, and the schedules
find planted faults.

Seeded: a failure names its seed. `OTTLA_RELAY_SCHEDULES` sets the number of schedules for each kind of broker.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from ottla.client import Client, Committed, FencedError, TopicPartition, Transaction
from ottla.spark import decision
from ottla.spark.decision import PlannedBatch, is_committed
from ottla.spark.relay import CommitOutcome, Relay
from ottla.spark.spool import TaskOutput
from tests.spark.model.broker import ANY_EPOCH, NO_MANIFEST
from tests.spark.model.world import LOSER_TAKEN, PLAN_OF_TWO_SOURCES, World

SCHEDULES = int(os.environ.get("OTTLA_RELAY_SCHEDULES", "150"))
FIND_WITHIN = 3_000


@pytest.mark.parametrize(
    ("uses_v2", "is_verifying"), [(False, True), (True, True), (False, False)], ids=["first-protocol", "second-protocol", "no-verification"]
)
def test_each_batch_takes_effect_once_under_any_schedule(uses_v2: bool, is_verifying: bool) -> None:
    for seed in range(SCHEDULES):
        verdict = World(seed, uses_v2=uses_v2, is_verifying=is_verifying).run()
        assert verdict == "good", f"seed {seed}: {verdict}"


@pytest.mark.parametrize("uses_v2", [False, True], ids=["first-protocol", "second-protocol"])
def test_batches_of_two_sources_that_stand_apart_take_effect_once_under_any_schedule(uses_v2: bool) -> None:
    for seed in range(SCHEDULES // 2):
        verdict = World(seed, uses_v2=uses_v2, plan=PLAN_OF_TWO_SOURCES).run()
        assert verdict == "good", f"seed {seed}: {verdict}"


@pytest.mark.parametrize("uses_v2", [False, True], ids=["first-protocol", "second-protocol"])
def test_staged_output_takes_effect_once_under_any_schedule(uses_v2: bool) -> None:
    for seed in range(SCHEDULES // 2):
        verdict = World(seed, uses_v2=uses_v2, is_staged=True).run()
        assert verdict == "good", f"seed {seed}: {verdict}"


def test_the_schedules_lose_stages_between_upload_and_attach() -> None:
    ends: Counter[str] = Counter()
    for seed in range(80):
        world = World(seed, uses_v2=seed % 2 == 0, is_staged=True)
        world.run()
        ends += world.ends
    assert {"sent", "sent again", "skipped", "SpoolError"} <= ends.keys(), ends


@pytest.mark.parametrize("fault", [NO_MANIFEST, ANY_EPOCH, LOSER_TAKEN])
def test_a_planted_fault_of_staging_shows(fault: str) -> None:
    verdicts = (World(seed, uses_v2=False, is_staged=True, faults=frozenset([fault]), zombies=0.8).run() for seed in range(FIND_WITHIN))
    assert "not the output of one execution" in next(verdict for verdict in verdicts if verdict != "good")


def test_the_schedules_reach_every_way_in_which_a_batch_may_end() -> None:
    ends: Counter[str] = Counter()
    for seed in range(120):
        world = World(seed, uses_v2=seed % 2 == 0, zombies=0.8)
        world.run()
        ends += world.ends
    wanted = {"sent", "sent again", "skipped", "skipped again", "FencedDriverError"}
    assert wanted <= ends.keys(), ends


def test_a_seed_repeats_its_schedule() -> None:
    worlds = [World(5, uses_v2=False) for _ in range(2)]
    assert [world.run() for world in worlds] == ["good", "good"]
    assert worlds[0]._steps == worlds[1]._steps
    assert worlds[0].broker.partitions == worlds[1].broker.partitions


class InitializesOnce(Relay):
    """Fault: keeps its epoch from batch to batch, as ordinary producers do."""

    _kept: Transaction | None = None

    def _initialize(self, client: Client, batch: PlannedBatch, outputs: Sequence[TaskOutput]) -> Transaction:
        if self._kept is None or self._identity is None or self._identity.batch_id == batch.batch_id:
            self._kept = super()._initialize(client, batch, outputs)
        self._keep(self._kept, batch)
        return self._kept


class FetchesFirst(Relay):
    """Fault: reads the committed offsets before InitProducerId instead of after it."""

    def _try(self, batch: PlannedBatch, outputs: Sequence[TaskOutput]) -> CommitOutcome:
        client = self._open_client(batch.group)
        committed = client.committed(batch.group, batch.range.end, require_stable=True)
        transaction = self._initialize(client, batch, outputs)
        if is_committed(batch, committed):
            return CommitOutcome(False, 0, 0)
        return self._send(transaction, outputs, lambda digest: self._commit_offsets(transaction, batch, digest))


class TakesOverAgain(Relay):
    """Fault: initializes again when it is fenced."""

    def _repeat(self, attempt: Callable[[], CommitOutcome], name: str) -> CommitOutcome:
        def stubborn() -> CommitOutcome:
            while True:
                try:
                    return attempt()
                except FencedError:
                    self._forget()

        return super()._repeat(stubborn, name)


def offsets_alone(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed]) -> bool:
    """Fault: treats a batch as committed if the offsets are its end, although the batch may not have moved them."""
    found = {partition: one.offset for partition, one in committed.items()}
    return found == dict(batch.range.end) or is_committed(batch, committed)


def nothing_moved_is_sent(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed]) -> bool:
    """Fault: sends every batch that moves no offset."""
    return batch.range.start != batch.range.end and is_committed(batch, committed)


def first_bad(seeds: int, uses_v2: bool, make_relay: Callable[..., Relay] = Relay) -> str | None:
    """Returns the first result of the schedules that is not "good"."""
    for seed in range(seeds):
        verdict = World(seed, uses_v2=uses_v2, make_relay=make_relay, zombies=0.8).run()
        if verdict != "good":
            return verdict
    return None


@pytest.mark.parametrize(
    ("planted", "uses_v2", "verdict"),
    [
        (InitializesOnce, False, "not the output of one execution"),
        (FetchesFirst, False, "not the output of one execution"),
        (FetchesFirst, True, "not the output of one execution"),
    ],
)
def test_a_planted_fault_in_the_order_of_requests_shows(planted: type[Relay], uses_v2: bool, verdict: str) -> None:
    assert verdict in (first_bad(FIND_WITHIN, uses_v2, planted) or "nothing found")


@pytest.mark.parametrize("planted", [offsets_alone, nothing_moved_is_sent])
def test_a_planted_fault_in_the_decision_shows(
    planted: Callable[[PlannedBatch, Mapping[TopicPartition, Committed]], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision, "is_committed", planted)
    assert "not the output of one execution" in (first_bad(100, uses_v2=False) or "nothing found")


def test_a_fenced_driver_that_takes_over_again_may_fence_the_other_for_ever() -> None:
    usual = max(_initializations(seed, Relay) for seed in range(5))
    assert max(_initializations(seed, TakesOverAgain) for seed in range(5)) > 3 * usual


def _initializations(seed: int, make_relay: Callable[..., Relay]) -> int:
    world = World(seed, uses_v2=False, make_relay=make_relay, zombies=1.0)
    world.run()
    return world.broker.initializations
