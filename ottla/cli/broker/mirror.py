"""`ottla mirror` keeps topics of a cluster equal to another cluster's, until Ctrl-C (`ottla/cloning/mirror`).

`--status` shows the lag and changes nothing. `--graduate` ends the mirroring: the topics become writable at the target.
"""

from __future__ import annotations

import signal
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ottla.adapters.descriptors import raise_limit
from ottla.base.counted import counted
from ottla.cli.command import Args, Refused, UsageError, command, flag, merged, one_of, option
from ottla.cli.options import connect
from ottla.cli.render.ottla import Output, Row
from ottla.cli.setting_values import parse_settings

if TYPE_CHECKING:
    from ottla.client.blocking.client import Client
    from ottla.cloning.mirror.mirror import Mirror, MirrorRequest
    from ottla.cloning.mirror.state import State

SHOWN_EVERY_MS = 10_000
"""A mirror prints its lag every 10 s while it changes. It prints at once if a lag or an error begins or ends."""


class MirrorRow(Row):
    """A partition of `--status`."""

    topic: str
    partition: int
    state: str
    source_end: int | None = None
    end: int | None = None
    lag: int | None = None
    rate: int | None = None
    """Offsets per second that the target got during the look."""
    error: str | None = None
    """Damage of the source at which the partition waits."""


@command(
    "mirror",
    "Mirror topics of any Kafka into a running cluster, with the same offsets.",
    option("source", metavar="SOURCE", help="brokers of the source: HOST:PORT[,...]"),
    option("target", metavar="TARGET", help="brokers of the target: HOST:PORT[,...]"),
    option("--topics", "--topic", action="append", required=True, metavar="TOPIC,...", help="topics to mirror"),
    option("--groups", "--group", action="append", metavar="GROUP,...", help="only these groups' offsets follow (default: all groups)"),
    *one_of(
        flag("--status", help="show state and lag of the topics, and end"),
        flag("--graduate", help="copy what is left, make the topics writable at the target, and end"),
    ),
    flag("--continue-existing", help="go on with a topic that the target has, if its records are the beginning of the source's"),
    option("--source-config", metavar="FILE", help="a client.properties file for the source alone"),
    option("--target-config", metavar="FILE", help="a client.properties file for the target alone"),
    option("--replication-factor", type=int, default=-1, metavar="N", help="replicas of new topics (default: the target's)"),
    option("--metrics-listen", metavar="HOST:PORT", help="serve the lag as Prometheus metrics at http://HOST:PORT/metrics"),
    option("-c", "--config", action="append", metavar="KEY=VALUE", help="a setting of the mirrored topics, instead of the source's"),
)
def _mirror(args: Args, output: Output) -> int | None:
    from ottla.cloning.mirror.mirror import Mirror, MirrorRequest
    from ottla.cloning.mirror.survey import survey

    topics = list(dict.fromkeys(merged(args.topics)))
    if not topics:
        raise UsageError("--topics names no topic")
    raise_limit()
    with ExitStack() as stack:
        source, reading = (_client(stack, args, args.source, args.source_config) for _ in range(2))
        target = _client(stack, args, args.target, args.target_config)
        if source.cluster_id is not None and source.cluster_id == target.cluster_id:
            raise UsageError(f"{args.source} and {args.target} are the same cluster")
        if args.status:
            return _print(survey(source, target, topics), output)
        request = MirrorRequest(
            topics=topics, groups=merged(args.groups) if args.groups else None, settings=parse_settings(args.config, "--config"),
            replication_factor=args.replication_factor, may_take_over=args.continue_existing,
        )  # fmt: skip
        report = stack.enter_context(_reporting(args, output))
        mirror = Mirror(source, reading, target, request, report)
        is_over = stack.enter_context(_until_signal())
        return _run(args, output, mirror, is_over, request)


def _run(args: Args, output: Output, mirror: Mirror, is_over: Callable[[], bool], request: MirrorRequest) -> int:
    state = mirror.graduate(is_over) if args.graduate else mirror.run(is_over)
    failed = [topic for topic in state["topics"] if topic["state"] == "failed"]
    if failed:
        raise Refused("; ".join(topic["error"] for topic in failed), "MIRROR_FAILED")
    graduated = [topic["topic"] for topic in state["topics"] if topic["state"] == "graduated"]
    if graduated:
        output.done(f"Graduated {', '.join(graduated)}: {'it is' if len(graduated) == 1 else 'they are'} writable at {args.target}.", state)
    elif args.graduate:
        raise Refused(f"stopped before the end: {', '.join(request.topics)} is mirrored and not graduated", "NOT_GRADUATED")
    return 0


