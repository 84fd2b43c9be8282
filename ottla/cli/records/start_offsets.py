"""Parses the start and the end of `consume`: `-o beginning|end|stored|N|-N|s@TIME|e@TIME|@-1h`, ranges (`:end`, `A:B`, `A-B`,
`@TIME:TIME`), `--from-beginning`, or a group's committed offsets. A range with an end stops at the partition's current end at the latest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.analysis.resets import offsets_at
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, UsageError
from ottla.cli.moments import parse_moment_ms
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.admin import EARLIEST, LATEST

BEGINNING = "beginning"
END = "end"
STORED = "stored"
OFFSET = "offset"
TAIL = "tail"
TIME = "time"

_WORDS = {"beginning": BEGINNING, "earliest": BEGINNING, "start": BEGINNING, "end": END, "latest": END, "stored": STORED}


class Start(NamedTuple):
    """The start, as a kind and its number, and the stop: a time, an offset (exclusive), or the end when reading begins."""

    kind: str = ""
    number: int = 0
    end_ms: int | None = None
    end_offset: int | None = None
    is_to_end: bool = False

    @property
    def has_end(self) -> bool:
        return self.is_to_end or self.end_ms is not None or self.end_offset is not None

    @property
    def is_given(self) -> bool:
        """Whether a start is given. It overrides a group's committed offsets."""
        return self.kind not in ("", STORED)


def parse_start(args: Args) -> Start:
    start = Start()
    for text in args.offset:
        if text.startswith("e@"):
            start = start._replace(end_ms=parse_moment_ms(text[2:]))
            continue
        if start.kind:
            raise UsageError("-o names two starts")
        found = parse_range(text)
        if found is None:
            kind, number = parse_offset(text)
            found = Start(kind, number)
        start = found if start.end_ms is None else found._replace(end_ms=start.end_ms)
    if args.from_beginning and start.kind not in ("", BEGINNING):
        raise UsageError("--from-beginning and another start exclude each other")
    if args.from_beginning and args.group is None and not start.kind:
        start = start._replace(kind=BEGINNING)
    return start


def parse_range(text: str) -> Start | None:
    """Parses `:end`, `A:B`, `A:`, `:B`, `A-B`, `@TIME:TIME`, `@TIME:` and `@:TIME`. Returns None for other text. Raises UsageError for a
    range of offsets that ends before its start."""
    if text == ":end":
        return Start(BEGINNING, is_to_end=True)
    found = re.fullmatch(r"(\d*):(\d*|end)", text, re.ASCII)
    if found is not None and text != ":":
        start = Start(OFFSET, int(found[1])) if found[1] else Start(BEGINNING)
        if found[2] in ("", "end"):
            return start._replace(is_to_end=found[2] == "end")
        return _not_backwards(start._replace(end_offset=int(found[2])), text)
    found = re.fullmatch(r"(\d+)-(\d+)", text, re.ASCII)
    if found is not None:
        return _not_backwards(Start(OFFSET, int(found[1]), end_offset=int(found[2]) + 1), text)
    return _time_range(text) if text.startswith("@") else None


def _time_range(text: str) -> Start | None:
    """Parses `@FROM:TO`. Returns None for a single time. Times may contain colons, so the first colon with a valid time on both sides is
    the separator.
    """
    if _moment(text[1:]) is not None:
        return None
    if (since := _moment(text[1:].removesuffix(":"))) is not None:  # `@TIME:`, as rpk has it
        return Start(TIME, since)
    for colon in (place for place, letter in enumerate(text) if letter == ":"):
        first, last = text[1:colon], _moment(text[colon + 1 :])
        if last is not None and not first:
            return Start(BEGINNING, end_ms=last)
        since = _moment(first)
        if last is not None and since is not None:
            return Start(TIME, since, end_ms=last)
    return None


def _moment(text: str) -> int | None:
    try:
        return parse_moment_ms(text)
    except UsageError:
        return None


def _not_backwards(start: Start, text: str) -> Start:
    if start.end_offset is not None and start.end_offset < start.number:
        raise UsageError(f"-o {text!r} ends before it begins")
    return start


def parse_offset(text: str) -> tuple[str, int]:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()], 0
    if text.startswith(("s@", "@")):
        return TIME, parse_moment_ms(text.partition("@")[2])
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"-o {text!r} is none of beginning, end, stored, N, -N, A:B, A-B, :end, s@TIME, e@TIME, @-1h, @TIME:TIME")
    return (TAIL, int(digits)) if text.startswith("-") else (OFFSET, int(digits))


def start_positions(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: Start, group: str | None, isolation_level: int, default_reset: str
) -> dict[TopicPartition, int]:
    """Returns the first offset to read of each partition, or EARLIEST or LATEST, which the consumer looks up. Raises UsageError."""
    default = EARLIEST if default_reset == "earliest" else LATEST
    if start.kind in ("", STORED) and group is not None:
        from ottla.client.core.group_admin import committed_offsets

        committed = committed_offsets(cluster, group)
        return {partition: committed[partition].offset if partition in committed else default for partition in partitions}
    if start.kind == STORED:
        raise UsageError("-o stored needs a group (-g)")
    if start.kind == OFFSET and start.has_end:  # the offset may be beyond the partition's end, or before its first record
        first = offsets_at(cluster, partitions, EARLIEST)
        last = offsets_at(cluster, partitions, LATEST, isolation_level=isolation_level)
        return {partition: min(max(start.number, first[partition]), last[partition]) for partition in partitions}
    if start.kind == OFFSET:
        return dict.fromkeys(partitions, start.number)
    if start.kind == TIME:
        found = offsets_at(cluster, partitions, start.number)
        return {partition: offset if offset >= 0 else LATEST for partition, offset in found.items()}
    if start.kind == TAIL:
        first = offsets_at(cluster, partitions, EARLIEST)
        last = offsets_at(cluster, partitions, LATEST, isolation_level=isolation_level)
        return {partition: max(first[partition], last[partition] - start.number) for partition in partitions}
    named = {BEGINNING: EARLIEST, END: LATEST}.get(start.kind, default)
    if start.end_ms is not None and not start.kind:
        named = EARLIEST
    return dict.fromkeys(partitions, named)
