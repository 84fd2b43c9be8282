"""`ottla partitions`: move replicas (`generate`, `reassign`, `list`, `verify`, `cancel`) and choose leaders (`elect`).

Files are Kafka's: `{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`. `reassign` shows what would
change and changes nothing without `--execute`; it prints the replicas of now in the same form, so that a move can be taken back.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli import partitions_generate
from ottla.cli.command import Command, UsageError, merged
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.client import admin
from ottla.client.cluster import Cluster
from ottla.client.errors import error_code

COLUMNS = (("TOPIC", "topic"), ("PARTITION", "partition"), ("REPLICAS", "replicas"), ("NEW-REPLICAS", "new_replicas"), ("ERROR", "error"))
ELECTION_TYPES = {"preferred": 0, "unclean": 1}


def _entries(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            tree = json.load(file)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    entries = tree.get("partitions") if isinstance(tree, dict) else None
    if not isinstance(entries, list) or not entries:
        raise UsageError(f'{path} is not {{"version": 1, "partitions": [...]}}')
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str) or not isinstance(entry.get("partition"), int):
            raise UsageError(f"{path}, entry {number}: needs topic and partition, not {json.dumps(entry)[:80]}")
    return entries


def read_plan(path: str) -> dict[TopicPartition, list[int]]:
    """The replicas that a file asks for."""
    plan: dict[TopicPartition, list[int]] = {}
    for number, entry in enumerate(_entries(path), 1):
        replicas = entry.get("replicas")
        if not isinstance(replicas, list) or not replicas or not all(type(found) is int for found in replicas):
            raise UsageError(f"{path}, entry {number}: needs replicas, a list of broker ids")
        if len(set(replicas)) != len(replicas):
            raise UsageError(f"{path}, entry {number}: names a broker twice")
        partition = TopicPartition(entry["topic"], entry["partition"])
        if partition in plan:
            raise UsageError(f"{path} names {partition} twice")
        plan[partition] = replicas
    return plan


def _replicas(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, list[int]]:
    """The replicas of now. ApiError for a partition that is not there."""
    found: dict[TopicPartition, list[int]] = {}
    for topic in dict.fromkeys(partition.topic for partition in partitions):
        for placed in cluster.topic(topic).partitions:
            found[TopicPartition(topic, placed.partition_index)] = list(placed.replica_nodes)
    for partition in partitions:
        if partition not in found:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {partition.topic!r} has no partition {partition.partition}")
    return {partition: found[partition] for partition in partitions}


# Moving


def _file_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reassignment-json-file", required=True, metavar="FILE", help="partitions with their new replicas")


def _reassign_arguments(parser: argparse.ArgumentParser) -> None:
    _file_argument(parser)
    parser.add_argument("--execute", action="store_true", help="do it; without this the plan is shown")
    add_yes(parser)


def _reassign(args: argparse.Namespace) -> int:
    output = output_of(args)
    plan = read_plan(args.reassignment_json_file)
    with connect(args) as cluster:
        before = _replicas(cluster, list(plan))
        unknown = sorted({broker for replicas in plan.values() for broker in replicas} - set(cluster.brokers))
        if unknown:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {unknown[0]}; there are {_ids(cluster.brokers)}")
        errors: dict[TopicPartition, str | None] = {}
        if args.execute:
            confirm(args, f"Move replicas of {len(plan)} partitions?")
            errors = _send(cluster, {partition: list(replicas) for partition, replicas in plan.items()})
    rows = [
        {"topic": p.topic, "partition": p.partition, "replicas": before[p], "new_replicas": plan[p], "error": errors.get(p)}
        for p in sorted(plan)
    ]
    output.show("partitions", rows, COLUMNS, extra={"executed": args.execute})
    if not args.execute:
        output.note("nothing was changed; add --execute to do it")
    return 1 if any(errors.values()) else 0


def _ids(brokers: Any) -> str:
    return ", ".join(map(str, sorted(brokers)))


def _send(cluster: Cluster, plan: dict[TopicPartition, list[int] | None]) -> dict[TopicPartition, str | None]:
    """Asks for new replicas (None: cancel) and gives the name of each partition's error."""
    from ottla.wire.messages import alter_partition_reassignments as wire

    topics = [
        wire.ReassignableTopic(
            name=topic,
            partitions=[
                wire.ReassignablePartition(partition_index=number, replicas=plan[TopicPartition(topic, number)]) for number in numbers
            ],
        )
        for topic, numbers in admin.grouped(plan).items()
    ]
    request = wire.AlterPartitionReassignmentsRequest(timeout_ms=admin.timeout_ms(cluster), topics=topics)
    answer = admin.ask_controller(cluster, lambda: request, lambda found: found.error_code)
    admin.check(answer.error_code, answer.error_message, "reassignment")
    return {
        TopicPartition(topic.name, partition.partition_index): error_code(partition.error_code).name if partition.error_code else None
        for topic in answer.responses
        for partition in topic.partitions
    }


