"""The numbers of tries in docs/security.md are those of the attacks on logins and access rules."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS
from tests.hostile.test_authentication import ATTACKS
from tests.hostile.test_handshakes import HALF_OPEN

ROWS = dict(re.findall(r"^\| ([^|]+) \| ([\d,]+)[^|]*\|$", (DOCS / "security.md").read_text().partition("| Tries |")[2], re.MULTILINE))
TRIES = {
    "handshakes that are begun": HALF_OPEN,
    "SCRAM: channel binding": ATTACKS["wrong channel binding"][1],
    "SCRAM: recorded messages": ATTACKS["repeated and foreign nonces"][1],
    "SCRAM: malformed messages": ATTACKS["misshapen messages"][1],
    "SCRAM: proofs": ATTACKS["wrong proofs"][1],
    "bearer tokens": ATTACKS["wrong bearer tokens"][1],
    "names that look like": ATTACKS["other forms of a name"][1],
    "a denial among rules": ATTACKS["denials in any order"][1],
    "tricks with prefixes": ATTACKS["tricks with prefixes"][1],
}


@pytest.mark.parametrize("start", TRIES)
def test_the_tries_are_counted(start: str) -> None:
    (said,) = [number for what, number in ROWS.items() if what.startswith(start)]
    assert int(said.replace(",", "")) == TRIES[start]
    assert len(ROWS) == len(TRIES) + 3, "a ClientHello, names of users and certificates are counted by their own tests"
