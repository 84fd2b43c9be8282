"""Pages about share groups: the list, one group with its start offsets and members, the wizard that moves start offsets, and deletions.
There is also a page for one streams group. A share group has no committed offset in a partition. The start offset is the first record that
is neither acknowledged nor archived.
"""

from __future__ import annotations

from typing import Any

from ottla.analysis.lag import group_lag
from ottla.base.errors import ApiError, ErrorCode
from ottla.client.core import group_admin, share_admin, streams_admin
from ottla.client.core.share_admin import ShareGroupDescription
from ottla.client.core.streams_admin import Tasks
from ottla.console.model import Code, Done, Field, Form, Link, Mark, Page, PageError, Table, columns, href, seconds, topic_link
from ottla.console.pages.groups import (
    STATES,
    check_committed,
    check_inactive,
    make_plan,
    plan_page,
    planned_offsets,
    reset_fields,
)
from ottla.console.pages.groups import TRAIL as GROUPS_TRAIL
from ottla.console.visit import Visit, action, check_typed, page

TRAIL = (Link("Share groups", "/share-groups"),)
SCENARIOS = (
    ("to_earliest", "the first record"), ("to_latest", "the end"), ("to_offset", "this offset"),
    ("shift_by", "forward by this number, or back if negative"), ("to_datetime", "the first record since this time"),
    ("by_duration", "the first record of the last N seconds"),
)  # fmt: skip


@page("/share-groups", "All share groups", name="Share groups", section="Data")
def share_groups(visit: Visit) -> Page:
    rows = [
        {
            "group": Link(one.group_id, href("share-group", name=one.group_id)),
            "state": Mark(one.state, STATES.get(one.state, "warn")) if one.state else None, "coordinator": one.coordinator,
        }
        for one in visit.view().groups if one.type.lower() == share_admin.TYPE
    ]  # fmt: skip
    titles = columns(group="Group", state="State", coordinator="Coordinator")
    empty = "There are no share groups. Brokers before Kafka 4.1 have none."
    return Page("Share groups", tables=[Table("share_groups", "Share groups", titles, rows, empty)], refresh_s=10)


def _described(visit: Visit, name: str) -> ShareGroupDescription:
    """Describes a share group. Raises `PageError` for another kind of group, and for an unknown name."""
    try:
        if name:
            return share_admin.describe_share_group(visit.cluster, name)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    raise PageError(f"There is no share group {name[:100]!r}.", 404)


@page("/share-group", "A share group: members, start offsets and lag", query=("name",))
def share_group(visit: Visit) -> Page:
    name = visit.query.get("name", "")
    found = _described(visit, name)
    offsets = share_admin.share_offsets(visit.cluster, name)
    rows = [
        {
            "topic": topic_link(place.topic), "partition": place.partition, "start": one.start_offset, "lag": one.lag,
            "readers": sum(place in member.assignment for member in found.members),
            "error": Mark(one.error.code.name, "bad") if one.error is not None else None,
        }
        for place, one in offsets.items()
    ]  # fmt: skip
    titles = columns(topic="Topic", partition="Partition", start="Start offset", lag="Lag", readers="Members", error="Error")
    members = [
        {
            "member": member.member_id, "client": member.client_id, "host": member.host, "rack": member.rack, "epoch": member.epoch,
            "topics": list(member.topics), "count": len(member.assignment), "bar": "▮" * min(40, len(member.assignment)),
            "assignment": ", ".join(map(str, member.assignment)),
        }
        for member in found.members
    ]  # fmt: skip
    member_titles = columns(
        member="Member", client="Client id", host="Host", rack="Rack", epoch="Epoch", topics="Subscribes to", count="Partitions", bar="",
        assignment="Assignment",
    )  # fmt: skip
    facts = [
        ("State", Mark(found.state, STATES.get(found.state, "warn"))), ("Assignor", found.assignor or "-"), ("Epoch", found.epoch),
        ("Epoch of the assignment", found.assignment_epoch), ("Coordinator", found.coordinator), ("Members", len(found.members)),
        ("Lag", sum(one.lag or 0 for one in offsets.values())),
    ]  # fmt: skip
    tables = [
        Table("offsets", "Start offsets and lag", titles, rows, "No member has read a partition yet."),
        Table("members", "Members and their partitions", member_titles, members, "The group has no members."),
    ]
    return Page(f"Share group {name}", facts, tables, _forms(name, found), trail=TRAIL, refresh_s=10)


