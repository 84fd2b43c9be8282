"""Parses settings as people write them: `retention.ms=7d` and `segment.bytes=64MiB`, which become numbers of milliseconds and bytes."""

from __future__ import annotations

import re

from ottla.analysis.moments import UNITS_MS
from ottla.cli.command import parse_pairs

UNITS_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def parse_settings(texts: list[str] | None, option: str) -> dict[str, str]:
    """Returns the pairs of `parse_pairs` with durations in milliseconds and sizes in bytes. Raises UsageError for text that is not
    KEY=VALUE."""
    return {name: _in_numbers(name, text) for name, text in parse_pairs(texts, option).items()}


def _in_numbers(name: str, text: str) -> str:
    units = UNITS_MS if name.endswith(".ms") else UNITS_BYTES if name.endswith(".bytes") else {}
    found = re.fullmatch(r"(\d+)([a-zA-Z]+)", text, re.ASCII)
    return str(int(found[1]) * units[found[2]]) if found is not None and found[2] in units else text
