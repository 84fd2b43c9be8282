"""The commands that `ottla group`, `ottla share-group` and `ottla streams-group` have in common. A `Kind` has the differences between the
kinds of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import YES, Args, Refused, UsageError, command, confirm, flag, option
from ottla.cli.groups import reset_offsets
from ottla.cli.groups.group_options import GROUP_OPTIONS, chosen_groups, known_words, scope_partitions
from ottla.cli.groups.reset_offsets import RESET_OPTIONS
from ottla.cli.render.ottla import Output, Row
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.core import group_admin
from ottla.client.core.group_admin import ListedGroup

Description = Any
"""A `GroupDescription`, a `ShareGroupDescription` or a `StreamsGroupDescription`."""


class Kind(NamedTuple):
    """A kind of group. Its functions that take a `Cluster` as an argument raise `ApiError`."""

    noun: str
    states: Sequence[str]
    types: Sequence[str]
    """The values of `--type`. A kind with a single type has no `--type` and lists that type only."""
    offsets: reset_offsets.OffsetStore
    list_row: Callable[[ListedGroup], Row]
    describe: Callable[[Cluster, str], Description]
    """Describes a group. Raises `ApiError` for an unknown group and for a group of another kind."""
    remark: Callable[[Description], str]
    offset_rows: Callable[[Cluster, Description, bool], list[Any]]
    """Returns the offsets of a group. The last argument adds the columns of `--verbose` and JSON."""
    member_row: Callable[[str, Any], Row]
    state_row: Callable[[Description, str], Row]
    summary: Callable[[Description], Mapping[str, Any]]
    """Returns additional fields of the group's JSON object."""
    offset_class: type[Row]
    member_class: type[Row]
    state_class: type[Row]
    list_class: type[Row]
    views: tuple[str, str]
    """The help texts of `--offsets` and `--verbose`."""
    shown: Callable[[Output, list[Any]], list[Any]]
    """Returns the rows of offsets to print, for example with totals."""
    is_checked: bool
    """Whether `delete` describes each group first, to refuse groups of another kind."""
    possessions: str
    """The data that is deleted with a group, for the question of `delete`."""

    @property
    def word(self) -> str:
        """The command group: `group`, `share-group` or `streams-group`."""
        return self.noun.replace(" ", "-")

    @property
    def protocols(self) -> Sequence[str]:
        return self.offsets.protocols


def add_views(kind: Kind) -> None:
    """Declares the commands `list` and `describe` of a kind."""
    types = (
        option("--type", action="append", nargs="?", const="", metavar="TYPE[,...]", help="classic, consumer, share, streams"),
        option("--timeout", type=int, metavar="MS", help="how long to wait for the cluster"),
    )
    command(
        f"{kind.word} list",
        f"All {kind.noun}s.",
        option("--state", nargs="?", action="append", const="", metavar="STATE[,...]", help="only groups in these states"),
        *(types if len(kind.types) > 1 else ()),
        may_watch=True,
    )(lambda args, cluster, output: _list(kind, args, cluster, output))
    command(
        f"{kind.word} describe",
        f"Offsets, members or state of {kind.noun}s.",
        *GROUP_OPTIONS,
        flag("--offsets", help=kind.views[0]),
        flag("--members", help="the members of the group"),
        flag("--state", help="the state of the group"),
        flag("-v", "--verbose", help=kind.views[1]),
        may_watch=True,
    )(lambda args, cluster, output: _describe(kind, args, cluster, output))


def add_changes(kind: Kind) -> None:
    """Declares the commands `reset-offsets` and `delete` of a kind."""
    offsets = {"group": "committed offsets", "share group": "the start offsets of share groups"}.get(
        kind.noun, f"offsets of {kind.noun}s in their source topics"
    )
    command(f"{kind.word} reset-offsets", f"Reset {offsets}; shows the plan unless --execute is given.", *GROUP_OPTIONS, *RESET_OPTIONS)(
        lambda args, cluster, output: reset_offsets.run(args, cluster, output, kind.offsets)
    )
    command(f"{kind.word} delete", f"Delete {kind.noun}s.", *GROUP_OPTIONS, YES)(
        lambda args, cluster, output: _delete(kind, args, cluster, output)
    )


class OffsetDeletionRow(Row):
    group: str
    topic: str
    partition: int
    status: str


def add_offset_deletion(kind: Kind) -> None:
    """Declares the command `delete-offsets` of a kind with committed offsets."""
    command(
        f"{kind.word} delete-offsets",
        "Delete committed offsets.",
        *GROUP_OPTIONS,
        option("--topic", action="append", metavar="TOPIC[:P,...]", help="of these topics or partitions"),
        flag("--all-topics", help="of all topics that the group has committed"),
        YES,
    )(lambda args, cluster, output: _delete_offsets(kind, args, cluster, output))


def _delete_offsets(kind: Kind, args: Args, cluster: Cluster, output: Output) -> int:
    if not args.topic and not args.all_topics:
        raise UsageError("give --topic TOPIC[:PARTITION,...] or --all-topics")
    rows = []
    for name in chosen_groups(cluster, args, kind.protocols):
        committed = list(group_admin.committed_offsets(cluster, name))
        partitions = scope_partitions(cluster, args.topic, args.all_topics, committed)
        if not partitions:
            raise Refused(f"{kind.noun} {name!r} has committed no offsets", "GROUP_ID_NOT_FOUND")
        confirm(args, f"Delete {counted(len(partitions), 'committed offset')} of {name}?")
        for partition, error in sorted(group_admin.delete_offsets(cluster, name, partitions).items()):
            rows.append(OffsetDeletionRow(name, *partition, "Successful" if error is None else error.code.name))
    output.rows("offsets", OffsetDeletionRow, rows)
    return 1 if any(row.status != "Successful" for row in rows) else 0


