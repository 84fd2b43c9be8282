"""Where `consume` begins: `-o beginning|end|stored|N|-N|s@TIME|e@TIME|@-1h`, `--from-beginning`, or a group's committed offsets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.cli.command import UsageError
from ottla.cli.moments import parse_moment_ms
from ottla.cli.topics.partition_offsets import offsets_at
from ottla.client.blocking.admin import EARLIEST, LATEST
from ottla.client.blocking.cluster import Cluster

BEGINNING = "beginning"
END = "end"
STORED = "stored"
OFFSET = "offset"
TAIL = "tail"
TIME = "time"

_WORDS = {"beginning": BEGINNING, "earliest": BEGINNING, "start": BEGINNING, "end": END, "latest": END, "stored": STORED}


class Start(NamedTuple):
    """Where to begin: a kind and its number; with `e@TIME` also where to stop."""

    kind: str = ""
    number: int = 0
    end_ms: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether a start was given that overrides a group's committed offsets."""
        return self.kind not in ("", STORED)


def parse_start(args: argparse.Namespace) -> Start:
    start = Start()
    for text in args.offset:
        if text.startswith("e@"):
            start = start._replace(end_ms=parse_moment_ms(text[2:]))
            continue
        if start.kind:
            raise UsageError("-o names two starts")
        kind, number = parse_offset(text)
        start = start._replace(kind=kind, number=number)
    if args.from_beginning and start.kind not in ("", BEGINNING):
        raise UsageError("--from-beginning and another start exclude each other")
    if args.from_beginning and args.group is None and not start.kind:
        start = start._replace(kind=BEGINNING)
    return start


def parse_offset(text: str) -> tuple[str, int]:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()], 0
    if text.startswith(("s@", "@")):
        return TIME, parse_moment_ms(text.partition("@")[2])
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"-o {text!r} is none of beginning, end, stored, N, -N, s@TIME, e@TIME, @-1h")
    return (TAIL, int(digits)) if text.startswith("-") else (OFFSET, int(digits))


def start_positions(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: Start, group: str | None, isolation_level: int, default_reset: str
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition."""
    default = EARLIEST if default_reset == "earliest" else LATEST
    if start.kind in ("", STORED) and group is not None:
        from ottla.client.blocking.group_admin import committed_offsets

        committed = committed_offsets(cluster, group)
        return {partition: committed[partition].offset if partition in committed else default for partition in partitions}
    if start.kind == STORED:
        raise UsageError("-o stored needs a group (-g)")
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
