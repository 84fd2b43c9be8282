"""`kafka-topics`: Kafka's options, lines and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import Args, UsageError, command, flag, hidden, option, parse_pairs
from ottla.cli.kafka_tools.usage import Once, action_of, plain_message
from ottla.cli.output import write, write_error
from ottla.cli.topics.topic_names import chosen_topics, parse_replica_assignment
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.core import admin

if TYPE_CHECKING:
    from ottla.cli.topics.topic import PartitionRow

ACTIONS = ("list", "describe", "create", "alter", "delete")
FILTERS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "topics-with-overrides",
)


class _Missing(Exception):
    """A required topic does not exist. The message is the message of Kafka's tool; `hint` is added by Ottla and may be empty."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@command(
    "kafka-topics",
    "Topics, as kafka-topics has it.",
    *(flag(f"--{action}", help=f"{action} topics") for action in ACTIONS),
    option("--topic", action=Once, metavar="TOPIC", help="a topic; a regular expression except with --create"),
    option("--topic-id", action=Once, metavar="ID", help="with --describe: a topic by its id"),
    option("--partitions", type=int, action=Once, metavar="N", help="how many"),
    option("--replication-factor", type=int, action=Once, metavar="N", help="how many copies"),
    option("--replica-assignment", action=Once, metavar="0:1,1:2", help="brokers of each partition"),
    option("--config", action="append", metavar="KEY=VALUE", help="a setting of the topic"),
    option("--delete-config", action="append", metavar="KEY", help="reset a setting to its default"),
    flag("--if-exists", help="no error when there is no such topic"),
    flag("--if-not-exists", help="no error when the topic exists"),
    flag("--exclude-internal", help="leave out internal topics"),
    *(flag(f"--{name}", help="with --describe: only these") for name in FILTERS),
    hidden("--partition-size-limit-per-response", type=int),
    hidden("--force", action="store_true"),
    has_output=False,
)
def _run(args: Args, cluster: Cluster) -> int:
    action = action_of(args, ACTIONS)
    if action in ("create", "alter", "delete") and not args.topic:
        raise UsageError('Missing required argument "[topic]"')
    do = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}[action]
    try:
        return do(cluster, args)
    except ApiError as error:
        write(f"Error while executing topic command : {plain_message(error)}\n")
    except _Missing as missing:
        write(f"Error while executing topic command : {missing}\n")
        write_error(f"{missing.hint}\n" if missing.hint else "")
    return 1


def _names(cluster: Cluster, args: Args, *, must_exist: bool) -> list[str]:
    """Returns the names of the chosen topics. With `must_exist`, raises `_Missing` if none matches and `--if-exists` is not given."""
    wanted = Args(
        names=[],
        topic=[args.topic] if args.topic else None,
        topic_id=[args.topic_id] if args.topic_id else None,
        exclude_internal=args.exclude_internal,
    )
    found = [str(topic.name) for topic in chosen_topics(cluster, wanted, is_optional=True)]
    if must_exist and not found and not args.if_exists and (args.topic or args.topic_id):
        if args.topic_id:
            raise _Missing(f"TopicId '{args.topic_id}' does not exist as expected", "")
        hint = nearest_hint(args.topic, cluster.topic_names())
        raise _Missing(f"Topic '{args.topic}' does not exist as expected", hint.removeprefix("; "))
    return found


def _list(cluster: Cluster, args: Args) -> int:
    write("".join(f"{name}\n" for name in _names(cluster, args, must_exist=False)))
    return 0


def _describe(cluster: Cluster, args: Args) -> int:
    from ottla.cli.topics import topic

    names = _names(cluster, args, must_exist=True)
    answer = cluster.refresh(None)
    described = topic.describe(cluster, [found for found in answer.topics if found.name in set(names)], args)
    for found in sorted(described, key=lambda found: found.name):
        if not topic.has_partition_filters(args):
            write(
                f"Topic: {found.name}\tTopicId: {found.topic_id}\tPartitionCount: {found.partition_count}\t"
                f"ReplicationFactor: {found.replication_factor}\tConfigs: {topic.configs_text(found)}\n"
            )
        if not args.topics_with_overrides:
            write("".join(map(_partition_line, found.partitions)))
    return 0


def _partition_line(row: PartitionRow) -> str:
    leader = "none" if row.leader is None else row.leader
    replicas, isr, elr, last_known = map(_ids, (row.replicas, row.isr, row.elr, row.last_known_elr))
    start = f"\tTopic: {row.topic}\tPartition: {row.partition}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"
    return f"{start}\tElr: {elr}\tLastKnownElr: {last_known}\n"


def _ids(brokers: Sequence[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _create(cluster: Cluster, args: Args) -> int:
    if args.replica_assignment and (args.partitions is not None or args.replication_factor is not None):
        raise UsageError("--replica-assignment sets both numbers; leave out --partitions and --replication-factor")
    for value, noun in ((args.partitions, "partitions"), (args.replication_factor, "replication factor")):
        if value is not None and not 1 <= value <= (32767 if noun != "partitions" else 2**31 - 1):
            limit = " and less than or equal to 32767" if noun != "partitions" else ""
            write(f"Error while executing topic command : The {noun} must be greater than 0{limit}\n")
            return 1
    if any(letter in args.topic for letter in "._"):
        write_error("note: names that differ only in '.' and '_' get the same metric; use one of the two\n")
    placed = parse_replica_assignment(args.replica_assignment)
    try:
        admin.create_topic(
            cluster,
            args.topic,
            partitions=args.partitions or -1,
            replication_factor=args.replication_factor or -1,
            assignments=None if placed is None else dict(enumerate(placed)),
            configs=parse_pairs(args.config, "--config"),
        )
    except ApiError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and args.if_not_exists:
            return 0
        raise
    write(f"Created topic {args.topic}.\n")
    return 0


def _alter(cluster: Cluster, args: Args) -> int:
    """Adds partitions. Also changes settings, as Kafka's tool did before 3.0."""
    names = _names(cluster, args, must_exist=True)
    changes = parse_pairs(args.config, "--config")
    if args.partitions is None and not changes and not args.delete_config:
        raise UsageError('Missing required argument "[partitions]"')
    for name in names:
        if args.partitions is not None:
            placed = parse_replica_assignment(args.replica_assignment)
            before = len(cluster.partitions(name))
            admin.create_partitions(cluster, name, args.partitions, assignments=placed and placed[before:])
        if changes or args.delete_config:
            admin.alter_configs(cluster, admin.TOPIC_RESOURCE, name, changes=changes, deletions=args.delete_config or [])
    return 0


def _delete(cluster: Cluster, args: Args) -> int:
    names = _names(cluster, args, must_exist=True)
    results = admin.delete_topics(cluster, names) if names else {}
    for error in results.values():
        if error is not None:
            raise error
    return 0