def _client(stack: ExitStack, args: Args, bootstrap: str, config: str | None) -> Client:
    """Connects to one of the clusters. The cluster's own properties file replaces `--command-config`."""
    from ottla.client.blocking.client import Client

    own = Namespace(**{**vars(args), "bootstrap": bootstrap, "command_config": config or getattr(args, "command_config", None)})
    cluster = stack.enter_context(connect(own, with_extensions=True))
    cluster.refresh([])
    return Client(cluster)


@contextmanager
def _until_signal() -> Iterator[Callable[[], bool]]:
    """Inside the context the first SIGINT or SIGTERM ends the mirror after its current step."""
    is_over = threading.Event()
    before = {number: signal.signal(number, lambda *_: is_over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield is_over.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _reporting(args: Args, output: Output) -> Iterator[Callable[[State], None]]:
    """Yields a function that prints a state if it has changed, and serves it as metrics."""
    from ottla.cloning.mirror.state import MetricsServer

    server = None
    if args.metrics_listen is not None:
        host, port = _address(args.metrics_listen)
        try:
            server = MetricsServer(host, port)
        except OSError as error:
            raise UsageError(f"cannot listen on {args.metrics_listen}: {(error.strerror or str(error)).lower()}") from None
        output.note(f"metrics: http://{host}:{server.port}/metrics")
    shown: dict[str, Any] = {"is_equal": None, "trouble": None, "text": "", "time": 0}

    def report(state: State) -> None:
        if server is not None:
            server.show(state)
        text, trouble = _summary(state)
        is_equal = state["lag"] == 0
        is_new = (is_equal, trouble) != (shown["is_equal"], shown["trouble"])
        if is_new or (text != shown["text"] and state["time"] >= shown["time"] + SHOWN_EVERY_MS):
            output.note(text)
            shown.update(is_equal=is_equal, trouble=trouble, text=text, time=state["time"])

    try:
        yield report
    finally:
        if server is not None:
            server.close()


def _summary(state: State) -> tuple[str, Sequence[str]]:
    """Returns the line to print, and its errors and notes."""
    trouble = [state["error"]] if state["error"] is not None else []
    trouble += [f"{one['topic']} {one['state']}" + (f": {one['error']}" if one["error"] else "") for one in _ended(state)]
    for topic in state["topics"]:
        trouble += [f"{topic['topic']}-{one['partition']} is {one['error']}" for one in topic["partitions"] if one["error"]]
    trouble += [f"note: {note}" for note in state["notes"]]
    partitions = counted(sum(len(one["partitions"]) for one in state["topics"] if one["state"] == "mirroring"), "partition")
    behind = "looking at the source" if state["lag"] is None else f"{counted(state['lag'], 'offset')} behind the source"
    return "; ".join([f"mirroring: {partitions}, {behind}", *trouble]), trouble


def _ended(state: State) -> list[dict[str, Any]]:
    return [one for one in state["topics"] if one["state"] != "mirroring"]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise UsageError(f"--metrics-listen {text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _print(state: State, output: Output) -> int:
    rows = [
        MirrorRow(topic["topic"], one["partition"], topic["state"], one["source_end"], one["end"], one["lag"], one["rate"], one["error"])
        for topic in state["topics"]
        for one in topic["partitions"]
    ]
    output.rows("partitions", MirrorRow, rows, extra={"lag": state["lag"]})
    for topic in state["topics"]:
        if topic["error"]:
            output.note(f"{topic['topic']}: {topic['error']}")
        for one in topic["partitions"]:
            if one["error"]:
                output.note(f"{topic['topic']}-{one['partition']} waits alone: {one['error']}")
        if topic["state"] == "mirroring" and _is_still(topic["partitions"]):
            output.note(f"{topic['topic']}: the target lacks records and got none for a second; does the mirror run?")
    return output.verdict(all(topic["state"] != "failed" for topic in state["topics"]))


def _is_still(partitions: Sequence[dict[str, Any]]) -> bool:
    return any(one["lag"] and not one["error"] for one in partitions) and not any(one["rate"] for one in partitions)
