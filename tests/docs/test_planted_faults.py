"""The tables of docs/invariants.md about the simulation: planted faults with their verdicts and seeds, and the generator's switches."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS
from tests.sim.cluster_faults import FAULTS, VERDICTS
from tests.sim.cluster_swarm import FACTORS, SWITCHES
from tests.sim.test_cluster import FIRST_SEEDS

ROW = re.compile(r"^\| [^|]+ \| `(\w+)` \| ([^|]+) \| (\d+) \|$", re.M)
SWITCH = re.compile(r"^\| `(\w+)` \| (\d+) %", re.M)
CITED = re.compile(r"\bI\d+\b|lost-write")


def rows() -> dict[str, tuple[set[str], int]]:
    """The verdicts and the seed of each fault."""
    section = (DOCS / "invariants.md").read_text().partition("## Planted faults")[2].partition("\n## ")[0]
    return {name: (set(CITED.findall(verdicts)), int(seed)) for name, verdicts, seed in ROW.findall(section)}


def test_every_planted_fault_has_a_row_with_its_verdicts_and_seed() -> None:
    assert rows() == {name: (set(CITED.findall(VERDICTS[name])), FIRST_SEEDS[name]) for name in FAULTS}


def test_the_switches_of_the_generator_are_as_likely_as_the_page_says() -> None:
    section = (DOCS / "invariants.md").read_text().partition("## The generator")[2].partition("\n## ")[0]
    assert {name: int(percent) / 100 for name, percent in SWITCH.findall(section)} == SWITCHES
    assert f"by {', '.join(map(str, FACTORS[:-1]))} or {FACTORS[-1]}," in " ".join(section.split())
