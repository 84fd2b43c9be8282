"""Simulated clusters: each rule that is broken on purpose is found, and a seed repeats its run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.cluster_faults import FAULTS, VERDICTS, catch
from tests.sim.cluster_world import ClusterWorld
from tests.sim.seed_search import assert_noticed, run_until

SEEDS_TO_CATCH = 60
FIRST_SEEDS = {
    "watermark_over_shrunk_isr": 1,
    "watermark_without_pending": 5,
    "watermark_below_min_insync": 1,
    "truncate_by_watermark": 10,
    "diverge_to_watermark": 5,
    "isr_without_broker_epoch": 21,
    "write_without_epoch_check": 1,
    "epoch_by_reading": 5,
    "wipe_pending": 2,
    "restarted_in_isr": 5,
    "ack_of_another_term": 172,
    "unknown_is_marked": 102,
    "new_disk_like_old": 23,
    "epoch_without_record": 1,
    "watermark_despite_eligible": 4,
    "join_before_epoch_start": 3,
    "unproved_stays_eligible": 5,
    "move_ends_early": 3,
    "flush_over_a_cut": 43,
    "late_stop_deletes": 15,
    "failed_directory_leads": 6,
    "reopened_goes_on": 3,
}
"""Where to begin with each fault: it saves time, and nothing depends on it."""
BUSY_SEED = 23
"""A world whose brokers end at once and get other disks. Others are tried after it, and nothing depends on where this begins."""


@pytest.mark.parametrize("seed", [5, 6])
def test_a_seed_repeats_its_run(seed: int) -> None:
    """P13: two runs of a seed have the same events, and the same bytes on the network and in the store."""
    worlds = [ClusterWorld(seed), ClusterWorld(seed), ClusterWorld(seed + 100)]
    for world in worlds:
        world.run()
    first, second, other = (world.trace for world in worlds)
    assert first == second != other


def test_the_runs_are_worth_something() -> None:
    """In the runs leaders change, brokers leave ISRs and join again, and committed records are read."""

    def is_enough(worlds: list[ClusterWorld]) -> bool:
        return (
            sum(world.crashes for world in worlds) > 2
            and sum(world.checks.store.isr_changes for world in worlds) > 10
            and sum(len(world.history.seen) > 20 and len(world.nemesis.counts) > 3 for world in worlds) > 2
            and any(len(set(leaders.values())) > 2 for world in worlds for leaders in world.checks.store.leaders.values())
        )

    run_until(ClusterWorld, range(9, 17), is_enough)


def test_hosts_are_lost_and_brokers_restarted_in_turn() -> None:
    """A host is silent for longer than its session timeout, and brokers are restarted one after the other, in addition to the usual faults.
    """
    run_until(
        ClusterWorld, range(12, 36, 6), lambda worlds: any(world.operations.lost and world.operations.restarted > 1 for world in worlds)
    )


def test_coordinators_move_and_disks_are_lost() -> None:
    """Coordinators are moved, reassignments are cancelled, and brokers start with an empty disk."""
    run_until(ClusterWorld, range(7, 151, 9), lambda worlds: all(sum(counts) > 1 for counts in zip(*map(moves, worlds), strict=True)))


def test_all_brokers_end_at_once() -> None:
    """All brokers are killed or lose their power at once, while transactions lack markers; in some runs a disk is lost too."""

    def is_enough(worlds: list[ClusterWorld]) -> bool:
        return sum(world.operations.darkened for world in worlds) > 3 and sum(world.operations.replaced for world in worlds) > 0

    run_until(ClusterWorld, (BUSY_SEED, *range(3, 153, 5)), is_enough)


def moves(world: ClusterWorld) -> tuple[int, int, int]:
    return world.operations.moved, world.operations.cancelled, world.operations.wiped


def test_a_broker_that_learns_late_of_its_election_is_not_accused() -> None:
    """The checks do not blame a leader that learns late of its election: the store then has a newer leader epoch, whose leader may have
    committed more.
    """
    world = ClusterWorld(1)
    world.run()
    led = next(found for key in world.keys if (found := world.leader_of(key)) is not None)
    assert led.leader is not None
    key, checks = led.topic_partition, world.checks
    checks.ledgers[led.topic_id, key.partition].end = led.log.log_end_offset + 1
    with pytest.raises(AssertionError, match=r"is committed \(I14\)"):
        checks._check_first(led, "here")
    checks.store.states[key] = replace(checks.store.states[key], leader_epoch=led.leader.epoch + 1)
    checks._check_first(led, "here")


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """A run with the fault fails, with the verdict about this rule."""
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH, VERDICTS[name])
