"""Implements `ottla group reset-offsets`. The options choose partitions (the scope), the new offsets (the scenario), and whether to execute
or only show the plan (the mode). `analysis/resets.py` makes the plan.

The order is fixed: check the usage, check that every group is inactive, make all plans (every partition needs a leader), commit them if
`--execute` is given, and show them with the errors. An error before the commit has changed nothing. Kinds of groups store offsets
differently: consumer groups commit offsets, share groups have a start offset for each partition. An `OffsetStore` has one interface for
both. A file that `--export` has printed for one kind of group is valid for the others, so a share group can begin where a consumer group is
(KIP-1323).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.analysis.resets import Facts, ResetPlan, bounds_of, plan
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, Refused, UsageError, flag, headed, option
from ottla.cli.groups.group_options import CONSUMERS, chosen_groups, scope_partitions
from ottla.cli.input_files import read_text
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row, column
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.core import group_admin
from ottla.client.core.admin import OffsetAt, list_offsets

SCENARIOS = ("to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "to_datetime", "by_duration", "from_file", "to_group")


class ResetRow(Row):
    group: str
    topic: str
    partition: int
    new_offset: int
    old_offset: int | None
    distance: int | None
    error: str | None = column(wide=True)


class ActiveError(Refused):
    """A group has members, so its offsets cannot be reset."""

    def __init__(self, group: str, state: str) -> None:
        message = f"offsets can only be reset while the group is inactive, but group {group!r} is in state {state}"
        super().__init__(f"{message}; stop its members first", "NON_EMPTY_GROUP")
        self.group = group
        self.state = state


class OffsetStore(NamedTuple):
    """How one kind of group stores offsets: functions that return the state of a group (empty if the group does not exist), return its
    stored offsets, and set them."""

    protocols: Sequence[str]
    state: Callable[[Cluster, str], str]
    offsets: Callable[[Cluster, str], Mapping[TopicPartition, int | None]]
    set_offsets: Callable[[Cluster, str, Mapping[TopicPartition, int]], Mapping[TopicPartition, ApiError | None]]


COMMITTED = OffsetStore(
    CONSUMERS,
    lambda cluster, group: group_admin.describe_group(cluster, group).state,
    lambda cluster, group: {place: found.offset for place, found in group_admin.committed_offsets(cluster, group).items()},
    group_admin.commit_offsets,
)

RESET_OPTIONS = (
    *headed(
        "scope",
        flag("--all-topics", help="all partitions that the group has committed"),
        option("--topic", action="append", metavar="TOPIC[:P,...]", help="a topic, or some of its partitions; repeatable"),
    ),
    *headed(
        "scenario (one of)",
        flag("--to-earliest", help="to the first record"),
        flag("--to-latest", help="to the end"),
        flag("--to-current", help="to the committed offset, or to the end without one"),
        option("--to-offset", type=int, metavar="N", help="to this offset"),
        option("--shift-by", type=int, metavar="N", help="forward, or back if negative"),
        option("--to-datetime", metavar="TIME", help="to the first record at or after YYYY-MM-DDTHH:mm:SS.sss"),
        option("--by-duration", metavar="PnDTnHnMnS", help="to the first record after now minus this"),
        option("--from-file", metavar="FILE.csv", help="to the offsets in a file"),
        option("--to-group", metavar="GROUP", help="to the committed offsets of another group"),
    ),
    *headed(
        "mode",
        flag("--dry-run", help="show the plan, change nothing (the default)"),
        flag("--execute", help="commit the plan"),
        flag("--export", help="print the plan as CSV for --from-file"),
    ),
)


def run(args: Args, cluster: Cluster, output: Output, store: OffsetStore) -> int:
    plans = make_plans(cluster, args, store)
    for found in plans.values():
        for warning in found.warnings:
            output.note(f"warning: {warning}")
    failures = execute(cluster, plans, store) if args.execute else {}
    _show(output, args, plans, failures)
    if not args.execute and not args.dry_run:
        output.note("nothing was changed; add --execute to do it")
    return 1 if failures else 0


def make_plans(cluster: Cluster, args: Args, store: OffsetStore) -> dict[str, ResetPlan]:
    """Makes the plan of each group and changes nothing. Raises `ActiveError` when a group has members."""
    scenario = check_usage(args)
    groups = chosen_groups(cluster, args, store.protocols)
    file = _read_file(args.from_file, groups) if scenario == "from_file" else {}
    for group in groups:
        state = store.state(cluster, group)
        if state not in group_admin.INACTIVE_STATES and state != "":
            raise ActiveError(group, state)
    return {group: _plan(cluster, args, scenario, store, group, file.get(group, {})) for group in groups}


def check_usage(args: Args) -> str:
    """Returns the chosen scenario. Raises `UsageError` for options that exclude each other or are missing, before a broker is asked. The
    list of partitions in `--topic` and the file of `--from-file` are checked later."""
    given_to = {name: getattr(args, name) for name in SCENARIOS}
    chosen = [name for name, value in given_to.items() if value is not None and value is not False]  # an offset of 0 is a value too
    if len(chosen) != 1:
        given = " and ".join("--" + name.replace("_", "-") for name in chosen)
        raise UsageError(f"{given} exclude each other" if chosen else "give a target: --to-earliest, --to-offset N, --shift-by N and so on")
    if args.execute and args.dry_run:
        raise UsageError("--dry-run and --execute exclude each other")
    if args.all_topics and args.topic:
        raise UsageError("either --topic or --all-topics, not both")
    if chosen[0] != "from_file" and not args.all_topics and not args.topic:
        raise UsageError("give topics: --all-topics, --topic TOPIC or --topic TOPIC:PARTITION,...")
    if chosen[0] == "from_file" and (args.all_topics or args.topic):
        raise UsageError("the file names the partitions; leave out --topic and --all-topics")
    if chosen[0] == "to_datetime":
        from ottla.cli.moments import parse_datetime_ms

        parse_datetime_ms(args.to_datetime)
    elif chosen[0] == "by_duration":
        from ottla.cli.moments import parse_duration_ms

        parse_duration_ms(args.by_duration)
    return chosen[0]


def _read_file(path: str, groups: list[str]) -> dict[str, dict[TopicPartition, int]]:
    from ottla.analysis.reset_files import parse_reset_file

    text = read_text(path)
    try:
        return parse_reset_file(text, path, groups)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _plan(cluster: Cluster, args: Args, scenario: str, store: OffsetStore, group: str, file: Mapping[TopicPartition, int]) -> ResetPlan:
    committed = store.offsets(cluster, group)
    given: dict[TopicPartition, int] = dict(file)
    if scenario == "from_file":
        partitions = sorted(given)
        for topic in {partition.topic for partition in partitions}:
            cluster.topic(topic)
    else:
        partitions = scope_partitions(cluster, args.topic, args.all_topics, list(committed))
    if scenario == "to_group":
        other = {partition: offset for partition, offset in store.offsets(cluster, args.to_group).items() if offset is not None}
        if not other:
            hint = nearest_hint(
                args.to_group, [listed.group_id for listed in group_admin.list_groups(cluster) if listed.group_id != args.to_group]
            )
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {args.to_group!r} has committed no offsets of these partitions{hint}")
        partitions = [partition for partition in partitions if partition in other] if not args.all_topics else sorted(other)
        given = {partition: other[partition] for partition in partitions}
    bounds = bounds_of(cluster, partitions)
    facts = Facts(bounds, committed, _at_time(cluster, args, scenario, partitions), given)
    number = args.to_offset if scenario == "to_offset" else args.shift_by if scenario == "shift_by" else 0
    try:
        return plan(scenario, partitions, facts, number)
    except ApiError as error:  # not an error of a broker: no plan can be made
        raise Refused(error.message, error.code.name) from None


def _at_time(cluster: Cluster, args: Args, scenario: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    from ottla.analysis.moments import now_ms
    from ottla.cli.moments import parse_datetime_ms, parse_duration_ms

    if scenario == "to_datetime":
        moment = parse_datetime_ms(args.to_datetime)
    elif scenario == "by_duration":
        moment = now_ms() - parse_duration_ms(args.by_duration)
    else:
        return {}
    found = list_offsets(cluster, dict.fromkeys(partitions, max(0, moment)))
    return {partition: result.offset for partition, result in found.items() if isinstance(result, OffsetAt)}


def execute(cluster: Cluster, plans: Mapping[str, ResetPlan], store: OffsetStore) -> dict[tuple[str, TopicPartition], ApiError]:
    failures = {}
    for group, found in plans.items():
        if found.steps:
            results = store.set_offsets(cluster, group, {step.partition: step.new for step in found.steps})
            failures.update({(group, partition): error for partition, error in results.items() if error is not None})
    return failures


def _show(output: Output, args: Args, plans: Mapping[str, ResetPlan], failures: Mapping[tuple[str, TopicPartition], ApiError]) -> None:
    if args.export and not output.is_structured:
        from ottla.analysis.reset_files import format_reset_file

        write(format_reset_file(plans))
        return
    rows = []
    for group, found in plans.items():
        for step in found.steps:
            error = failures.get((group, step.partition))
            distance = None if step.old is None else step.new - step.old
            rows.append(ResetRow(group, *step.partition, step.new, step.old, distance, error.code.name if error else None))
    warnings = [warning for found in plans.values() for warning in found.warnings]
    output.rows("offsets", ResetRow, rows, is_wide=bool(failures), extra={"executed": bool(args.execute), "warnings": warnings})
