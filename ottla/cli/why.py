"""Implements `ottla why`: explains why a group is behind, why a client cannot write, or why a partition is not in sync, on any Kafka. Each
reason has its evidence, and the command that mends it, if there is one. The exit code is 1 if a reason of the level `bad` was found, else
0.
"""

from __future__ import annotations

from ottla.analysis.why import BAD, FINE, LOOK_S, Reason, why_partition, why_reader, why_writer
from ottla.cli.command import Args, UsageError, command, option
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row
from ottla.cli.topics.topic_names import ONE_TOPIC, one_topic
from ottla.client.blocking.cluster import Cluster


class ReasonRow(Row):
    subject: str
    cause: str
    sentence: str
    evidence: str
    mend: str
    level: str


@command(
    "why reader",
    "Why a group is behind: transactions, members, assignment, quotas.",
    option("name", metavar="GROUP", help="the group"),
    option("--seconds", type=float, default=LOOK_S, metavar="SECS", help=f"between two looks at its offsets (default {LOOK_S:g})"),
)
def _reader(args: Args, cluster: Cluster, output: Output) -> int:
    if args.seconds <= 0:
        raise UsageError("--seconds must be above 0")
    return _show(output, why_reader(cluster, args.name, look_s=args.seconds))


@command(
    "why writer",
    "Why a client cannot write to a topic: leaders, replicas, ACLs, quotas, disks.",
    *ONE_TOPIC,
    option("--user", metavar="NAME", help="the client's user (default: the user of this connection)"),
    option("--client", metavar="NAME", help="the client.id of the client, for its quotas"),
    option("--transactional-id", metavar="ID", help="the client's transactional id, which another program may have taken over"),
)
def _writer(args: Args, cluster: Cluster, output: Output) -> int:
    topic = one_topic(args)
    return _show(output, why_writer(cluster, topic, user=args.user, client=args.client, transactional_id=args.transactional_id))


@command(
    "why partition",
    "Why replicas of a topic are not in sync: brokers, disks, reassignments.",
    *ONE_TOPIC,
    option("--partition", type=int, metavar="N", help="only this partition"),
)
def _partition(args: Args, cluster: Cluster, output: Output) -> int:
    return _show(output, why_partition(cluster, one_topic(args), args.partition))


def _show(output: Output, reasons: list[Reason]) -> int:
    if output.form == "table":
        write("".join(map(_text, reasons)))
    else:
        output.rows("reasons", ReasonRow, [ReasonRow(*reason) for reason in reasons])
    return output.verdict(all(reason.level != BAD for reason in reasons))


def _text(reason: Reason) -> str:
    lines = [f"{reason.subject}: {reason.sentence}" if reason.level == FINE else f"{reason.subject}: {reason.cause}. {reason.sentence}"]
    if reason.evidence:
        lines.append(f"  seen: {reason.evidence}")
    if reason.mend:
        lines.append(f"  mend: {reason.mend}")
    return "\n".join(lines) + "\n"
