"""`python -m tests.sim [--seed FIRST] [--seeds NUMBER] [KIND] [--faults]`, or SEED=FIRST SEEDS=NUMBER as make gives them. `--seeds 5-20` is
short for the first and the last seed. Kinds: `--share`, `--staged`, `--cluster`, `--groups`, `--members`, `--shares`,
`--deletions`, `--disks`."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterable

from tests.sim import (
    cluster_faults,
    deletion_faults,
    faults,
    group_faults,
    lying_faults,
    membership_faults,
    share_cluster_faults,
    share_faults,
    staged_world,
)
from tests.sim.cluster_world import ClusterWorld
from tests.sim.deletion_world import DeletionWorld
from tests.sim.group_world import GroupWorld
from tests.sim.lying_world import LyingWorld, RottenWorld
from tests.sim.membership_world import MembershipWorld
from tests.sim.share_cluster import ShareClusterWorld
from tests.sim.share_world import ShareWorld
from tests.sim.world import World

FAULT_SEEDS = 300
PROGRESS_SEEDS = 250
CLUSTERS: dict[type[ClusterWorld], str] = {
    ClusterWorld: "--cluster",
    GroupWorld: "--groups",
    MembershipWorld: "--members",
    ShareClusterWorld: "--shares",
    DeletionWorld: "--deletions",
    LyingWorld: "--disks",
    RottenWorld: "--rot",
}
"""The worlds of clusters, with their options."""


def run_seeds(first: int, number: int, make: type[World] = World, option: str = "") -> int:
    """The exit status: 1 after the first seed that fails."""
    transactions = crashes = events = 0
    for seed in range(first, first + number):
        world = make(seed)
        try:
            world.run()
        except AssertionError:
            traceback.print_exc()
            print(f"seed {seed} failed after {world.events} events: python -m tests.sim {option}--seed {seed} --seeds 1", file=sys.stderr)
            return 1
        transactions += len(world.history.transactions)
        crashes += world.crashes
        events += world.events
        if (seed - first + 1) % PROGRESS_SEEDS == 0:
            print(f"{seed - first + 1} of {number} seeds", file=sys.stderr, flush=True)
    print(f"{number} seeds from {first}: {transactions} transactions, {crashes} power cuts, {events} events, no fault")
    return 0


def run_share_seeds(first: int, number: int) -> int:
    """The same for share groups."""
    deliveries = crashes = resets = events = 0
    for seed in range(first, first + number):
        world = ShareWorld(seed)
        try:
            world.run()
        except AssertionError:
            traceback.print_exc()
            print(f"seed {seed} failed after {world.events} events: python -m tests.sim --share --seed {seed} --seeds 1", file=sys.stderr)
            return 1
        deliveries += world.history.deliveries
        crashes += world.crashes
        resets += world.resets
        events += world.events
    print(f"{number} seeds from {first}: {deliveries} deliveries, {crashes} power cuts, {resets} resets, {events} events, no fault")
    return 0


def run_cluster_seeds(first: int, number: int, make: type[ClusterWorld] = ClusterWorld) -> int:
    """The same for clusters."""
    option = CLUSTERS[make]
    transactions = crashes = events = changes = 0
    for seed in range(first, first + number):
        world = make(seed)
        try:
            world.run()
        except AssertionError:
            traceback.print_exc()
            print("\n".join(world.notes), file=sys.stderr)
            print(f"seed {seed} failed after {world.events} events: python -m tests.sim {option} --seed {seed} --seeds 1", file=sys.stderr)
            return 1
        transactions += len(world.history.transactions)
        crashes += world.crashes
        events += world.events
        changes += world.checks.store.isr_changes
        if (seed - first + 1) % PROGRESS_SEEDS == 0:
            print(f"{seed - first + 1} of {number} seeds", file=sys.stderr, flush=True)
    found = f"{transactions} transactions, {crashes} crashes, {changes} changes of in-sync sets, {events} events"
    print(f"{number} clusters from {first}: {found}, no fault")
    return 0


def show_faults(seeds: int, names: Iterable[str], catch: Callable[[str, int], tuple[int, str]]) -> int:
    """A table of what is broken on purpose; the exit status is 1 if a fault is not caught."""
    print("| rule that is broken | seeds until it is noticed | by |\n| --- | --- | --- |")
    is_missed = False
    for name in names:
        seed, why = catch(name, seeds)
        is_missed = is_missed or not seed
        print(f"| {name} | {seed or f'not in {seeds}'} | {why} |", flush=True)
    return int(is_missed)


def main(arguments: list[str]) -> int:
    words = [f"--{word.lower()}" if word.partition("=")[0] in ("SEED", "SEEDS") else word for word in arguments]
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", default="1", help="how many, or the first and the last with a dash between")
    parser.add_argument("--share", action="store_true", help="share groups instead of transactions")
    parser.add_argument("--staged", action="store_true", help="transactions whose records are staged first")
    parser.add_argument("--cluster", action="store_true", help="clusters of three to five brokers")
    parser.add_argument("--groups", action="store_true", help="consumer groups in clusters")
    parser.add_argument("--members", action="store_true", help="static members, changes of the protocol, operators who set offsets")
    parser.add_argument("--shares", action="store_true", help="share groups in clusters")
    parser.add_argument("--deletions", action="store_true", help="clusters in which records are deleted")
    parser.add_argument("--disks", action="store_true", help="clusters in which a disk loses or alters what was synced")
    parser.add_argument("--rot", action="store_true", help="clusters in which sealed segments change on a disk, and are repaired")
    parser.add_argument("--faults", action="store_true", help="break one rule at a time and say which seed notices it")
    asked = parser.parse_args(words)
    first, dash, last = asked.seeds.partition("-")
    seed, seeds = (int(first), int(last) - int(first) + 1) if dash else (asked.seed, int(first))
    if asked.faults:
        names, catch = planted_of(asked)
        return show_faults(max(seeds, FAULT_SEEDS), names, catch)
    if asked.staged:
        return run_seeds(seed, seeds, staged_world.StagedWorld, "--staged ")
    for make, option in CLUSTERS.items():
        if getattr(asked, option.strip("-")):
            return run_cluster_seeds(seed, seeds, make)
    return (run_share_seeds if asked.share else run_seeds)(seed, seeds)


def planted_of(asked: argparse.Namespace) -> tuple[Iterable[str], Callable[[str, int], tuple[int, str]]]:
    """The faults of the world that was asked for."""
    if asked.share:
        return share_faults.SHARE_FAULTS, share_faults.catch
    if asked.staged:
        return staged_world.FAULTS, staged_world.catch
    if asked.groups:
        return group_faults.FAULTS, group_faults.catch
    if asked.members:
        return membership_faults.FAULTS, membership_faults.catch
    if asked.shares:
        return share_cluster_faults.FAULTS, share_cluster_faults.catch
    if asked.disks:
        return lying_faults.FAULTS, lying_faults.catch
    if asked.deletions:
        return deletion_faults.FAULTS, deletion_faults.catch
    return (cluster_faults.FAULTS, cluster_faults.catch) if asked.cluster else (faults.FAULTS, faults.catch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
