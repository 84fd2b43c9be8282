"""`kafka-consumer-groups`, `kafka-share-groups` and `kafka-streams-groups` share one program; a `GroupTool` has their differences. The
module also implements `kafka-groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.analysis.resets import ResetPlan
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, UsageError, command, flag, hidden, option
from ottla.cli.groups import group, reset_offsets, share_group
from ottla.cli.groups.group_commands import Kind, check_list_filters, delete_groups, listed_groups
from ottla.cli.groups.group_options import chosen_groups, parse_scope, scope_partitions
from ottla.cli.kafka_tools import group_columns, streams_groups
from ottla.cli.kafka_tools.group_columns import ToolColumn, attribute, item, table
from ottla.cli.kafka_tools.usage import action_of, java_error, plain_message
from ottla.cli.output import write, write_error
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.core import group_admin, share_admin
from ottla.client.errors import KafkaError

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")


class GroupTool(NamedTuple):
    """The differences between the tools."""

    noun: str
    kind: Kind
    actions: Sequence[str]
    stops_at_unknown: bool
    """Whether `--describe` ends at the first group that does not exist. Otherwise it reports the group and continues."""
    remark: Callable[[Args, Any], str]
    offsets: Callable[..., str]
    without_offsets: str
    is_spaced: bool
    """Whether a blank line precedes each table of `--describe`, and two spaces precede the id of a coordinator."""
    has_empty_members: bool
    members: Callable[..., str]
    state: Callable[..., str]
    list_width: int
    """In `--list` with states or types, the first column has the length of the longest name, at least 15, plus this number of characters.
    Each other column has at least twice this number."""
    check_usage: Callable[[Args, str], None]
    active: Callable[[Args, reset_offsets.ActiveError], None]
    """Prints that the offsets of a group with members cannot be reset. With `--export`, the tools for consumer and streams groups print
    nothing."""
    delete: Callable[[Cluster, Sequence[str]], dict[str, str]]
    """Deletes groups. Returns the reason for each group that was not deleted."""
    delete_offsets: Callable[[Cluster, Args], int]
    plan_table: Callable[[Mapping[str, ResetPlan]], str]
    internal_topics: Callable[[Cluster, Args, Sequence[str]], Mapping[str, Sequence[str]]] = lambda *_: {}
    """Returns the topics to delete with each group, before anything is changed."""
    views: Mapping[str, Callable[[Cluster, str], bool]] = {}
    """More views of `--describe` by their option. Each returns whether there was something to print."""


def _add(tool: GroupTool) -> None:
    only_consumers = (
        option("--validate-regex", metavar="REGEX", help="check a regular expression for subscriptions"),
        option("--type", nargs="?", action="append", const="", metavar="TYPE[,...]", help="show types; with --list only these"),
        hidden("--new-consumer", action="store_true"),
    )
    names = [action.replace("_", "-") for action in ACTIONS]

    @command(
        f"kafka-{tool.noun}-groups",
        f"{tool.noun.capitalize()} groups, as kafka-{tool.noun}-groups has it.",
        *(flag(f"--{name}", help=f"{name} groups" if "-" not in name else name.replace("-", " ")) for name in names),
        *(only_consumers if "validate_regex" in tool.actions else ()),
        *(streams_groups.OPTIONS if tool.noun == "streams" else ()),
        option("--group", action="append", default=[], metavar="GROUP", help="a group, repeatable"),
        flag("--all-groups", help="every group"),
        option("--state", nargs="?", action="append", const="", metavar="STATE[,...]", help="show states; with --list only these"),
        flag("--members", help="the members of the group"),
        flag("--offsets", help="the offsets of the group (the default)"),
        flag("-v", "--verbose", help="more columns"),
        option("--timeout", type=int, metavar="MS", help="how long to wait for the cluster"),
        *reset_offsets.RESET_OPTIONS,
        has_output=False,
    )
    def run(args: Args, cluster: Cluster) -> int:
        return _run(tool, args, cluster)


def _run(tool: GroupTool, args: Args, cluster: Cluster) -> int:
    action = action_of(args, tool.actions)
    args.names = []
    if getattr(args, "new_consumer", False):
        write_error("--new-consumer has no effect any more\n")
    if action == "validate_regex":
        return _validate_regex(args.validate_regex)
    tool.check_usage(args, action)
    if action == "reset_offsets":
        reset_offsets.check_usage(args)
    do = {"list": _list, "describe": _describe, "delete": _delete, "reset_offsets": _reset}
    try:
        return do[action](cluster, tool, args) if action in do else tool.delete_offsets(cluster, args)
    except ApiError as error:
        _write_failure(tool, error)
    return 1


def _write_failure(tool: GroupTool, error: ApiError) -> None:
    message = java_error(error, error.message) if error.code is ErrorCode.GROUP_ID_NOT_FOUND else plain_message(error)
    write(f"\nError: Executing {tool.noun} group command failed due to {message}\n")


def _validate_regex(pattern: str) -> int:
    """Checks a pattern as the broker checks subscriptions, and prints the verdict in the words of Kafka's tool. Returns 0 in any case."""
    verdict = "valid"
    try:
        NamePattern(pattern)
    except PatternError as error:
        reason, _, place = str(error).partition(": ")
        verdict = "invalid: " + (f"{reason}: `{place}`" if place else reason)
        if reason == "invalid perl operator":
            verdict = "invalid: invalid or unsupported Perl syntax"
    write(f"The regular expression `{pattern}` is {verdict}.\n")
    return 0


