"""The pages of one topic: partitions, groups, settings, producers, and forms that change the topic."""

from __future__ import annotations

from ottla.analysis.resets import Bounds, bounds_of, offsets_at
from ottla.base.counted import counted
from ottla.base.errors import ApiError
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.base.uuids import uuid_to_text
from ottla.client.core import admin, transaction_admin
from ottla.console.model import Done, Field, Form, Link, Mark, Note, Page, PageError, Table, columns, group_link, href, moment, number, size
from ottla.console.pages.settings import change_form, setting_table
from ottla.console.pages.topics import groups_of, topic_sizes
from ottla.console.visit import INT_MAX, Visit, action, check_typed, page
from ottla.wire.messages.metadata import MetadataResponseTopic

TRAIL = (Link("Topics", "/topics"),)
TOPIC_SOURCE = 1
"""`config_source` of a setting of the topic itself (KIP-226)."""


def tabs_of(topic: str) -> list[tuple[str, str]]:
    names = (
        ("Partitions", ""), ("Messages", "messages"), ("Live", "live"), ("Log", "log"), ("Groups", "groups"),
        ("Producers", "producers"), ("Settings", "settings"), ("Statistics", "statistics"),
    )  # fmt: skip
    return [(name, href("topics", topic, *([path] if path else []))) for name, path in names]


def topic_of(visit: Visit) -> tuple[str, MetadataResponseTopic]:
    """Asks the cluster for the topic in the path and returns it. Raises `PageError` if the topic does not exist."""
    name = visit.path["topic"]
    answer = visit.cluster.refresh([name])
    for topic in answer.topics:
        if topic.name == name and not topic.error_code:
            return name, topic
    raise PageError(f"There is no topic {name!r}. It may have been deleted; the list of topics has those that exist.", 404)


def topics_now(visit: Visit) -> dict[str, MetadataResponseTopic]:
    """Returns all topics as the cluster knows them now. The snapshot may have deleted ones, and may lack new ones."""
    return {topic.name: topic for topic in visit.cluster.refresh(None).topics if topic.name is not None and not topic.error_code}


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
        stable="Last stable offset", end="End offset (high watermark)", records="Offsets", size="Size at the leader",
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
        Form(href("do", "topics", name, "clone"), "Clone the topic", "Clone", [Field("target", "Name of the new topic", is_needed=True)],
             f"Creates an empty topic with the partitions, replication factor and settings of {name}. "
             f"ottla topic clone {name} NEW --records also copies the records."),
        Form(href("do", "topics", name, "trim"), "Delete the records before an offset", "Delete the records",
             [Field("partition", "Partition", choices=[(str(one.partition), str(one.partition)) for one in sorted(bounds)]),
              Field("offset", "Keep from this offset on", kind="number", is_needed=True)],
             "The partition then begins at this offset.", name),
        Form(href("do", "topics", name, "clear"), "Delete all records", "Delete the records", (),
             f"Deletes all records of {name} up to now: {number(records)} offsets. The topic and its settings remain.", name),
        Form(href("do", "topics", name, "delete"), "Delete the topic", "Delete the topic", (),
             f"Deletes {name} with all its records: {number(records)} offsets in {counted(len(bounds), 'partition')}.", name),
    ]  # fmt: skip


@action("/topics/{topic}/grow")
def grow(visit: Visit) -> Done:
    name, topic = topic_of(visit)
    total = visit.whole("total", maximum=INT_MAX)
    if total <= len(topic.partitions):
        raise PageError(f"{name} has {counted(len(topic.partitions), 'partition')} already, and they cannot be removed. Nothing was done.")
    admin.create_partitions(visit.cluster, name, total)
    return Done(f"{name} has {counted(total, 'partition')} now.", href("topics", name))


@action("/topics/{topic}/clone")
def clone(visit: Visit) -> Done:
    name, topic = topic_of(visit)
    target = visit.field("target")
    factor = max(len(one.replica_nodes) for one in topic.partitions)
    found = admin.describe_configs(visit.cluster, admin.TOPIC_RESOURCE, [name])[name]
    if isinstance(found, ApiError):
        raise found
    configs = {one.name: one.value for one in found if one.config_source == TOPIC_SOURCE and not one.is_sensitive}
    admin.create_topic(visit.cluster, target, partitions=len(topic.partitions), replication_factor=factor, configs=configs)
    return Done(f"Topic {target} was created as {name} is, without records.", href("topics", target))


@action("/topics/{topic}/trim")
def trim(visit: Visit) -> Done:
    name, _ = topic_of(visit)
    check_typed(visit, name)
    place, offset = TopicPartition(name, visit.whole("partition")), visit.whole("offset")
    found = bounds_of(visit.cluster, [place])[place]
    if not found.start <= offset <= found.end:
        raise PageError(f"{place} has offsets {found.start} to {found.end}, so nothing was done for {offset}.")
    result = admin.delete_records(visit.cluster, {place: offset})[place]
    if isinstance(result, ApiError):
        raise result
    return Done(f"{place} begins at offset {result} now.", href("topics", name))


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
                "last_sequence": state.last_sequence, "last_written": moment(state.last_timestamp),
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


@page("/topics/{topic}/statistics", "Sizes and the newest record of each partition of a topic")
def statistics(visit: Visit) -> Page:
    name, topic = topic_of(visit)
    led = [TopicPartition(name, one.partition_index) for one in topic.partitions if one.leader_id >= 0]
    bounds = bounds_of(visit.cluster, led) if led else {}
    newest = admin.list_offsets(visit.cluster, dict.fromkeys(led, admin.MAX_TIMESTAMP)) if led else {}
    sizes: dict[TopicPartition, int] = {}
    for directory in visit.view().directories:
        for (topic_name, partition), bytes_ in directory.sizes.items():
            if topic_name == name:
                place = TopicPartition(name, partition)
                sizes[place] = max(bytes_, sizes.get(place, 0))
    rows = []
    for place in sorted(bounds):
        offsets, at = bounds[place].end - bounds[place].start, newest[place]
        known = at if isinstance(at, admin.OffsetAt) and at.offset >= 0 else None
        rows.append({
            "partition": place.partition, "records": offsets, "share": _share(offsets, bounds), "size": size(sizes.get(place)),
            "mean": sizes[place] / offsets if offsets and place in sizes else None,
            "newest": moment(known.timestamp) if known else None, "at": known.offset if known else None,
        })  # fmt: skip
    titles = columns(
        partition="Partition", records="Offsets", share="Share", size="Size", mean="Bytes per offset", newest="Newest record",
        at="At offset",
    )  # fmt: skip
    note = Note(f"ottla topic analyze {name} reads the records themselves: keys, duplicates, sizes, types.")
    return Page(name, tables=[Table("statistics", "Statistics", titles, rows)], notes=[note], tabs=tabs_of(name), trail=TRAIL)


def _share(offsets: int, bounds: dict[TopicPartition, Bounds]) -> str:
    total = sum(found.end - found.start for found in bounds.values())
    return f"{100 * offsets / total:.1f} %" if total else "-"
