"""The pages of one topic: partitions, groups, settings, producers; and its changes."""

from __future__ import annotations

from ottla.analysis.moments import format_ms
from ottla.analysis.resets import Bounds, bounds_of, offsets_at
from ottla.base.counted import counted
from ottla.base.errors import ApiError
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.base.uuids import uuid_to_text
from ottla.client.core import admin, transaction_admin
from ottla.console.model import Done, Field, Form, Link, Mark, Page, PageError, Table, columns, group_link, href, number, size
from ottla.console.pages.settings import change_form, setting_table
from ottla.console.pages.topics import groups_of, topic_sizes
from ottla.console.visit import Visit, action, check_typed, page
from ottla.wire.messages.metadata import MetadataResponseTopic

TRAIL = (Link("Topics", "/topics"),)


def tabs_of(topic: str) -> list[tuple[str, str]]:
    names = (
        ("Partitions", ""), ("Messages", "messages"), ("Live", "live"), ("Log", "log"), ("Groups", "groups"),
        ("Producers", "producers"), ("Settings", "settings"),
    )  # fmt: skip
    return [(name, href("topics", topic, *([path] if path else []))) for name, path in names]


def topic_of(visit: Visit) -> tuple[str, MetadataResponseTopic]:
    """Returns the topic of the path as the cluster knows it now. Raises `PageError` for a topic that was deleted or never existed."""
    name = visit.path["topic"]
    answer = visit.cluster.refresh([name])
    for topic in answer.topics:
        if topic.name == name and not topic.error_code:
            return name, topic
    raise PageError(f"There is no topic {name!r}. It may have been deleted; the list of topics has those that exist.", 404)


@page("/topics/{topic}", "A topic's partitions: leader, in-sync replicas, offsets and size")
def partitions(visit: Visit) -> Page:
    name, topic = topic_of(visit)
    view = visit.view()
    led = [TopicPartition(name, one.partition_index) for one in topic.partitions if one.leader_id >= 0]
    bounds = bounds_of(visit.cluster, led) if led else {}
    stable = offsets_at(visit.cluster, led, admin.LATEST, isolation_level=READ_COMMITTED) if led else {}
    sizes = {(found.broker, place): bytes_ for found in view.directories for place, bytes_ in found.sizes.items()}
    rows = []
    for one in sorted(topic.partitions, key=lambda one: one.partition_index):
        place = TopicPartition(name, one.partition_index)
        lacking = [broker for broker in one.replica_nodes if broker not in one.isr_nodes]
        state = Mark("no leader", "bad") if one.leader_id < 0 else Mark(f"lacks {lacking}", "warn") if lacking else Mark("in sync", "ok")
        found = bounds.get(place)
        rows.append({
            "partition": one.partition_index, "state": state, "leader": one.leader_id, "replicas": list(one.replica_nodes),
            "in_sync": list(one.isr_nodes), "start": found.start if found else None, "stable": stable.get(place),
            "end": found.end if found else None, "records": found.end - found.start if found else None,
            "size": size(sizes.get((one.leader_id, place))),
        })  # fmt: skip
    titles = columns(
        partition="Partition", state="State", leader="Leader", replicas="Replicas", in_sync="In sync", start="First offset",
        stable="Last stable offset", end="End offset", records="Offsets", size="Size at the leader",
    )  # fmt: skip
    facts = [
        ("Partitions", len(rows)), ("Offsets", sum(found.end - found.start for found in bounds.values())),
        ("Size on all disks", size(topic_sizes(view)[name])), ("Id", uuid_to_text(topic.topic_id)),
        ("Internal", bool(topic.is_internal)),
    ]  # fmt: skip
    return Page(name, facts, [Table("partitions", "Partitions", titles, rows)], _forms(name, bounds), tabs=tabs_of(name), trail=TRAIL)