def _list(cluster: Cluster, tool: GroupTool, args: Args) -> int:
    found = listed_groups(cluster, tool.kind, *check_list_filters(tool.kind, args))
    found = [listed for listed in found if listed.protocol_type in tool.kind.protocols]
    has_type = getattr(args, "type", None) is not None
    if args.state is None and not has_type:
        write("".join(f"{listed.group_id}\n" for listed in found))
        return 0
    width = max([15, *(len(listed.group_id) for listed in found)]) + tool.list_width
    shown = [ToolColumn("TYPE", lambda listed: listed.type.capitalize(), 2 * tool.list_width)] * has_type
    shown += [attribute("STATE", "state", 2 * tool.list_width)] * (args.state is not None)
    write(table([attribute("GROUP", "group_id", width), *shown], found))
    return 0


def _describe(cluster: Cluster, tool: GroupTool, args: Args) -> int:
    view = next((name for name in tool.views if getattr(args, name)), None)
    if sum((args.offsets, args.members, args.state is not None, view is not None)) > 1:
        known = ", ".join(f"[{name}]" for name in sorted(["members", "offsets", "state", *tool.views]))
        raise UsageError(f"Option [describe] takes at most one of these options: {known}")
    is_refused, before = False, "\n" * tool.is_spaced
    for name in chosen_groups(cluster, args, tool.kind.protocols):
        try:
            found = _described(cluster, tool, name)
        except ApiError as error:
            if tool.stops_at_unknown or error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            _write_failure(tool, error)
            is_refused = True
            continue
        if view is not None:
            is_refused = not tool.views[view](cluster, name) or is_refused
            continue
        if remark := tool.remark(args, found):
            write_error(f"\n{remark}\n")
        if args.members:
            if found.members or tool.has_empty_members:
                write(before + tool.members(found, is_verbose=args.verbose))
        elif args.state is not None:
            where = f"{cluster.metadata.brokers.get(found.coordinator)} {' ' * tool.is_spaced}({found.coordinator})"
            write(before + tool.state(found, where, is_verbose=args.verbose))
        elif rows := tool.kind.offset_rows(cluster, found, False):
            write(before + tool.offsets(rows, is_verbose=args.verbose))
        else:
            write(tool.without_offsets.format(name))
    return 1 if is_refused else 0


