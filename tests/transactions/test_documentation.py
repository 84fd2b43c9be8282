"""`docs/transactions.md` documents every error that the code of transactions can return, and every setting that it reads."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.base.errors import ErrorCode

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs/transactions.md").read_text()
SOURCES = [
    *sorted((ROOT / "ottla/transactions").glob("*.py")),
    *sorted((ROOT / "ottla/handlers/transactions").glob("*.py")),
    ROOT / "ottla/handlers/records/describe_producers.py",
    ROOT / "ottla/storage/producers.py",
    ROOT / "ottla/replication/verification.py",
]


TRANSCRIPTS = [path for area in ("transactions", "producers", "groups") for path in sorted((ROOT / "tests/scenarios" / area).glob("*.txt"))]
OF_REQUESTS = ROOT / "tests/handlers/transactions/test_transactions.py"
"""Tests of requests that handlers refuse before they ask a coordinator."""
NEVER_TO_CLIENTS = {"BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "LEADER_NOT_AVAILABLE", "UNKNOWN_PRODUCER_ID"}
"""Errors that clients never get. Brokers use the first three among themselves, if a broker cannot be reached or a partition has no leader.
The page says that the last is never sent."""


def section(title: str) -> str:
    return DOCUMENT.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_error_is_documented() -> None:
    given = {name for path in SOURCES for name in re.findall(r"ErrorCode\.([A-Z_]+)", path.read_text())} - {"NONE"}
    documented = set(re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)+\b", section("Errors")))
    assert len(given) > 20
    assert sorted(given - documented) == []
    assert sorted(name for name in documented if name not in ErrorCode.__members__) == []


def test_every_error_is_shown() -> None:
    """Each error occurs in a transcript, or in a test of a request that a handler refuses."""
    cells = [row.split("|")[1] for row in section("Errors").splitlines() if row.startswith("| ")]
    documented = {name for cell in cells for name in re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)+\b", cell)}
    shown = {name for path in (*TRANSCRIPTS, OF_REQUESTS) for name in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", path.read_text())}
    assert len(documented) > 30
    assert documented - shown == NEVER_TO_CLIENTS


def test_every_setting_is_documented() -> None:
    read = set(re.findall(r"# ((?:transaction|ottla)[a-z.]+)", (ROOT / "ottla/transactions/settings.py").read_text()))
    assert len(read) >= 6
    assert sorted(name for name in read if f"`{name}`" not in section("Settings")) == []