def _forms(name: str, found: ShareGroupDescription) -> list[Form]:
    is_active = found.state not in group_admin.INACTIVE_STATES
    remark = f" The group is in state {found.state}, so the cluster will refuse this until its members are stopped." if is_active else ""
    return [
        Form("/share-group/reset", "Move the start offsets: choose, look at the plan, then do it", "Show the plan",
             reset_fields({}, SCENARIOS), f"Shows old and new offsets first; nothing is changed yet.{remark}", hidden={"name": name},
             is_query=True),
        Form("/do/share-group/delete-offsets", "Delete the state of a topic", "Delete the state",
             [Field("topic", "Topic", is_needed=True)],
             f"The group then starts in this topic as a new group does. Acknowledgements of its records are lost.{remark}", name,
             {"name": name}),
        Form("/do/share-group/delete", "Delete the group", "Delete the group", (),
             f"Deletes the group with the state of all its records.{remark}", name, {"name": name}),
    ]  # fmt: skip


@page("/share-group/reset", "The plan of new start offsets; changes nothing", query=("name", "scope", "scenario", "value"))
def reset(visit: Visit) -> Page:
    name = visit.query.get("name", "")
    check_inactive(name, _described(visit, name).state)
    starts = {place: one.start_offset for place, one in share_admin.share_offsets(visit.cluster, name).items()}
    made = make_plan(visit, name, visit.query, SCENARIOS, starts)
    return plan_page(visit, made, "/share-group/reset", SCENARIOS, [*TRAIL, Link(name, href("share-group", name=name))])


@action("/share-group/reset")
def execute(visit: Visit) -> Done:
    """Sets exactly the start offsets of the plan that was shown."""
    name, offsets = visit.field("name"), planned_offsets(visit)
    check_inactive(name, _described(visit, name).state)
    check_committed(share_admin.alter_share_offsets(visit.cluster, name, offsets))
    return Done(f"The start offsets of {name} were moved.", href("share-group", name=name))


@action("/share-group/delete-offsets")
def delete_offsets(visit: Visit) -> Done:
    name, topic = visit.field("name"), visit.field("topic")
    check_typed(visit, name)
    if not any(place.topic == topic for place in share_admin.share_offsets(visit.cluster, name)):
        raise PageError(f"{name} has no state in {topic}; nothing was done.", 404)
    error = share_admin.delete_share_offsets(visit.cluster, name, [topic]).get(topic)
    if error is not None:
        raise error
    return Done(f"The state of {name} in {topic} was deleted.", href("share-group", name=name))


@action("/share-group/delete")
def delete(visit: Visit) -> Done:
    name = visit.field("name")
    check_typed(visit, name)
    _described(visit, name)
    group_admin.delete_group(visit.cluster, name)
    return Done(f"Share group {name} was deleted.", "/share-groups")


# Streams groups


@page("/streams-group", "A streams group: its topics, members and tasks", query=("name",))
def streams_group(visit: Visit) -> Page:
    name = visit.query.get("name", "")
    try:
        found = streams_admin.describe_streams_group(visit.cluster, name)
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise PageError(f"There is no streams group {name[:100]!r}.", 404) from None
        raise
    rows = [
        {
            "topic": topic_link(one.topic), "partition": one.partition, "committed": one.current_offset, "end": one.log_end_offset,
            "lag": one.lag, "seconds": seconds(one.lag_seconds),
        }
        for one in group_lag(visit.cluster, name)
    ]  # fmt: skip
    titles = columns(topic="Topic", partition="Partition", committed="Committed", end="End", lag="Lag", seconds="Behind")
    members: list[dict[str, Any]] = [
        {
            "member": member.member_id, "process": member.process_id, "client": member.client_id, "host": member.host,
            "active": _tasks(member.assignment.active), "standby": _tasks(member.assignment.standby),
            "warmup": _tasks(member.assignment.warmup),
        }
        for member in found.members
    ]  # fmt: skip
    member_titles = columns(
        member="Member", process="Process", client="Client id", host="Host", active="Active tasks", standby="Standby", warmup="Warm-up"
    )
    facts = [
        ("State", Mark(found.state, STATES.get(found.state, "warn"))), ("Assignor", found.assignor or "-"), ("Epoch", found.epoch),
        ("Epoch of the topology", found.topology_epoch), ("Coordinator", found.coordinator), ("Members", len(found.members)),
        ("Source topics", [topic_link(topic) for topic in found.source_topics]),
        ("Internal topics", [topic_link(topic) for topic in (*found.repartition_topics, *found.changelog_topics)]),
        ("Reset it", Code(f"ottla streams-group reset-offsets {name} --all-topics --to-earliest")),
    ]  # fmt: skip
    tables = [
        Table("offsets", "Committed offsets and lag", titles, rows, "The group has committed no offsets."),
        Table("members", "Members and their tasks", member_titles, members, "The group has no members."),
    ]
    return Page(f"Streams group {name}", facts, tables, trail=GROUPS_TRAIL, refresh_s=10)


def _tasks(tasks: Tasks) -> list[str]:
    return [f"{subtopology}_{partition}" for subtopology in sorted(tasks) for partition in tasks[subtopology]]