def _described(cluster: Cluster, tool: GroupTool, name: str) -> Any:
    """Describes a group. For a missing group it first writes a similar group name, if there is one, to stderr. Then it raises
    GROUP_ID_NOT_FOUND with the message of Kafka's tool."""
    try:
        return tool.kind.describe(cluster, name)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    known = [listed.group_id for listed in listed_groups(cluster, tool.kind, [])]
    if name in known:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} is not a {tool.noun} group.")
    if hint := nearest_hint(name, known):
        write_error(hint.removeprefix("; ") + "\n")
    raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")


def _reset(cluster: Cluster, tool: GroupTool, args: Args) -> int:
    named = [
        TopicPartition(topic, number)
        for topic, numbers in parse_scope(args.topic or []).items()
        for number in numbers or ()
        if number not in cluster.partitions(topic)
    ]
    if named:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{",".join(map(str, named))}" do not exist')
    try:
        plans = reset_offsets.make_plans(cluster, args, tool.kind.offsets)
    except reset_offsets.ActiveError as error:
        tool.active(args, error)
        return 1
    for plan in plans.values():
        for warning in plan.warnings:
            write_error(f"warning: {warning}\n")
    doomed = tool.internal_topics(cluster, args, list(plans))
    failures = reset_offsets.execute(cluster, plans, tool.kind.offsets) if args.execute else {}
    is_clean = streams_groups.clean_after_reset(cluster, {} if failures else doomed)
    if not args.execute and not args.dry_run:
        write_error("nothing was changed; add --execute to do it\n")
    if args.export:
        from ottla.analysis.reset_files import format_reset_file

        write(format_reset_file(plans, is_quoted=False) + "\n")
    else:
        write(tool.plan_table(plans))
    for (name, partition), failed in failures.items():
        write_error(f"error: {name}, {partition}: {failed.code.name}\n")
    return 0 if is_clean and not failures else 1


def _plan_table(plans: Mapping[str, ResetPlan]) -> str:
    rows = [(name, *step.partition, step.new) for name, plan in plans.items() for step in plan.steps]
    return "\n" + table([item("GROUP", 0), item("TOPIC", 1), item("PARTITION", 2, 10), item("NEW-OFFSET", 3, 0)], rows)


def _delete(cluster: Cluster, tool: GroupTool, args: Args) -> int:
    names = chosen_groups(cluster, args, tool.kind.protocols)
    doomed = tool.internal_topics(cluster, args, names)
    reasons = tool.delete(cluster, names)
    is_clean, remark = streams_groups.clean_after_deletion(
        cluster, {name: topics for name, topics in doomed.items() if name not in reasons}
    )
    deleted = ", ".join(f"'{name}'" for name in names if name not in reasons)
    if not reasons:
        write(f"Deletion of requested {tool.noun} groups ({deleted}) was successful.\n" if deleted else "")
    else:
        write(f"\nError: Deletion of some {tool.noun} groups failed:\n")
        write("".join(f"* Group '{name}' could not be deleted due to: {reason}\n" for name, reason in reasons.items()))
        end = "." * (tool is STREAMS)
        write(f"\nThese {tool.noun} groups were deleted successfully: {deleted}{end}\n" if deleted else "")
    write(remark)
    return 0 if is_clean and not reasons else 1


# Consumer groups


def _consumer_remark(_: Args, found: Any) -> str:
    if found.state == "Empty":
        return f"Consumer group '{found.group_id}' has no active members."
    return "" if found.state in ("Stable", "Dead") else f"Warning: Consumer group '{found.group_id}' is rebalancing."


def _active(empty_plan: str, args: Args, error: reset_offsets.ActiveError) -> None:
    if not args.export:
        why = f"Assignments can only be reset if the group '{error.group}' is inactive, but the current state is {error.state}."
        write(f"\nError: {why}\n{empty_plan}")


def _delete_committed(cluster: Cluster, args: Args) -> int:
    if len(args.group) != 1 or not args.topic:
        raise UsageError("--delete-offsets takes one --group and one or more --topic")
    return _delete_committed_of(cluster, args.group[0], sorted(_named_partitions(cluster, args.topic)))