def _ongoing(cluster: Cluster) -> list[dict[str, Any]]:
    from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

    request = ListPartitionReassignmentsRequest(timeout_ms=admin.timeout_ms(cluster))
    answer = admin.ask_controller(cluster, lambda: request, lambda found: found.error_code)
    admin.check(answer.error_code, answer.error_message, "reassignments")
    return [
        {
            "topic": topic.name,
            "partition": partition.partition_index,
            "replicas": list(partition.replicas),
            "adding": list(partition.adding_replicas),
            "removing": list(partition.removing_replicas),
        }
        for topic in answer.topics
        for partition in topic.partitions
    ]


def _list(args: argparse.Namespace) -> int:
    with connect(args) as cluster:
        rows = _ongoing(cluster)
    columns = (("TOPIC", "topic"), ("PARTITION", "partition"), ("REPLICAS", "replicas"), ("ADDING", "adding"), ("REMOVING", "removing"))
    output_of(args).show("reassignments", rows, columns)
    return 0


def _verify(args: argparse.Namespace) -> int:
    """Exit code 1 while something is not as the file says."""
    plan = read_plan(args.reassignment_json_file)
    with connect(args) as cluster:
        now = _replicas(cluster, list(plan))
        moving = {(row["topic"], row["partition"]) for row in _ongoing(cluster)}
    rows = []
    for partition in sorted(plan):
        state = "in progress" if partition in moving else "complete" if now[partition] == plan[partition] else "not done"
        rows.append({"topic": partition.topic, "partition": partition.partition, "replicas": now[partition], "state": state})
    columns = (("TOPIC", "topic"), ("PARTITION", "partition"), ("REPLICAS", "replicas"), ("STATE", "state"))
    output_of(args).show("partitions", rows, columns)
    return 0 if all(row["state"] == "complete" for row in rows) else 1


def _cancel_arguments(parser: argparse.ArgumentParser) -> None:
    _file_argument(parser)
    add_yes(parser)


def _cancel(args: argparse.Namespace) -> int:
    plan = read_plan(args.reassignment_json_file)
    confirm(args, f"Cancel the moves of {len(plan)} partitions?")
    with connect(args) as cluster:
        errors = _send(cluster, dict.fromkeys(plan))
    rows = [{"topic": partition.topic, "partition": partition.partition, "error": error} for partition, error in sorted(errors.items())]
    output_of(args).show("partitions", rows, (("TOPIC", "topic"), ("PARTITION", "partition"), ("ERROR", "error")))
    return 1 if any(errors.values()) else 0


# Leaders


def _elect_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--election-type", type=str.lower, choices=tuple(ELECTION_TYPES), default="preferred", help="preferred|unclean (may lose records)")
    add("--topic", metavar="TOPIC", help="only this topic")
    add("--partition", action="append", metavar="N,...", help="only these partitions of the topic")
    add("--path-to-json-file", metavar="FILE", help="only these partitions")
    add("--all-topic-partitions", action="store_true", help="all there are")
    add_yes(parser)


def _wanted(args: argparse.Namespace, cluster: Cluster) -> list[TopicPartition] | None:
    """The partitions to elect leaders for; None is all."""
    ways = [args.topic is not None, args.path_to_json_file is not None, args.all_topic_partitions]
    if sum(ways) != 1:
        raise UsageError("say which partitions: --topic NAME, --path-to-json-file FILE or --all-topic-partitions")
    if args.path_to_json_file:
        return [TopicPartition(entry["topic"], entry["partition"]) for entry in _entries(args.path_to_json_file)]
    if args.all_topic_partitions:
        return None
    try:
        numbers = [int(part) for part in merged(args.partition)]
    except ValueError:
        raise UsageError("--partition is a number") from None
    return [TopicPartition(args.topic, number) for number in numbers or cluster.partitions(args.topic)]


def _elect(args: argparse.Namespace) -> int:
    from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    kind = ELECTION_TYPES[args.election_type]
    if kind == 1:
        confirm(args, "An unclean election may lose records that were acknowledged. Do it?")
    with connect(args) as cluster:
        wanted = _wanted(args, cluster)
        topics = (
            None if wanted is None else [TopicPartitions(topic=name, partitions=found) for name, found in admin.grouped(wanted).items()]
        )
        request = ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=admin.timeout_ms(cluster))
        answer = admin.ask_controller(cluster, lambda: request, lambda found: found.error_code)
    admin.check(answer.error_code, None, "election")
    rows = [
        {
            "topic": topic.topic,
            "partition": partition.partition_id,
            "error": error_code(partition.error_code).name if partition.error_code else None,
            "message": partition.error_message or None,
        }
        for topic in answer.replica_election_results
        for partition in topic.partition_result
    ]
    columns = (("TOPIC", "topic"), ("PARTITION", "partition"), ("ERROR", "error"), ("MESSAGE", "message"))
    output_of(args).show("partitions", rows, columns)
    # That nothing had to be done is no failure: the leader that was asked for leads already.
    return 1 if any(row["error"] not in (None, "ELECTION_NOT_NEEDED") for row in rows) else 0


COMMANDS = {
    "generate": partitions_generate.COMMAND,
    "reassign": Command("Move replicas to other brokers.", _reassign_arguments, _reassign),
    "list": Command("Moves under way.", lambda parser: None, _list, may_watch=True),
    "verify": Command("Are the moves of a file done?", _file_argument, _verify),
    "cancel": Command("Stop the moves of a file.", _cancel_arguments, _cancel),
    "elect": Command("Choose leaders anew.", _elect_arguments, _elect),
}
