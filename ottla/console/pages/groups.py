"""Pages about consumer groups: the list, one group with its assignment and lag, the wizard that resets offsets, and deletions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ottla.analysis.lag import PartitionLag, group_lag
from ottla.analysis.moments import now_ms
from ottla.analysis.reset_files import format_reset_file, parse_reset_file
from ottla.analysis.resets import Bounds, Facts, ResetPlan, Step, bounds_of, plan
from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.client.core import group_admin
from ottla.client.core.admin import OffsetAt, list_offsets
from ottla.client.core.group_admin import GroupDescription, GroupMember, ListedGroup
from ottla.console.model import (
    Done,
    Field,
    Form,
    Link,
    Mark,
    Note,
    Page,
    PageError,
    Table,
    columns,
    group_link,
    href,
    moment,
    number,
    seconds,
    topic_link,
)
from ottla.console.pages.messages import parse_moment_ms
from ottla.console.visit import Visit, action, check_typed, page

SCENARIOS = (
    ("to_earliest", "the first record"), ("to_latest", "the end"), ("to_current", "the committed offset again"),
    ("to_offset", "this offset"), ("shift_by", "forward by this number, or back if negative"),
    ("to_datetime", "the first record since this time"),
    ("by_duration", "the first record of the last N seconds"), ("to_group", "the offsets of this other group"),
    ("from_file", "the offsets in these lines"),
)  # fmt: skip
STATES = {"Stable": "ok", "Empty": "ok", "Dead": "warn", "PreparingRebalance": "warn", "CompletingRebalance": "warn"}
TRAIL = (Link("Groups", "/groups"),)
LINES_MAX = 100
"""Committed offsets that the form fills in. 100 lines are about 2 kB of the address of the plan."""
PICTURE_MAX = 500
"""Partitions in the picture of an assignment."""


@page("/groups", "All groups of every kind, with state and lag", name="Groups", section="Data")
def groups(visit: Visit) -> Page:
    view = visit.view()
    activity = {group.name: group for group in view.look.groups}
    rows = []
    for group in view.groups:
        seen = activity.get(group.group_id)
        rows.append({
            "group": _link(group), "type": group.type, "protocol": group.protocol_type,
            "state": Mark(group.state, STATES.get(group.state, "warn")) if group.state else None, "coordinator": group.coordinator,
            "topics": len(view.lags.get(group.group_id, ())), "lag": seen.lag if seen else None, "change": seen.change if seen else None,
        })  # fmt: skip
    titles = columns(
        group="Group", type="Type", protocol="Protocol", state="State", coordinator="Coordinator", topics="Topics", lag="Lag",
        change="Change a second",
    )  # fmt: skip
    return Page("Groups", tables=[Table("groups", "Groups", titles, rows, "No group has joined or committed offsets yet.")], refresh_s=10)


def _link(group: ListedGroup) -> Link:
    """Returns the link to the page of a group, which depends on its type."""
    kind = group.type.lower()
    return Link(group.group_id, href(f"{kind}-group", name=group.group_id)) if kind in ("share", "streams") else group_link(group.group_id)


def _described(visit: Visit, name: str) -> GroupDescription:
    """Describes a group. Raises `PageError` if the group does not exist."""
    if not name:
        raise PageError("Name a group; the list of groups has all.", 404)
    found = group_admin.describe_group(visit.cluster, name)
    if found.state == "Dead" and not group_admin.committed_offsets(visit.cluster, name):
        listed = {one.group_id: one.type for one in group_admin.list_groups(visit.cluster)}
        if name not in listed:
            raise PageError(f"There is no group {name[:100]!r}.", 404)
    return found


@page("/group", "A group: members, assignment, committed offsets and lag", query=("name",))
def group(visit: Visit) -> Page:
    name = visit.query.get("name", "")
    found = _described(visit, name)
    history = visit.desk.snapshot.groups
    history.note_members(time.time(), found)
    owners = {place: member for member in found.members for place in member.assignment}
    lags = group_lag(visit.cluster, name)
    seen = {TopicPartition(one.topic, one.partition) for one in lags}
    rows = [
        {
            "topic": topic_link(one.topic), "partition": one.partition, "current": one.current_offset, "stable": one.last_stable_offset,
            "end": one.log_end_offset, "lag": one.lag, "stable_lag": one.stable_lag, "seconds": seconds(one.lag_seconds),
            "owner": _name_of(owners.get(TopicPartition(one.topic, one.partition))),
        }
        for one in lags
    ]  # fmt: skip
    rows += [
        {"topic": topic_link(place.topic), "partition": place.partition, "owner": _name_of(owner)}
        for place, owner in sorted(owners.items())
        if place not in seen
    ]
    titles = columns(
        topic="Topic", partition="Partition", current="Committed", stable="Last stable", end="End", lag="Lag", stable_lag="Lag to stable",
        seconds="Behind", owner="Member",
    )  # fmt: skip
    members = [
        {
            "letter": letter, "member": member.member_id, "instance": member.instance_id, "client": member.client_id, "host": member.host,
            "count": len(member.assignment), "assignment": ", ".join(map(str, member.assignment)),
        }
        for letter, member in _lettered(found)
    ]  # fmt: skip
    member_titles = columns(
        letter="In the picture", member="Member", instance="Instance", client="Client id", host="Host", count="Partitions",
        assignment="Assignment",
    )  # fmt: skip
    changes = [
        {"at": moment(1000 * one.at_s), "what": one.what, "before": one.before, "after": one.after}
        for one in history.changes_of(name)
    ]
    facts = [
        ("State", Mark(found.state, STATES.get(found.state, "warn"))), ("Type", found.type), ("Assignor", found.assignor or "-"),
        ("Coordinator", found.coordinator), ("Members", len(found.members)), ("Lag", sum(one.lag for one in lags)),
        ("Why is it behind?", Link("look for the reason", href("why", group=name))),
    ]  # fmt: skip
    tables = [
        Table("offsets", "Committed offsets and lag", titles, rows, "The group has committed no offsets."),
        Table("members", "Members and their partitions", member_titles, members, "The group has no members."),
        Table("changes", "Rebalances: changes of state, members and assignment that this console has seen",
              columns(at="When", what="What", before="Before", after="After"), changes, "None since this console looks."),
    ]  # fmt: skip
    letters = [(letter, _name_of(member)) for letter, member in _lettered(found)]
    lists = {"picture": _picture(found, {*owners, *seen}), "letters": letters, "source": href("api", "v1", "group", "lag", name=name)}
    return Page(
        f"Group {name}", facts, tables, _forms(name, found, _current_lines(name, lags)), trail=TRAIL, refresh_s=10, template="group.html",
        extra={"lists": lists},
    )  # fmt: skip


def _current_lines(group: str, lags: Sequence[PartitionLag]) -> str:
    """Returns the committed offsets as lines to edit, or none for a group with more partitions than `LINES_MAX`."""
    steps = [Step(TopicPartition(one.topic, one.partition), None, one.current_offset) for one in lags if one.current_offset is not None]
    return format_reset_file({group: ResetPlan(steps, [])}, is_quoted=False) if len(steps) <= LINES_MAX else ""


def _lettered(found: GroupDescription) -> list[tuple[str, GroupMember]]:
    """Returns the members with a letter each: A to Z, then A1 and so on."""
    return [(chr(65 + number % 26) + (str(number // 26) if number >= 26 else ""), member) for number, member in enumerate(found.members)]


def _picture(found: GroupDescription, places: set[TopicPartition]) -> list[tuple[str, list[tuple[int, str, str]]]]:
    """Returns each topic of a group with its partitions, the letter of the member that has each one, and the member's name."""
    if not found.members:
        return []
    owners = {place: (letter, _name_of(member) or "") for letter, member in _lettered(found) for place in member.assignment}
    picture: dict[str, list[tuple[int, str, str]]] = {}
    for place in sorted(places)[:PICTURE_MAX]:
        picture.setdefault(place.topic, []).append((place.partition, *owners.get(place, ("", "no member"))))
    return list(picture.items())