def _delete_input(cluster: Cluster, args: Args) -> int:
    name = args.group[0]
    partitions = streams_groups.committed_input(cluster, name) if args.all_topics else _named_partitions(cluster, args.topic)
    return _delete_committed_of(cluster, name, sorted(partitions))


def _delete_committed_of(cluster: Cluster, name: str, partitions: list[TopicPartition]) -> int:
    try:
        results = group_admin.delete_offsets(cluster, name, partitions)
        failure = "Encountered some partition-level error, see the follow-up details." if any(results.values()) else ""
    except KafkaError as error:
        failure = java_error(error).partition(": ")[2]
        results = dict.fromkeys(partitions, error)
    write(f"\nError: {failure}\n" if failure else f"Request succeeded for deleting offsets from group {name}.\n")
    rows = [
        (*partition, "Successful" if failed is None else f"Error: {java_error(failed)}")
        for partition, failed in sorted(results.items(), key=lambda item: item[0])
    ]
    write("\n" + table([item("TOPIC", 0), item("PARTITION", 1, 10), item("STATUS", 2)._replace(is_fixed=True)], rows))
    return 1 if any(results.values()) else 0


def _named_partitions(cluster: Cluster, topics: Sequence[str]) -> list[TopicPartition]:
    """Returns the partitions that `--topic` selects. For a deleted topic, `--topic` must list the partitions, as in `t:0,1`."""
    found = []
    there = set(cluster.topic_names())
    for topic, numbers in parse_scope(topics).items():
        if topic not in there and numbers is not None:
            found += [TopicPartition(topic, number) for number in numbers]
        else:
            found += scope_partitions(cluster, [topic if numbers is None else f"{topic}:{','.join(map(str, numbers))}"], False, [])
    return found


# Share groups


def _share_remark(args: Args, found: Any) -> str:
    has_remark = not found.members and (args.members or args.state is not None)
    return f"Share group '{found.group_id}' has no active members." if has_remark else ""


