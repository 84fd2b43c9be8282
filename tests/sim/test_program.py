"""`python -m tests.sim`: its options and reports. Some seeds of each kind of world are run, and none may fail."""

from __future__ import annotations

import re

import pytest

from tests.sim.__main__ import KINDS, main, run_seeds
from tests.sim.faults import planted
from tests.sim.world import World

SEEDS = {
    "": [range(1, 17)],
    "share": [range(1, 9)],
    "staged": [range(1, 9)],
    "cluster": [range(2, 5), range(8, 9), range(13, 16), range(17, 23), range(24, 29)],
    "groups": [range(3, 5)],
    "members": [range(3, 9)],
    "disks": [range(1, 7)],
}
"""A sample; `make night` runs thousands. The other tests of this folder run further seeds without a fault: ten of clusters, four each of
disks, deletions and share groups in clusters, two each of groups and members.
"""
PIECE = 4
"""Seeds of one test, so that the tests of a kind can run side by side."""
PIECES = [
    (kind, first, min(PIECE, seeds.stop - first))
    for kind, samples in SEEDS.items()
    for seeds in samples
    for first in range(seeds.start, seeds.stop, PIECE)
]


@pytest.mark.parametrize(("kind", "first", "number"), PIECES)
def test_i47_i48_what_is_right_has_no_fault(kind: str, first: int, number: int) -> None:
    assert run_seeds(kind, first, number) == 0


class QuietWorld(World):
    """A world without events."""

    def run(self) -> None:
        self.events = self.seed


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_option(kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(KINDS, kind, KINDS[kind]._replace(make=QuietWorld))
    for words in (["SEED=5", "SEEDS=2"], ["--seed", "5", "--seeds", "2"], ["--seeds", "5-6"]):
        assert main([*([f"--{kind}"] if kind else []), *words]) == 0
        assert capsys.readouterr().out == "2 seeds from 5: 0 transactions, 0 crashes, 11 events, no fault\n"


def test_a_failure_names_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with planted("forget_last_stable_offset"):
        assert main(["SEED=5", "SEEDS=200"]) == 1
    assert re.search(r"python -m tests.sim --seed \d+ --seeds 1\n", capsys.readouterr().err)
