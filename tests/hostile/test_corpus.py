"""Hostile inputs are numbered by kind: F frames, H headers, B bodies, R record batches, A clients that pretend to be brokers, C records of
coordinators. Each number in `SENT` is named at a case or a test, so that one search finds, for example, the test of R8.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CORPUS = Path(__file__).parent
SENT = [
    *(f"F{number}" for number in (1, 2, 3, 4, 6, 7, 8)),
    *(f"H{number}" for number in range(1, 5)),
    *(f"B{number}" for number in range(1, 9)),
    *(f"R{number}" for number in range(1, 11)),
    "A5",
    "C3",
]
# Not sent: F5 and the other numbers of A need a listener with authentication; C1 and C2 need a metadata store that other programs can write
# to.


@pytest.mark.parametrize("name", SENT)
def test_the_corpus_holds(name: str) -> None:
    word = re.compile(rf"\b{name}\b")
    texts = {path.name: path.read_text() for path in CORPUS.glob("test_*.py") if path.name != Path(__file__).name}
    # The first paragraph of a module names ranges such as B1-B8. Only names at a case or a test are counted.
    found = [file for file, text in texts.items() if word.search(text.split('"""', 2)[2])]
    assert found, f"no case or test is named {name}"
