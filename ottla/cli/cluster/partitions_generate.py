"""`ottla partitions generate`: proposes replicas for the partitions of some topics, in the format that `reassign` reads.

The formula is Kafka's for brokers without racks: leaders go round the brokers, and in each further round the followers are one broker
further away. Kafka's tool begins at a random broker; here each topic begins one broker after the previous topic, so that the same input
gives the same proposal. Nothing is changed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.base.counted import counted
from ottla.base.types import TopicPartition
from ottla.cli.command import Command, UsageError, merged
from ottla.cli.input_files import read_json
from ottla.cli.options import connect, output_of
from ottla.cli.output import write
from ottla.client.core.replica_admin import Replica, log_dirs_of

LogDirs = Mapping[Replica, tuple[str, str]]
"""The log directory of each replica, and the one that it is being moved to."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topics-to-move-json-file", required=True, metavar="FILE", help='topics: {"version": 1, "topics": [{"topic": "t"}]}')
    add("--broker-list", required=True, action="append", metavar="ID,...", help="the brokers to place replicas on")
    add("--disable-rack-aware", action="store_true", help="accepted and ignored: racks are not considered")


def _run(args: argparse.Namespace) -> int:
    brokers = read_brokers(merged(args.broker_list))
    topics = read_topics(args.topics_to_move_json_file)
    now: dict[TopicPartition, list[int]] = {}
    proposed: dict[TopicPartition, list[int]] = {}
    with connect(args) as cluster:
        cluster.refresh([])
        unknown = sorted(set(brokers) - set(cluster.brokers))
        if unknown:
            raise UsageError(f"there is no broker {unknown[0]}; there are {', '.join(map(str, sorted(cluster.brokers)))}")
        for number, topic in enumerate(topics):
            placed = {found.partition_index: list(found.replica_nodes) for found in cluster.topic(topic).partitions}
            copies = len(placed[min(placed)])
            if copies > len(brokers):
                named = counted(len(brokers), "broker")
                raise UsageError(f"topic {topic!r} has {copies} replicas of each partition, and --broker-list names only {named}")
            for index, replicas in enumerate(place(len(placed), copies, brokers, start=number)):
                now[TopicPartition(topic, index)] = placed[index]
                proposed[TopicPartition(topic, index)] = replicas
        lie = log_dirs_of(cluster, sorted(cluster.brokers), topics)
    output = output_of(args)
    if output.is_structured:
        output.show_object({"current": tree(now, lie), "proposed": tree(proposed, {})})
    else:
        write(f"Current partition replica assignment\n{as_json(now, lie)}\n\n")
        write(f"Proposed partition reassignment configuration\n{as_json(proposed, {})}\n")
    return 0


def place(partitions: int, copies: int, brokers: Sequence[int], *, start: int) -> list[list[int]]:
    """Replicas of each partition, the preferred leader first (Kafka's `assignReplicasToBrokersRackUnaware`)."""
    count = len(brokers)
    return [
        [
            brokers[(index + start) % count],
            *(brokers[(index + start + 1 + (index // count + further) % (count - 1)) % count] for further in range(copies - 1)),
        ]
        for index in range(partitions)
    ]


def tree(plan: Mapping[TopicPartition, Sequence[int]], lie: LogDirs) -> dict[str, Any]:
    """The plan as Kafka's tool writes it, with the known directories."""
    entries = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": list(replicas),
            "log_dirs": [lie.get(Replica(key, broker), ("any", ""))[0] for broker in replicas],
        }
        for key, replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": entries}


def as_json(plan: Mapping[TopicPartition, Sequence[int]], lie: LogDirs) -> str:
    return json.dumps(tree(plan, lie), separators=(",", ":"))


def read_brokers(words: list[str]) -> list[int]:
    try:
        brokers = [int(word) for word in words]
    except ValueError:
        raise UsageError("--broker-list is a list of broker ids, such as 0,1,2") from None
    if not brokers or len(set(brokers)) != len(brokers):
        raise UsageError("--broker-list names no broker, or one twice")
    return brokers


def read_topics(path: str) -> list[str]:
    found = read_json(path)
    entries = found.get("topics") if isinstance(found, dict) else None
    entries = entries if isinstance(entries, list) else []
    named = [entry.get("topic") for entry in entries if isinstance(entry, dict)]
    topics = [topic for topic in named if isinstance(topic, str)]
    if not topics or len(topics) != len(entries) or len(set(topics)) != len(topics):
        raise UsageError(f'{path} is not {{"version": 1, "topics": [{{"topic": "t"}}, ...]}} with each topic once')
    return topics


COMMAND = Command("Propose replicas for the partitions of some topics.", _arguments, _run)