def _forms(name: str, bounds: dict[TopicPartition, Bounds]) -> list[Form]:
    records = sum(found.end - found.start for found in bounds.values())
    return [
        Form(href("do", "topics", name, "grow"), "Add partitions", "Add",
             [Field("total", "New number of partitions", kind="number", is_needed=True)],
             "Records with a key may be written to another partition from then on. Partitions cannot be removed."),
        Form(href("do", "topics", name, "clear"), "Delete all records", "Delete the records", (),
             f"Deletes all records of {name} up to now: {number(records)} offsets. The topic and its settings remain.", name),
        Form(href("do", "topics", name, "delete"), "Delete the topic", "Delete the topic", (),
             f"Deletes {name} with all its records: {number(records)} offsets in {counted(len(bounds), 'partition')}.", name),
    ]  # fmt: skip


@action("/topics/{topic}/grow")
def grow(visit: Visit) -> Done:
    name, topic = topic_of(visit)
    total = visit.whole("total")
    if total <= len(topic.partitions):
        raise PageError(f"{name} has {counted(len(topic.partitions), 'partition')} already, and they cannot be removed. Nothing was done.")
    admin.create_partitions(visit.cluster, name, total)
    return Done(f"{name} has {counted(total, 'partition')} now.", href("topics", name))


@action("/topics/{topic}/clear")
def clear(visit: Visit) -> Done:
    name, topic = topic_of(visit)
    check_typed(visit, name)
    places = [TopicPartition(name, one.partition_index) for one in topic.partitions]
    for result in admin.delete_records(visit.cluster, dict.fromkeys(places, -1)).values():
        if isinstance(result, ApiError):
            raise result
    return Done(f"All records of {name} were deleted.", href("topics", name))


@action("/topics/{topic}/delete")
def delete(visit: Visit) -> Done:
    name, _ = topic_of(visit)
    check_typed(visit, name)
    error = admin.delete_topics(visit.cluster, [name])[name]
    if error is not None:
        raise error
    return Done(f"Topic {name} was deleted.", "/topics")


@page("/topics/{topic}/groups", "The groups of a topic and their lag")
def groups(visit: Visit) -> Page:
    name, _ = topic_of(visit)
    view = visit.view()
    states = {group.group_id: group.state for group in view.groups}
    rows = [{"group": group_link(group), "state": states.get(group), "lag": lag} for group, lag in groups_of(view).get(name, ())]
    titles = columns(group="Group", state="State", lag="Lag")
    table = Table("groups", "Groups", titles, rows, "No group has committed offsets of this topic.")
    return Page(name, tables=[table], tabs=tabs_of(name), trail=TRAIL, refresh_s=10)


@page("/topics/{topic}/producers", "The producers of a topic, and their open transactions")
def producers(visit: Visit) -> Page:
    name, topic = topic_of(visit)
    places = [TopicPartition(name, one.partition_index) for one in topic.partitions if one.leader_id >= 0]
    rows = []
    for place, found in sorted(transaction_admin.describe_producers(visit.cluster, places).items()):
        if isinstance(found, ApiError):
            raise found
        rows += [
            {
                "partition": place.partition, "producer_id": str(state.producer_id), "epoch": state.producer_epoch,
                "last_sequence": state.last_sequence, "last_written": format_ms(state.last_timestamp),
                "open_since": Mark(f"offset {state.current_txn_start_offset}", "warn") if state.current_txn_start_offset >= 0 else None,
            }
            for state in found
        ]  # fmt: skip
    titles = columns(
        partition="Partition", producer_id="Producer id", epoch="Epoch", last_sequence="Last sequence", last_written="Last written",
        open_since="Open transaction from",
    )  # fmt: skip
    table = Table("producers", "Idempotent and transactional producers", titles, rows, "No idempotent producer has written lately.")
    return Page(name, tables=[table], tabs=tabs_of(name), trail=TRAIL)


@page("/topics/{topic}/settings", "A topic's settings with the source of each value")
def settings(visit: Visit) -> Page:
    name, _ = topic_of(visit)
    table, form = setting_table(visit, "topics", name), change_form("topics", name)
    return Page(name, tables=[table], forms=[form], tabs=tabs_of(name), trail=TRAIL)
