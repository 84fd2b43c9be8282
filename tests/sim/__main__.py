"""`python -m tests.sim [--seed FIRST] [--seeds NUMBER] [KIND] [--faults]`, or SEED=FIRST SEEDS=NUMBER as make gives them. `--seeds 5-20` is
short for the first and the last seed. Kinds: `--share`, `--letters`, `--staged`, `--cluster`, `--groups`, `--members`, `--streams`,
`--shares`, `--deletions`, `--disks`."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.sim import (
    cluster_faults,
    deletion_faults,
    faults,
    group_faults,
    lying_faults,
    membership_faults,
    share_cluster_faults,
    share_faults,
    share_letters,
    staged_world,
    streams_faults,
)
from tests.sim.base_world import Timeline
from tests.sim.cluster_world import ClusterWorld
from tests.sim.deletion_world import DeletionWorld
from tests.sim.group_world import GroupWorld
from tests.sim.lying_world import LyingWorld, RottenWorld
from tests.sim.membership_world import MembershipWorld
from tests.sim.share_cluster import ShareClusterWorld
from tests.sim.share_world import ShareWorld
from tests.sim.streams_world import StreamsWorld
from tests.sim.world import World

FAULT_SEEDS = 300
PROGRESS_SEEDS = 250


class Kind(NamedTuple):
    """A kind of simulated world."""

    make: Callable[[int], Timeline]
    planted: Any
    """The module of its planted faults."""
    about: str


KINDS = {
    "": Kind(World, faults, "transactions of one broker"),
    "share": Kind(ShareWorld, share_faults, "share groups instead of transactions"),
    "letters": Kind(share_letters.LetterWorld, share_letters, "share groups with a dead-letter topic"),
    "staged": Kind(staged_world.StagedWorld, staged_world, "transactions whose records are staged first"),
    "cluster": Kind(ClusterWorld, cluster_faults, "clusters of three to five brokers"),
    "groups": Kind(GroupWorld, group_faults, "consumer groups in clusters"),
    "members": Kind(MembershipWorld, membership_faults, "static members, changes of the protocol, operators who set offsets"),
    "streams": Kind(StreamsWorld, streams_faults, "streams groups in clusters"),
    "shares": Kind(ShareClusterWorld, share_cluster_faults, "share groups in clusters"),
    "deletions": Kind(DeletionWorld, deletion_faults, "clusters in which records are deleted"),
    "disks": Kind(LyingWorld, lying_faults, "clusters in which a disk loses or alters what was synced"),
    "rot": Kind(RottenWorld, lying_faults, "clusters in which sealed segments change on a disk, and are repaired"),
}
"""By their options; the first one has none."""


def run_seeds(kind: str, first: int, number: int) -> int:
    """Runs the seeds. Returns the exit status: 1 after the first seed that fails."""
    option = f"--{kind} " if kind else ""
    totals: Counter[str] = Counter()
    for done, seed in enumerate(range(first, first + number), 1):
        world = KINDS[kind].make(seed)
        try:
            world.run()
        except AssertionError:
            traceback.print_exc()
            print("".join(f"{note}\n" for note in world.notes), end="", file=sys.stderr)
            print(f"seed {seed} failed after {world.events} events: python -m tests.sim {option}--seed {seed} --seeds 1", file=sys.stderr)
            return 1
        totals.update(world.counts())
        if done % PROGRESS_SEEDS == 0:
            print(f"{done} of {number} seeds", file=sys.stderr, flush=True)
    print(f"{number} seeds from {first}: {', '.join(f'{count} {name}' for name, count in totals.items())}, no fault")
    return 0


def show_faults(seeds: int, names: Iterable[str], catch: Callable[[str, int], tuple[int, str]]) -> int:
    """Prints a table of the rules that are broken on purpose, and whether each is noticed. Returns the exit status: 1 if one is not
    noticed.
    """
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
    for name, kind in KINDS.items():
        if name:
            parser.add_argument(f"--{name}", dest="kind", action="store_const", const=name, default="", help=kind.about)
    parser.add_argument("--faults", action="store_true", help="break one rule at a time and say which seed notices it")
    asked = parser.parse_args(words)
    first, dash, last = asked.seeds.partition("-")
    seed, seeds = (int(first), int(last) - int(first) + 1) if dash else (asked.seed, int(first))
    if asked.faults:
        planted = KINDS[asked.kind].planted
        return show_faults(max(seeds, FAULT_SEEDS), planted.FAULTS, planted.catch)
    return run_seeds(asked.kind, seed, seeds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
