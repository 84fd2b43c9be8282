"""The parts of `kafka-streams-groups` that no other tool has: topologies (KIP-1331), internal topics, and the usage of its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.analysis.resets import ResetPlan
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, UsageError, flag, option
from ottla.cli.groups import streams_group
from ottla.cli.groups.group_commands import Kind, listed_groups
from ottla.cli.kafka_tools.group_columns import item, table
from ottla.cli.kafka_tools.usage import java_error
from ottla.cli.output import write
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin, streams_admin
from ottla.client.core.streams_admin import TopologyNode

OPTIONS = (
    option("--input-topic", action="append", dest="topic", metavar="TOPIC[:P,...]", help="a source topic; repeatable"),
    flag("--all-input-topics", dest="all_topics", help="all source topics of the topology"),
    flag("--topology", help="the topology of the application"),
    flag("--delete-all-internal-topics", help="delete the group's repartition and changelog topics too"),
    option("--delete-internal-topic", action="append", metavar="TOPIC", help="delete this internal topic too; repeatable"),
)
INFERRED = ("-changelog", "-repartition", "-subscription-registration-topic", "-subscription-response-topic")
"""Ends of the names of internal topics. Kafka Streams also names topics of a foreign-key join as in `INFERRED_OF_JOINS`."""
INFERRED_OF_JOINS = ("-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-", "-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-")
RESET_WIDTH = 30


def check_usage(args: Args, action: str) -> None:
    """Raises UsageError for options that Kafka's tool refuses before it contacts a broker."""
    groups = "one of these options: [all-groups], [group]"
    if action in ("delete", "describe", "reset_offsets") and not args.group and not args.all_groups:
        raise UsageError(f"Option [{action.replace('_', '-')}] takes {groups}")
    if action in ("delete", "describe", "reset_offsets") and args.group and args.all_groups:
        raise UsageError(f"Option [{action.replace('_', '-')}] takes either [group] or [all-groups], not both.")
    if action == "describe" and any(args.state or ()):
        raise UsageError("Option [describe] does not take a value for [state]")
    if action == "delete" and args.topic:
        raise UsageError("Kafka Streams does not support topic-specific offset deletion from a streams group.")
    if action == "delete_offsets":
        if not args.group or not (args.topic or args.all_topics):
            raise UsageError("Option [delete-offsets] takes the [group] and one of these options: [all-input-topics], [input-topic]")
        if len(args.group) > 1:
            found = ", ".join(args.group)
            raise UsageError(f"Option [delete-offsets] supports only one [group] at a time, but found: [{found}]")
    if action == "reset_offsets" and not args.execute and not args.dry_run:
        raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if args.delete_all_internal_topics and action not in ("delete", "reset_offsets"):
        raise UsageError("Option [delete-all-internal-topics] takes one of these options: [delete], [reset-offsets]")
    if args.delete_all_internal_topics and action == "reset_offsets" and not args.execute:
        raise UsageError("Option [delete-all-internal-topics] takes [execute] when [reset-offsets] is used.")
    if args.delete_internal_topic and not (action == "reset_offsets" and args.execute):
        raise UsageError("Option [delete-internal-topic] takes [reset-offsets] when [execute] is used.")


def committed_input(cluster: Cluster, name: str) -> dict[TopicPartition, int | None]:
    """Returns the committed offsets of the source topics: the partitions of `--all-input-topics`."""
    return {partition: offset for partition, offset in streams_group.source_offsets(cluster, name).items() if offset is not None}


KIND: Kind = streams_group.KIND._replace(
    offsets=streams_group.KIND.offsets._replace(offsets=committed_input),
    offset_rows=lambda cluster, group, is_wide: streams_group.offset_rows(cluster, group, is_wide) if group.members else [],
)
"""As Kafka's tool has it: a group without members has no rows of offsets."""


def plan_table(plans: Mapping[str, ResetPlan]) -> str:
    """Returns the plan of a reset, with a blank line before it and with the widths of Kafka's tool."""
    rows = [(name, *step.partition, step.new) for name, plan in plans.items() for step in plan.steps]
    columns = [item("GROUP", 0, RESET_WIDTH), item("TOPIC", 1, RESET_WIDTH), item("PARTITION", 2, 10), item("NEW-OFFSET", 3)]
    return "\n" + table([column._replace(is_fixed=True) for column in columns], rows)


# Internal topics


