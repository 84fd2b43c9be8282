"""`ottla partitions elect`: elects preferred leaders, or any live replica in an unclean election, which may lose records.

`--accept-loss` does an unclean election for the partitions without a leader. Before it asks for confirmation, it prints the possible
losses: records that only other replicas have, and damaged parts of the new leader's log. A replica with a damaged log is elected only if no
other replica is live.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ottla.base.types import TopicPartition
from ottla.cli.cluster.partitions import read_entries
from ottla.cli.command import YES, Args, UsageError, command, confirm, flag, merged_numbers, option
from ottla.cli.output import write_error
from ottla.cli.render.ottla import Output, Row, unshown
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin, replica_admin

ELECTION_TYPES = {"preferred": replica_admin.PREFERRED, "unclean": replica_admin.UNCLEAN}
UNCLEAN_QUESTION = "An unclean election may lose acknowledged records. Continue?"


class ElectionRow(Row):
    """The result of a partition's election. Without an error it has a new leader."""

    topic: str
    partition: int
    error: str | None
    message: str | None
    kind: str = unshown()


def _wanted(args: Args, cluster: Cluster) -> list[TopicPartition] | None:
    """Returns the partitions to elect leaders for; None means all. Raises `UsageError` unless one option names them."""
    ways = [args.topic is not None, args.path_to_json_file is not None, args.all_topic_partitions]
    if sum(ways) != 1:
        raise UsageError("name partitions: --topic NAME, --path-to-json-file FILE or --all-topic-partitions")
    if args.path_to_json_file:
        return [TopicPartition(entry["topic"], entry["partition"]) for entry in read_entries(args.path_to_json_file)]
    if args.all_topic_partitions:
        return None
    numbers = merged_numbers(args.partition, "--partition is a number")
    return [TopicPartition(args.topic, number) for number in numbers or cluster.partitions(args.topic)]


@command(
    "partitions elect",
    "Elect leaders.",
    option(
        "--election-type", type=str.lower, choices=tuple(ELECTION_TYPES), default="preferred", help="preferred|unclean (may lose records)"
    ),
    option("--topic", metavar="TOPIC", help="only this topic"),
    option("--partition", action="append", metavar="N,...", help="only these partitions of the topic"),
    option("--path-to-json-file", metavar="FILE", help="only these partitions"),
    flag("--all-topic-partitions", help="all partitions"),
    flag("--accept-loss", help="elect leaders that may lack records, for partitions without a leader; prints the risk first"),
    YES,
)
def _elect(args: Args, cluster: Cluster, output: Output) -> int:
    kind = "unclean" if args.accept_loss else args.election_type
    if kind == "unclean" and not args.accept_loss:
        confirm(args, UNCLEAN_QUESTION)
    wanted = _wanted(args, cluster)
    if args.accept_loss:
        wanted = _accepted(args, cluster, output, wanted)
    rows = [] if wanted == [] else elect(cluster, kind, wanted)
    output.rows("partitions", ElectionRow, rows)
    # ELECTION_NOT_NEEDED is no failure: the partition already has the wanted leader.
    return 1 if any(row.error not in (None, "ELECTION_NOT_NEEDED") for row in rows) else 0


def elect(cluster: Cluster, kind: str, wanted: Sequence[TopicPartition] | None) -> list[ElectionRow]:
    """Elects leaders of the partitions (None: all). Returns a row for each result. For all partitions, there is no row of
    a partition that already has the wanted leader."""
    results = replica_admin.elect_leaders(cluster, ELECTION_TYPES[kind], wanted)
    return [
        ElectionRow(*partition, found.code.name if found is not None else None, (found and found.message) or None, kind)
        for partition, found in results.items()
    ]


# Losses


def _accepted(args: Args, cluster: Cluster, output: Output, wanted: Sequence[TopicPartition] | None) -> list[TopicPartition]:
    """Prints the risk for each wanted partition without a leader and asks for confirmation. Returns these partitions."""
    names = sorted(cluster.topic_names() if wanted is None else {found.topic for found in wanted})
    described = admin.describe_topics(cluster, names)
    accepted = []
    for name in names:
        for partition in described[name].partitions if name in described else ():
            key = TopicPartition(name, partition.partition_index)
            if partition.leader_id < 0 and (wanted is None or key in wanted):
                write_error(risk(key, partition, cluster.metadata.brokers) + "\n")
                accepted.append(key)
    if accepted:
        confirm(args, "These records may be lost for good. Elect these leaders?")
    else:
        output.note("every one of these partitions has a leader, or does not exist; nothing was changed")
    return accepted


def risk(key: TopicPartition, partition: Any, brokers: Collection[int]) -> str:
    """Describes the possible losses of an unclean election. Predicts the leader by the rules of `controller/leader_election.py`."""
    held = list(dict.fromkeys((*partition.isr_nodes, *(partition.eligible_leader_replicas or ()), *(partition.last_known_elr or ()))))
    working = [replica for replica in partition.replica_nodes if replica not in partition.offline_replicas]
    damaged = [replica for replica in partition.replica_nodes if replica in brokers and replica not in working]
    if not working and not damaged:
        return f"{key}: none of its brokers {partition.replica_nodes} lives, so none can be elected"
    leader = f"broker {working[0]}" if len(working) == 1 else f"one of brokers {working}"
    cut = ""
    if not working:
        leader = f"broker {damaged[0]}" if len(damaged) == 1 else f"one of brokers {damaged}"
        cut = "; its log is damaged or missing, and is cut at the damage"
    leading = working or damaged
    others = [replica for replica in held if [replica] != leading]
    given_up = f"; records that only brokers {others} have are lost" if others else ""
    return f"{key}: {leader} would lead{cut}{given_up}"