@page("/group/lag", "The lag of a group over time", query=("name",))
def group_lag_over_time(visit: Visit) -> Page:
    name = visit.query.get("name", "")
    times, lags = visit.desk.snapshot.groups.lag_of(name)
    rows = [{"at": moment(1000 * at), "lag": int(lag)} for at, lag in zip(reversed(times), reversed(lags), strict=True)]
    table = Table("points", "Lag", columns(at="When", lag="Lag"), rows, "This console has seen no lag of the group yet.")
    extra = {"times": times, "series": {"lag": lags}}
    return Page(f"Lag of {name}", tables=[table], trail=[*TRAIL, group_link(name)], extra=extra)


def _name_of(member: group_admin.GroupMember | None) -> str | None:
    return None if member is None else member.instance_id or f"{member.client_id} ({member.member_id[-8:]})"


def _forms(name: str, found: GroupDescription, lines: str) -> list[Form]:
    is_active = found.state not in group_admin.INACTIVE_STATES
    remark = f" The group is in state {found.state}, so the cluster will refuse this until its members are stopped." if is_active else ""
    topic_remark = " The cluster will refuse a topic that the group is subscribed to." if is_active else ""
    return [
        Form("/group/reset", "Reset offsets: choose, look at the plan, then do it", "Show the plan",
             reset_fields({"lines": lines}, SCENARIOS), f"Shows old and new offsets first; nothing is changed yet.{remark}",
             hidden={"name": name}, is_query=True),
        *([Form("/do/group/remove-member", "Remove a member", "Remove the member", [
            Field("member", "Member", choices=[(one.member_id, _name_of(one) or one.member_id) for one in found.members]),
        ], "The group rebalances, and the other members get its partitions. A program that still runs joins again.", name, {"name": name})]
          if found.members else []),
        Form("/do/group/delete-offsets", "Delete the committed offsets of a topic", "Delete the offsets",
             [Field("topic", "Topic", is_needed=True)], f"The group then starts there as a new group does.{topic_remark}", name,
             {"name": name}),
        Form("/do/group/delete", "Delete the group", "Delete the group", (), f"Deletes the group with all its committed offsets.{remark}",
             name, {"name": name}),
    ]  # fmt: skip