def topics_to_delete(cluster: Cluster, args: Args, names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the internal topics to delete with each group, and prints the topics whose names do not show that they are internal. Raises
    `ApiError` INVALID_TOPIC_EXCEPTION if a named topic is not an internal topic of one of the groups: nothing is changed then.
    """
    if not args.delete_all_internal_topics and not args.delete_internal_topic:
        return {}
    known = {listed.group_id for listed in listed_groups(cluster, streams_group.KIND, [])}
    found = {name: _internal_topics(cluster, name) for name in names if name in known}
    if args.delete_internal_topic:
        wanted = list(dict.fromkeys(args.delete_internal_topic))
        for topic in wanted:
            if not any(topic in topics for topics in found.values()):
                message = f"'{topic}' is not an internal topic of the group '{','.join(names)}'."
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        return {name: [topic for topic in wanted if topic in topics] for name, topics in found.items()}
    for name, topics in found.items():
        for topic in [topic for topic in topics if not is_inferred(topic, name)]:
            why = f"is not inferred as internal and thus will not be deleted with the group '{name}'."
            write(f"\nError: The internal topic '{topic}' {why}\n")
            topics.remove(topic)
    return {name: topics for name, topics in found.items() if topics}


def _internal_topics(cluster: Cluster, name: str) -> list[str]:
    group = streams_group.describe(cluster, name)
    return [topic for topic in (*group.repartition_topics, *group.changelog_topics) if topic not in group.source_topics]


def is_inferred(topic: str, group: str) -> bool:
    """Whether a topic has a name that Kafka Streams gives to the internal topics of this application."""
    if not topic.startswith(f"{group}-"):
        return False
    head, _, number = topic.removesuffix("-topic").rpartition("-")
    return topic.endswith(INFERRED) or (topic.endswith("-topic") and f"{head}-".endswith(INFERRED_OF_JOINS) and number.isdigit())


def delete_topics(cluster: Cluster, topics: Sequence[str]) -> ApiError | None:
    """Deletes internal topics. Returns the first error, and prints the topics that were not deleted."""
    failed = {topic: error for topic, error in admin.delete_topics(cluster, topics).items() if error is not None}
    write("".join(f"Failed to delete internal topic: {topic}\n" for topic in failed))
    return next(iter(failed.values()), None)


def clean_after_reset(cluster: Cluster, doomed: Mapping[str, Sequence[str]]) -> bool:
    """Deletes the internal topics of groups whose offsets were reset. Returns whether all are deleted."""
    is_whole = True
    for name, topics in doomed.items():
        if error := delete_topics(cluster, topics) if topics else None:
            is_whole, is_missing = False, error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            why = "because the topics do not exist." if is_missing else f"due to {java_error(error)}"
            write(f"\nError: Deleting internal topics for group '{name}' failed {why}\n")
    return is_whole


def clean_after_deletion(cluster: Cluster, doomed: Mapping[str, Sequence[str]]) -> tuple[bool, str]:
    """Deletes the internal topics of deleted groups. Returns whether all are deleted, and the text about it."""
    failed = {name: error for name, topics in doomed.items() if (error := delete_topics(cluster, topics)) is not None}
    if failed:
        about = "* Internal topics of the streams group '{}' could not be deleted due to: {}\n"
        lines = [about.format(name, java_error(error)) for name, error in failed.items()]
        return False, "".join(["Deletion of some associated internal topics failed:\n", *lines])
    deleted = "', '".join(doomed)
    return True, f"Deletion of associated internal topics of the streams groups ('{deleted}') was successful.\n" if doomed else ""


# The topology


def write_topology(cluster: Cluster, name: str) -> bool:
    """Prints the topology as Kafka Streams describes it. Returns False if no member has described it."""
    nodes = streams_admin.describe_topology(cluster, name)
    if nodes is None:
        write(f"\nError: No topology description is stored for streams group '{name}'.\n")
        return False
    write(topology_text(nodes) + "\n")
    return True


def topology_text(nodes: Sequence[TopologyNode]) -> str:
    """Returns the text: the nodes of each subtopology, with their predecessors and successors. Global stores are the last parts."""
    parts: dict[str, list[TopologyNode]] = {}
    for node in nodes:
        if node.subtopology is not None:
            parts.setdefault(node.subtopology, []).append(node)
    stores = [node for node in nodes if node.subtopology is None]
    titled = list(parts.items())
    for number in range(0, len(stores), 2):
        titled.append((f"{len(titled)} for global store (will not generate tasks)", stores[number : number + 2]))
    texts = [f"   Sub-topology: {title}\n" + "".join([_node_text(node, mine) for node in mine]) + "\n" for title, mine in titled]
    return "Topologies:\n" + "".join(texts)


def _node_text(node: TopologyNode, others: Sequence[TopologyNode]) -> str:
    before = [other.name for other in others if node.name in other.successors]
    after = f"      --> {', '.join(node.successors) or 'none'}\n"
    behind = f"      <-- {', '.join(before) or 'none'}\n"
    if node.kind == 1:
        return f"    Source: {node.name} (topics: [{', '.join(node.topics)}])\n{after}"
    if node.kind == 3:
        return f"    Sink: {node.name} (topic: {', '.join(node.topics) or '-'})\n{behind}"
    return f"    Processor: {node.name} (stores: [{', '.join(node.stores)}])\n{after}{behind}"
