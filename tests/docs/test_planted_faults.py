"""The tables of docs/invariants.md about the simulation: planted faults with their verdicts and seeds, and the generator's switches."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.docs.pages import DOCS
from tests.sim import cluster_faults, streams_faults, test_cluster, test_streams
from tests.sim.cluster_swarm import FACTORS, SWITCHES

ROW = re.compile(r"^\| [^|]+ \| `(\w+)` \| ([^|]+) \| (\d+) \|$", re.M)
SWITCH = re.compile(r"^\| `(\w+)` \| (\d+) %", re.M)
CITED = re.compile(r"\bI\d+\b|lost-write")


def rows(title: str) -> dict[str, tuple[set[str], int]]:
    """The verdicts and the seed of each fault."""
    section = (DOCS / "invariants.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return {name: (set(CITED.findall(verdicts)), int(seed)) for name, verdicts, seed in ROW.findall(section)}


@pytest.mark.parametrize(
    ("title", "planted", "seeds"),
    [
        ("Planted faults", cluster_faults, test_cluster.FIRST_SEEDS),
        ("Planted faults of streams groups", streams_faults, test_streams.FIRST_SEEDS),
    ],
)
def test_every_planted_fault_has_a_row_with_its_verdicts_and_seed(title: str, planted: Any, seeds: dict[str, int]) -> None:
    assert rows(title) == {name: (set(CITED.findall(planted.VERDICTS[name])), seeds.get(name, 1)) for name in planted.FAULTS}


def test_the_switches_of_the_generator_are_as_likely_as_the_page_says() -> None:
    section = (DOCS / "invariants.md").read_text().partition("## The generator")[2].partition("\n## ")[0]
    assert {name: int(percent) / 100 for name, percent in SWITCH.findall(section)} == SWITCHES
    assert f"by {', '.join(map(str, FACTORS[:-1]))} or {FACTORS[-1]}," in " ".join(section.split())
