"""The table of planted faults in docs/invariants.md names those that exist, with the verdicts and the seeds of the tests."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS
from tests.sim.cluster_faults import FAULTS, VERDICTS
from tests.sim.test_cluster import FIRST_SEEDS

ROW = re.compile(r"^\| [^|]+ \| `(\w+)` \| ([^|]+) \| (\d+) \|$", re.M)
CITED = re.compile(r"\bI\d+\b|lost-write")


def rows() -> dict[str, tuple[set[str], int]]:
    """The verdicts and the seed of each fault."""
    section = (DOCS / "invariants.md").read_text().partition("## Planted faults")[2].partition("\n## ")[0]
    return {name: (set(CITED.findall(verdicts)), int(seed)) for name, verdicts, seed in ROW.findall(section)}


def test_every_planted_fault_has_a_row_with_its_verdicts_and_seed() -> None:
    assert rows() == {name: (set(CITED.findall(VERDICTS[name])), FIRST_SEEDS[name]) for name in FAULTS}