def _check_usage(args: Args, action: str) -> None:
    """Raises UsageError for options that Kafka's tool for share groups refuses before they contact a broker."""
    if action in ("delete", "describe"):
        if args.group and args.all_groups:
            raise UsageError(f"Option [{action}] takes either [group] or [all-groups], not both.")
        if not args.group and not args.all_groups:
            raise UsageError(f"Option [{action}] takes the options [group] or [all-groups]")
    if action == "delete_offsets" and not (args.group and args.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if action == "reset_offsets" and not args.execute and not args.dry_run:
        raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if action in ("reset_offsets", "delete_offsets") and len(args.group) != 1:
        raise UsageError("--reset-offsets and --delete-offsets take one --group")


def _delete_of_kind(kind: Kind, why_unknown: str, cluster: Cluster, names: Sequence[str]) -> dict[str, str]:
    known = {listed.group_id for listed in listed_groups(cluster, kind, [])}
    reasons = {name: f"java.lang.IllegalArgumentException: Group '{name}' {why_unknown}." for name in names if name not in known}
    for name, error in delete_groups(cluster, [name for name in names if name in known]).items():
        is_active = error.code is ErrorCode.NON_EMPTY_GROUP
        reasons[name] = java_error(error, f"{kind.noun.capitalize()} '{name}' is not EMPTY." if is_active else "")
    return reasons


def _delete_starts(cluster: Cluster, args: Args) -> int:
    topics = list(dict.fromkeys(args.topic))
    why = {}
    try:
        _described(cluster, SHARES, args.group[0])
        results = share_admin.delete_share_offsets(cluster, args.group[0], topics)
    except ApiError as error:
        found = error.message if error.code is ErrorCode.GROUP_ID_NOT_FOUND else java_error(error).partition(": ")[2]
        write(f"\nError: {found}\n")
        why = dict.fromkeys(topics, found)
    else:
        why = {topic: java_error(error).partition(": ")[2] for topic, error in results.items() if error is not None}
    status = ToolColumn("STATUS", lambda topic: f"Error: {why[topic]}" if topic in why else "Successful", 0)
    write("\n" + table([ToolColumn("TOPIC", str), status], topics))
    return 1 if why else 0


CONSUMERS = GroupTool(
    noun="consumer",
    kind=group.KIND,
    actions=(*ACTIONS, "validate_regex"),
    stops_at_unknown=False,
    remark=_consumer_remark,
    offsets=partial(table, group_columns.CONSUMER_OFFSETS),
    without_offsets="",
    is_spaced=True,
    has_empty_members=True,
    members=group_columns.consumer_members,
    state=group_columns.consumer_state,
    list_width=10,
    check_usage=lambda args, action: None,
    active=partial(_active, _plan_table({})),
    delete=lambda cluster, names: {name: java_error(error) for name, error in delete_groups(cluster, names).items()},
    delete_offsets=_delete_committed,
    plan_table=_plan_table,
)
SHARES = GroupTool(
    noun="share",
    kind=share_group.KIND,
    actions=ACTIONS,
    stops_at_unknown=True,
    remark=_share_remark,
    offsets=partial(table, group_columns.SHARE_OFFSETS),
    without_offsets="\nShare group '{}' has no offset information.\n",
    is_spaced=True,
    has_empty_members=False,
    members=group_columns.share_members,
    state=group_columns.share_state,
    list_width=0,
    check_usage=_check_usage,
    active=lambda _, error: write_error(f"Share group '{error.group}' is not empty.\n"),
    delete=partial(_delete_of_kind, share_group.KIND, "is not a share group"),
    delete_offsets=_delete_starts,
    plan_table=_plan_table,
)

STREAMS = GroupTool(
    noun="streams",
    kind=streams_groups.KIND,
    actions=ACTIONS,
    stops_at_unknown=True,
    remark=lambda args, found: "" if args.state is not None else streams_groups.KIND.remark(found),
    offsets=group_columns.streams_offsets,
    without_offsets="",
    is_spaced=False,
    has_empty_members=False,
    members=group_columns.streams_members,
    state=group_columns.streams_state,
    list_width=0,
    check_usage=streams_groups.check_usage,
    active=partial(_active, streams_groups.plan_table({})),
    delete=partial(_delete_of_kind, streams_groups.KIND, "does not exist or is not a streams group"),
    delete_offsets=_delete_input,
    plan_table=streams_groups.plan_table,
    internal_topics=streams_groups.topics_to_delete,
    views={"topology": streams_groups.write_topology},
)

for _tool in (CONSUMERS, SHARES, STREAMS):
    _add(_tool)


@command(
    "kafka-groups",
    "Groups of every kind, as kafka-groups has it.",
    flag("--list", help="list groups of every kind"),
    option("--group-type", metavar="TYPE", help="classic, consumer, share or streams"),
    option("--protocol", metavar="PROTOCOL", help="only groups of this protocol"),
    *(flag(f"--{kind}", help=f"only {kind} groups") for kind in ("consumer", "share", "streams")),
    has_output=False,
)
def _groups(args: Args, cluster: Cluster) -> None:
    if not args.list:
        raise UsageError('Missing required argument "[list]"')
    found = group_admin.list_groups(cluster)
    if args.consumer:  # as in Kafka: classic groups of consumers, and groups of the consumer protocol
        found = [listed for listed in found if listed.protocol_type in ("consumer", "") and listed.type.lower() in ("classic", "consumer")]
    kinds = [args.group_type] if args.group_type else ["share"] * args.share + ["streams"] * args.streams
    found = [listed for listed in found if (not kinds or listed.type.lower() in kinds)]
    found = [listed for listed in found if args.protocol is None or listed.protocol_type == args.protocol]
    width = max([20, *(len(listed.group_id) for listed in found)])
    write(f"{'GROUP':<{width}} {'TYPE':<{width}} {'PROTOCOL':<{width}}\n")
    for listed in found:
        write(f"{listed.group_id:<{width}} {listed.type.capitalize():<{width}} {listed.protocol_type:<{width}} \n")
