"""`ottla partitions generate`: proposes replicas for the partitions of some topics, in the format that `reassign` reads.

The formula is Kafka's for brokers without racks. Leaders are assigned round-robin; after each round over all brokers, the distance from the
leader to its followers grows by one broker. Kafka's tool begins at a random broker. Here each topic begins one broker after the previous
topic, so that the same input gives the same proposal. The command changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.counted import counted
from ottla.base.types import TopicPartition
from ottla.cli.cluster.moves import as_json, tree
from ottla.cli.command import Args, UsageError, command, flag, merged, option
from ottla.cli.input_files import read_json
from ottla.cli.output import write
from ottla.cli.render.ottla import Output
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.replica_admin import log_dirs_of


@command(
    "partitions generate",
    "Propose replicas for the partitions of some topics.",
    option("--topics-to-move-json-file", required=True, metavar="FILE", help='topics: {"version": 1, "topics": [{"topic": "t"}]}'),
    option("--broker-list", required=True, action="append", metavar="ID,...", help="the brokers to place replicas on"),
    flag("--disable-rack-aware", help="accepted and ignored: racks are not considered"),
)
def _run(args: Args, cluster: Cluster, output: Output) -> None:
    brokers = read_brokers(merged(args.broker_list))
    topics = read_topics(args.topics_to_move_json_file)
    now: dict[TopicPartition, list[int]] = {}
    proposed: dict[TopicPartition, list[int]] = {}
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
    if output.is_structured:
        output.show_object({"current": tree(now, lie), "proposed": tree(proposed, {})})
    else:
        write(f"Current partition replica assignment\n{as_json(now, lie)}\n\n")
        write(f"Proposed partition reassignment configuration\n{as_json(proposed, {})}\n")


def place(partitions: int, copies: int, brokers: Sequence[int], *, start: int) -> list[list[int]]:
    """Returns the replicas of each partition, the preferred leader first (Kafka's `assignReplicasToBrokersRackUnaware`)."""
    count = len(brokers)
    return [
        [
            brokers[(index + start) % count],
            *(brokers[(index + start + 1 + (index // count + further) % (count - 1)) % count] for further in range(copies - 1)),
        ]
        for index in range(partitions)
    ]


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