def reset_fields(query: Mapping[str, str], scenarios: Sequence[tuple[str, str]]) -> list[Field]:
    has_lines = "from_file" in dict(scenarios)
    return [
        Field("scope", "Topics (TOPIC or TOPIC:0,1, separated by blanks; empty: all that are committed)", query.get("scope", "")),
        Field("scenario", "Move to", query.get("scenario", "to_earliest"), choices=scenarios),
        Field("value", "Offset, number, time, seconds or group", query.get("value", "")),
        *([Field("lines", "Lines: topic,partition,offset", query.get("lines", ""), "textarea")] if has_lines else []),
    ]


# The wizard


def make_plan(
    visit: Visit, name: str, given: Mapping[str, str], scenarios: Sequence[tuple[str, str]], committed: Mapping[TopicPartition, int | None]
) -> ResetPlan:
    """Makes the plan of a reset. `committed` has the current offset of each partition, None if it has no offset. Raises `PageError` for
    unusable input.
    """
    scenario, value = given.get("scenario", ""), given.get("value", "").strip()
    if scenario not in dict(scenarios):
        raise PageError("Choose where to move to.")
    places = _scope(visit, given.get("scope", ""), sorted(committed))
    other: dict[TopicPartition, int] = {}
    if scenario == "from_file":
        other = _read_lines(name, given.get("lines", ""))
        places = sorted(other)
    if scenario == "to_group":
        other = {place: found.offset for place, found in group_admin.committed_offsets(visit.cluster, value).items()}
        places = [place for place in places if place in other] if given.get("scope") else sorted(other)
    if not places:
        known = f"Group {value[:100]!r}" if scenario == "to_group" else "The group"
        raise PageError(f"{known} has committed no offsets there; name topics.", 404)
    bounds = bounds_of(visit.cluster, places)
    amount = 0
    if scenario in ("to_offset", "shift_by"):
        try:
            amount = int(value)
        except ValueError:
            raise PageError(f"{value[:40]!r} is not a whole number.") from None
    return plan(scenario, places, Facts(bounds, dict(committed), _at_time(visit, scenario, value, bounds), other), amount)


def _read_lines(group: str, text: str) -> dict[TopicPartition, int]:
    """Reads lines as `ottla group reset-offsets --export` prints them. Raises `PageError` for lines that are wrong or of another group."""
    try:
        return parse_reset_file(text, "The text", [group])[group]
    except ValueError as error:
        raise PageError(f"{error}.") from None


def check_inactive(name: str, state: str) -> None:
    """Raises `PageError` for a group with members."""
    if state not in group_admin.INACTIVE_STATES:
        raise PageError(f"Group {name!r} is in state {state}. Stop its members first; nothing was changed.", 409)