WORDS = {"share": "share-group", "streams": "streams-group"}
"""The command group for a type of group, where it is not `group`."""


def wrong_kind(cluster: Cluster, name: str, wanted: str = "") -> ApiError:
    """Returns the error for a name that is not a group of the type `wanted`. An empty `wanted` means the groups of `ottla group`. The
    message names the command for the group's actual type. If there is no such group, the message contains the most similar group name."""
    types = {group.group_id: group.type.lower() for group in group_admin.list_groups(cluster)}
    found = types.get(name)
    if found is not None and WORDS.get(found) != WORDS.get(wanted):
        command_group = WORDS.get(found, "group")
        message = f"group {name!r} is a {found} group; see `ottla {command_group} describe {name}`"
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    known = [group for group, kind in types.items() if not wanted or kind == wanted]
    noun = f"{wanted} group".strip()
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{noun} {name!r} not found{nearest_hint(name, known)}")


def listed_groups(cluster: Cluster, kind: Kind, states: Sequence[str], types: Sequence[str] = ()) -> list[ListedGroup]:
    """Returns the groups of a kind, sorted by name. Sends states in Kafka's spelling, because brokers distinguish upper and lower case."""
    named = [state for state in kind.states if state.lower() in {word.lower() for word in states}]
    return group_admin.list_groups(cluster, states=named, types=types if len(kind.types) > 1 else kind.types)


def check_list_filters(kind: Kind, args: Args) -> tuple[list[str], list[str]]:
    """Returns the states and types to list. Raises `UsageError` for an unknown state or type."""
    return known_words("state", args.state, kind.states), known_words("type", getattr(args, "type", None), kind.types)


def _list(kind: Kind, args: Args, cluster: Cluster, output: Output) -> None:
    found = listed_groups(cluster, kind, *check_list_filters(kind, args))
    output.rows("groups", kind.list_class, [kind.list_row(group) for group in found])


def _describe(kind: Kind, args: Args, cluster: Cluster, output: Output) -> None:
    if sum((args.offsets, args.members, args.state)) > 1:
        raise UsageError("--offsets, --members and --state exclude each other")
    groups = [kind.describe(cluster, name) for name in chosen_groups(cluster, args, kind.protocols)]
    has_offsets = output.is_structured or not (args.members or args.state)
    is_wide = args.verbose or output.is_structured
    offsets = {group.group_id: kind.offset_rows(cluster, group, is_wide) if has_offsets else [] for group in groups}
    for group in groups:
        if remark := kind.remark(group):
            output.note(remark)
    if output.is_structured:
        output.objects("groups", [_as_object(kind, group, offsets[group.group_id]) for group in groups])
    elif args.members:
        members = [kind.member_row(group.group_id, member) for group in groups for member in group.members]
        output.rows("members", kind.member_class, members, is_wide=args.verbose)
    elif args.state:
        states = [kind.state_row(group, coordinator_of(cluster, group)) for group in groups]
        output.rows("groups", kind.state_class, states, is_wide=args.verbose)
    else:
        rows = [row for found in offsets.values() for row in found]
        output.rows("offsets", kind.offset_class, kind.shown(output, rows), is_wide=args.verbose)


def coordinator_of(cluster: Cluster, group: Description) -> str:
    """Returns the coordinator as `host:port (1)`, or only its broker id if its address is unknown."""
    address = cluster.metadata.brokers.get(group.coordinator)
    return f"{address} ({group.coordinator})" if address else str(group.coordinator)


def _as_object(kind: Kind, group: Description, offsets: list[Any]) -> dict[str, Any]:
    """Returns the group as a JSON object, which is the same with --offsets, --members and --state."""
    own = [row for row in offsets if row.partition is not None]
    members = [kind.member_row(group.group_id, member) for member in group.members]
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        **kind.summary(group),
        "members": [row.as_json(without=("group",)) for row in members],
        "offsets": [row.as_json(without=("group",)) for row in own],
        "lag": sum(row.lag or 0 for row in own),
    }


def _delete(kind: Kind, args: Args, cluster: Cluster, output: Output) -> int:
    names = chosen_groups(cluster, args, kind.protocols)
    if kind.is_checked:
        for name in names:
            kind.describe(cluster, name)
    confirm(args, f"Delete {', '.join(names)} with {kind.possessions}?")
    failures = delete_groups(cluster, names)
    deleted = [name for name in names if name not in failures]
    if output.is_structured:
        output.show_object({"deleted": deleted, "errors": {name: error.code.name for name, error in failures.items()}})
        if failures:
            first = next(iter(failures.values()))
            raise Refused(f"not deleted: {len(failures)} of {counted(len(names), 'group')}", first.code.name)
        return 0
    if deleted:
        output.done(f"Deleted {', '.join(deleted)}.", {})
    for name, error in failures.items():
        output.error(f"{name}: {error.message or 'refused'} ({error.code.name})")
    return 1 if failures else 0


def delete_groups(cluster: Cluster, names: Sequence[str]) -> dict[str, ApiError]:
    """Deletes each group. Returns the errors of the groups that were refused, by name."""
    failures: dict[str, ApiError] = {}
    for name in names:
        try:
            group_admin.delete_group(cluster, name)
        except ApiError as error:
            failures[name] = error
    return failures
