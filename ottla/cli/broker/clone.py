"""`ottla clone` copies topics of any Kafka into a data directory, with the same offsets (`ottla/cloning`).

`ottla start` runs a broker on the directory, and a consumer continues at its committed offset. The command changes nothing on the source:
the permissions to read and describe are enough.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.adapters.descriptors import raise_limit
from ottla.analysis.moments import UNITS_MS, now_ms
from ottla.analysis.progress import Progress
from ottla.base.counted import counted
from ottla.cli.command import Args, UsageError, command, flag, merged, one_of, option
from ottla.cli.moments import parse_moment_ms
from ottla.cli.options import connect
from ottla.cli.records.start_offsets import OFFSET, TAIL, parse_offset, parse_range
from ottla.cli.render.ottla import Output
from ottla.cli.setting_values import UNITS_BYTES, parse_settings

if TYPE_CHECKING:
    from ottla.cloning.bounds import Range
    from ottla.cloning.clone import Cloned, CloneRequest, Follow
    from ottla.cloning.following import State
    from ottla.cloning.record_change import RecordChange


SHOWN_EVERY_MS = 10_000
"""A clone that follows its source prints its lag every 10 s while it changes. It prints at once if a lag or an error begins or ends."""


@command(
    "clone",
    "Copy topics of any Kafka to a data directory, with the same offsets.",
    option("source", nargs="?", metavar="HOST:PORT[,...]", help="brokers of the source, as -b"),
    option("--topics", "--topic", action="append", required=True, metavar="TOPIC,...", help="topics to clone"),
    option("--groups", "--group", action="append", metavar="GROUP,...", help="clone only these groups' offsets (default: all groups)"),
    option("-d", "--data-dir", default="ottla-data", metavar="DIR", help="the new data directory (default ./ottla-data)"),
    *one_of(
        option("--last", metavar="TIME", help="only the last records: 10m, 24h, 7d"),
        option("--since", metavar="TIME", help="only records from this time on"),
        option("--offsets", metavar="A:B|-N", help="only these offsets, or the last N, of each partition"),
        option("--size", metavar="BYTES", help="only about the last bytes of each partition: 64MiB"),
    ),
    option("--until", metavar="TIME", help="only records before this time"),
    option("--sample", default="100%", metavar="SHARE", help="only the records of a share of the keys: 1%% or 0.01"),
    flag("--follow", help="follow the source until Ctrl-C, which completes the clone"),
    option("--transform", metavar="FILE.py", help="change records by the function transform(partition, record) of a file"),
    option("-c", "--config", action="append", metavar="KEY=VALUE", help="a setting of the cloned topics, instead of the source's"),
)
def _clone(args: Args, output: Output) -> None:
    from ottla.client.blocking.client import Client
    from ottla.cloning.clone import CloneRequest, make_clone

    if args.source is not None:
        if args.bootstrap not in (None, args.source):
            raise UsageError(f"the source is {args.source} and -b names {args.bootstrap}; give it once")
        args.bootstrap = args.source
    topics = list(dict.fromkeys(merged(args.topics)))
    if not topics:
        raise UsageError("--topics names no topic")
    target = Path(os.path.abspath(args.data_dir))
    request = CloneRequest(
        target=target, topics=topics, groups=merged(args.groups) if args.groups else None, range=_range(args),
        settings=parse_settings(args.config, "--config"), change=_change(args), description=_description(args, topics),
    )  # fmt: skip
    raise_limit()
    with connect(args) as cluster:
        cluster.refresh([])
        with _following(args, request, output) as follow, Progress(_source(args), 0, is_quiet=args.quiet) as progress:
            cloned = make_clone(Client(cluster), request, progress.expect, follow)
    _report(target, cloned, output)


def _source(args: Args) -> str:
    return f"from {args.bootstrap or 'the source'}"


@contextmanager
def _following(args: Args, request: CloneRequest, output: Output) -> Iterator[Follow | None]:
    """Inside the context the first Ctrl-C ends the copying of new records, and a second one ends the command. Raises UsageError for a range
    with a fixed end.
    """
    if not args.follow:
        yield None
        return
    from ottla.cloning.clone import Follow

    if request.range.has_fixed_end:
        raise UsageError("--follow has no end: leave out --until, or the second offset of --offsets")
    is_over = threading.Event()

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        is_over.set()

    def report(state: State) -> None:
        behind = f"{counted(len(state['partitions']), 'partition')}, {counted(state['lag'], 'offset')} behind the source"
        text = f"following: {behind}" if state["error"] is None else f"following: {behind}; {state['error']}"
        is_new = state["error"] != shown["error"] or bool(state["lag"]) != bool(shown["lag"])
        if is_new or (text != shown["text"] and state["time"] >= shown["time"] + SHOWN_EVERY_MS):
            output.note(text)
            shown.update(state, text=text)

    shown: dict[str, Any] = {"error": "", "lag": None, "text": "", "time": 0}
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield Follow(is_over.is_set, report)
    finally:
        signal.signal(signal.SIGINT, before)


def _report(target: Path, cloned: Cloned, output: Output) -> None:
    for note in cloned.notes:
        output.note(f"note: {note}")
    groups = len({one.group for one in cloned.plan.offsets})
    partitions = [
        {"topic": one.partition.topic, "partition": one.partition.partition, "start": one.log_start_offset, "end": one.log_end_offset}
        for one in cloned.logs
    ]
    topics = counted(len(cloned.plan.topics), "topic")
    what = f"{topics} ({counted(len(partitions), 'partition')}, {cloned.bytes:,} bytes) and the offsets of {counted(groups, 'group')}"
    output.done(
        f"Cloned {what}. Start a broker with `ottla start --data-dir {target}`.",
        {
            "data_dir": str(target), "source_cluster_id": cloned.plan.cluster_id, "bytes": cloned.bytes, "groups": groups,
            "partitions": partitions, "continued": cloned.is_continued, "notes": cloned.notes,
        },
    )  # fmt: skip


def _range(args: Args) -> Range:
    """Returns the records that the options choose. Raises UsageError."""
    from ottla.cloning.bounds import Range

    until_ms = None if args.until is None else parse_moment_ms(args.until)
    chosen = Range(until_ms=until_ms)
    if args.last is not None:
        return chosen._replace(since_ms=now_ms() - _number(args.last, "--last", UNITS_MS, "10m, 24h or 7d"))
    if args.since is not None:
        since_ms = parse_moment_ms(args.since)
        if until_ms is not None and until_ms < since_ms:
            raise UsageError(f"--until {args.until} is before --since {args.since}")
        return chosen._replace(since_ms=since_ms)
    if args.size is not None:
        return chosen._replace(size=_number(args.size, "--size", UNITS_BYTES, "64MiB or a number of bytes"))
    return chosen if args.offsets is None else _offset_range(args.offsets, chosen)


def _offset_range(text: str, chosen: Range) -> Range:
    found = parse_range(text)
    if found is not None and found.end_ms is None and found.kind != "time":
        return chosen._replace(first_offset=found.number, end_offset=found.end_offset)
    kind, number = (None, 0) if found is not None else parse_offset(text)
    if kind == TAIL:
        return chosen._replace(tail=number)
    if kind == OFFSET:
        return chosen._replace(first_offset=number)
    raise UsageError(f"--offsets {text!r} is none of A:B, A-B, A, -N")


def _number(text: str, name: str, units: dict[str, int], example: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([a-zA-Z]*)", text.strip().removeprefix("-"), re.ASCII)
    if found is None or (found[2] and found[2] not in units) or (not found[2] and units is UNITS_MS):
        raise UsageError(f"{name} {text!r} is not {example}")
    return int(found[1]) * units.get(found[2], 1)


def _change(args: Args) -> RecordChange | None:
    """Returns the changes of records that the options name; None if they name none. Raises UsageError and Refused."""
    share = _share(args.sample)
    if share == 1.0 and args.transform is None:
        return None
    from ottla.cloning.record_change import RecordChange

    transform = None
    if args.transform is not None:
        from ottla.cli.broker.clone_transform import load_transform

        transform = load_transform(Path(args.transform))
    return RecordChange(share, transform)


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text!r} is not a share such as 1% or 0.01")
    return share


def _description(args: Args, topics: list[str]) -> str:
    """Describes the options that decide what is stored. Times are copied as the user wrote them, so that a clone with `--last 10m` may be
    continued later.
    """
    words = {name: getattr(args, name) for name in ("groups", "last", "since", "until", "offsets", "size", "sample", "config")}
    if args.transform is not None:
        words["transform"] = hashlib.sha256(Path(args.transform).read_bytes()).hexdigest()
    return json.dumps({"topics": topics, **words}, sort_keys=True)