def _at_time(visit: Visit, scenario: str, value: str, bounds: dict[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
    if scenario == "to_datetime":
        moment = parse_moment_ms(value)
    elif scenario == "by_duration":
        if not value.isdecimal() or len(value) > 9:
            raise PageError(f"{value[:40]!r} is not a number of seconds.")
        moment = now_ms() - 1000 * int(value)
    else:
        return {}
    found = list_offsets(visit.cluster, dict.fromkeys(bounds, max(0, moment)))
    return {place: one.offset for place, one in found.items() if isinstance(one, OffsetAt)}


def _scope(visit: Visit, text: str, committed: list[TopicPartition]) -> list[TopicPartition]:
    places = set[TopicPartition]()
    for word in text.split():
        topic, colon, numbers = word.partition(":")
        visit.cluster.refresh([topic])  # the connections cache metadata, which other clients may have changed
        known = visit.cluster.partitions(topic)
        if colon and not all(part.isdecimal() for part in numbers.split(",")):
            raise PageError(f"{word[:300]!r} does not name partitions; write TOPIC or TOPIC:0,1.")
        wanted = [int(part) for part in numbers.split(",")] if colon else known
        for one in wanted:
            if one not in known:
                raise PageError(f"Topic {topic!r} has no partition {one}.", 404)
            places.add(TopicPartition(topic, one))
    return sorted(places) if text.split() else committed


@page("/group/reset", "The plan of a reset: old and new offsets; changes nothing", query=("name", "scope", "scenario", "value", "lines"))
def reset(visit: Visit) -> Page:
    name = visit.query.get("name", "")
    check_inactive(name, _described(visit, name).state)
    committed = {place: found.offset for place, found in group_admin.committed_offsets(visit.cluster, name).items()}
    made = make_plan(visit, name, visit.query, SCENARIOS, committed)
    return plan_page(visit, made, "/group/reset", SCENARIOS, [*TRAIL, Link(name, href("group", name=name))])


def plan_page(
    visit: Visit, made: ResetPlan, path: str, scenarios: Sequence[tuple[str, str]], trail: Sequence[Link]
) -> Page:
    """Returns the page of a plan, with the form that executes it at `/do` and `path`, and the form that makes another plan."""
    query, name = visit.query, visit.query.get("name", "")
    rows = [
        {"partition": str(step.partition), "old": step.old, "new": step.new, "distance": None if step.old is None else step.new - step.old}
        for step in made.steps
    ]
    titles = columns(partition="Partition", old="Old offset", new="New offset", distance="Distance")
    given = {key: query.get(key, "") for key in ("name", "scope", "scenario", "value")}
    steps = " ".join(f"{step.partition.topic}:{step.partition.partition}={step.new}" for step in made.steps)
    moved = sum(step.old != step.new for step in made.steps)
    forms = [
        Form(f"/do{path}", "Do it", "Commit these offsets", (),
             f"Commits the new offsets above for {name}: {number(moved)} of {number(len(made.steps))} change.", name,
             {"name": name, "steps": steps}, is_open=True),
        Form(path, "Choose again", "Show the plan", reset_fields(query, scenarios), hidden={"name": name}, is_query=True),
    ]  # fmt: skip
    notes = [Note("Nothing was changed yet. This is the plan."), *(Note(warning, "warn") for warning in made.warnings)]
    extra = {"plan": given}
    return Page(f"Reset {name}", tables=[Table("steps", "Plan", titles, rows)], forms=forms, notes=notes, trail=trail, extra=extra)


def planned_offsets(visit: Visit) -> dict[TopicPartition, int]:
    """Returns the offsets of the plan that the form shows. Raises `PageError` unless the group's name was typed, and for a plan that cannot
    be read."""
    check_typed(visit, visit.field("name"))
    offsets: dict[TopicPartition, int] = {}
    for step in visit.field("steps").split():
        place, _, offset = step.rpartition("=")
        topic, _, partition = place.rpartition(":")
        if not (partition.isdecimal() and offset.isdecimal()):
            raise PageError("The plan in this form cannot be read; nothing was changed.")
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def check_committed(results: Mapping[TopicPartition, ApiError | None]) -> None:
    """Raises `PageError` if offsets were refused, with the first five of these partitions."""
    refused = [f"{place}: {error.code.name}" for place, error in results.items() if error is not None]
    if refused:
        raise PageError(f"Not all offsets were committed: {'; '.join(refused[:5])}")


@action("/group/reset")
def execute(visit: Visit) -> Done:
    """Commits exactly the offsets of the plan that was shown."""
    name, offsets = visit.field("name"), planned_offsets(visit)
    check_inactive(name, _described(visit, name).state)
    check_committed(group_admin.commit_offsets(visit.cluster, name, offsets))
    return Done(f"The offsets of {name} were reset.", href("group", name=name))


@action("/group/remove-member")
def remove_member(visit: Visit) -> Done:
    name, wanted = visit.field("name"), visit.field("member")
    check_typed(visit, name)
    member = next((one for one in _described(visit, name).members if one.member_id == wanted), None)
    if member is None:
        raise PageError(f"{name} has no member {wanted[:100]!r} any more; nothing was done.", 404)
    group_admin.remove_member(visit.cluster, name, member.member_id, member.instance_id, reason="removed in the console")
    return Done(f"{_name_of(member)} was removed from {name}.", href("group", name=name))


@action("/group/delete")
def delete(visit: Visit) -> Done:
    name = visit.field("name")
    check_typed(visit, name)
    group_admin.delete_group(visit.cluster, name)
    return Done(f"Group {name} was deleted.", "/groups")


@action("/group/delete-offsets")
def delete_offsets(visit: Visit) -> Done:
    name, topic = visit.field("name"), visit.field("topic")
    check_typed(visit, name)
    places = [place for place in group_admin.committed_offsets(visit.cluster, name) if place.topic == topic]
    if not places:
        raise PageError(f"{name} has committed no offsets of {topic}; nothing was done.", 404)
    for error in group_admin.delete_offsets(visit.cluster, name, places).values():
        if isinstance(error, ApiError):
            raise error
    return Done(f"The offsets of {name} for {topic} were deleted.", href("group", name=name))
