"""Pages with the list of topics, a form that creates a topic, and a form that deletes several topics or their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase

from ottla.base.counted import counted
from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.client.core import admin
from ottla.console.model import Done, Field, Form, Link, Mark, Note, Page, PageError, Table, age, columns, href, number, size, topic_link
from ottla.console.snapshot import View
from ottla.console.visit import INT_MAX, Visit, action, check_typed, page


def topic_sizes(view: View) -> Counter[str]:
    """Returns the bytes of each topic on all disks."""
    sizes: Counter[str] = Counter()
    for directory in view.directories:
        for (topic, _), found in directory.sizes.items():
            sizes[topic] += found
    return sizes


def groups_of(view: View) -> dict[str, list[tuple[str, int]]]:
    """Returns the groups of each topic with their lag, largest first."""
    found: dict[str, list[tuple[str, int]]] = {}
    for group, lags in view.lags.items():
        for topic, lag in lags.items():
            found.setdefault(topic, []).append((group, lag))
    return {topic: sorted(groups, key=lambda pair: -pair[1]) for topic, groups in found.items()}


WHAT = (("delete", "the topics"), ("clear", "all records of the topics"))


@page("/topics", "All topics", name="Topics", section="Data", query=("internal",))
def topics(visit: Visit) -> Page:
    view = visit.view()
    has_internal = visit.query.get("internal") == "1"
    sizes, groups = topic_sizes(view), groups_of(view)
    rows = [
        {
            "topic": topic_link(one.name), "partitions": one.partitions,
            "replication": max((len(each.replica_nodes) for each in view.topics[one.name].partitions), default=0),
            "out_of_sync": Mark(str(one.out_of_sync), "warn") if one.out_of_sync else 0,
            "records": one.end, "rate": one.rate, "size": size(sizes[one.name]),
            "last": age(view.last_records.get(one.name, -1), 1000 * view.at_s),
            "cleanup": view.settings[one.name].cleanup if one.name in view.settings else None,
            "lag": max((lag for _, lag in groups.get(one.name, ())), default=None),
            "groups": [f"{group} {number(lag)}" for group, lag in groups.get(one.name, ())[:3]],
        }
        for one in sorted(view.look.topics, key=lambda one: one.name)
        if one.name in view.topics and (has_internal or not view.topics[one.name].is_internal)
    ]  # fmt: skip
    titles = columns(
        topic="Topic", partitions="Partitions", replication="Replicas", out_of_sync="Out of sync", records="End offsets",
        rate="Rate", size="Disk", last="Last record", cleanup="Cleanup", lag="Largest lag", groups="Groups and lag",
    )  # fmt: skip
    switch = Link("hide internal topics", "/topics") if has_internal else Link("show internal topics", href("topics", internal=1))
    form = Form(
        "/do/topics/create", "Create a topic", "Create",
        [
            Field("name", "Name", is_needed=True), Field("partitions", "Partitions (empty: the broker's default)", kind="number"),
            Field("replication", "Replication factor (empty: the broker's default)", kind="number"),
            Field("cleanup", "Cleanup", choices=[("", "the broker's default"), ("delete", "delete"), ("compact", "compact")]),
        ],
    )  # fmt: skip
    several = Form(
        "/delete-topics", "Delete several topics or their records: choose, look at the list, then do it", "Show the list",
        [
            Field("names", "Names with * and ?, separated by blanks, such as test-*", is_needed=True),
            Field("what", "What to delete", choices=WHAT),
        ],
        "Shows the topics first; nothing is deleted yet.", is_query=True,
    )  # fmt: skip
    return Page("Topics", [("Internal topics", switch)], [Table("topics", "Topics", titles, rows)], [form, several], refresh_s=10)


@action("/topics/create")
def create(visit: Visit) -> Done:
    name, cleanup = visit.field("name"), visit.form.get("cleanup", "")
    configs = {"cleanup.policy": cleanup} if cleanup else {}
    partitions, replication = (visit.whole(name, -1, maximum=INT_MAX) for name in ("partitions", "replication"))
    if 0 in (partitions, replication):
        raise PageError("A topic needs at least one partition and one replica; nothing was done.")
    made = admin.create_topic(visit.cluster, name, partitions=partitions, replication_factor=replication, configs=configs)
    parts = f" with {made.num_partitions} partitions" if made.num_partitions > 1 else ""
    return Done(f"Topic {name} was created{parts}.", href("topics", name))


@page("/delete-topics", "The topics that a pattern matches, before they or their records are deleted; changes nothing",
      query=("names", "what"))  # fmt: skip
def delete_plan(visit: Visit) -> Page:
    view, patterns, verb = visit.view(), visit.query.get("names", "").split(), visit.query.get("what", "delete")
    if not patterns:
        raise PageError("Give names or patterns of topics.")
    if verb not in dict(WHAT):
        raise PageError("Choose what to delete: the topics, or their records.")
    groups = groups_of(view)
    found = [
        one
        for one in sorted(view.look.topics, key=lambda one: one.name)
        if one.name in view.topics and not view.topics[one.name].is_internal and any(fnmatchcase(one.name, each) for each in patterns)
    ]
    rows = [
        {
            "topic": topic_link(one.name), "partitions": one.partitions, "records": one.end,
            "groups": [f"{group} {number(lag)}" for group, lag in groups.get(one.name, ())[:3]],
        }
        for one in found
    ]  # fmt: skip
    titles = columns(topic="Topic", partitions="Partitions", records="End offsets", groups="Groups and lag")
    table = Table("topics", "These topics match", titles, rows, "No topic matches. Internal topics are not deleted here.")
    what = counted(len(found), "topic")
    button, effect = (f"Delete {what}", f"Deletes {what} with all records.") if verb == "delete" else (
        f"Clear {what}", f"Deletes all records of {what} up to now. The topics and their settings remain."
    )  # fmt: skip
    do = Form(
        f"/do/{verb}-topics", "Do it", button, (), effect, f"{verb} {len(found)}", {"names": " ".join(one.name for one in found)},
        is_open=True,
    )  # fmt: skip
    notes = [Note("Nothing was deleted yet.")]
    title = "Delete topics" if verb == "delete" else "Clear topics"
    return Page(title, tables=[table], forms=[do] if found else [], notes=notes, trail=[Link("Topics", "/topics")])


@action("/delete-topics")
def delete_several(visit: Visit) -> Done:
    """Deletes the topics that the confirmation page has listed, even if other topics match the pattern now."""
    names = visit.field("names").split()
    check_typed(visit, f"delete {len(names)}")
    failed = {name: error for name, error in admin.delete_topics(visit.cluster, names).items() if error is not None}
    if failed:
        raise PageError(f"{counted(len(names) - len(failed), 'topic')} deleted, but not {_shown(failed)}")
    return Done(f"{counted(len(names), 'topic')} deleted.", "/topics")


def _shown(failed: Mapping[str, ApiError]) -> str:
    return "; ".join(f"{name}: {error.code.name}" for name, error in list(failed.items())[:5])


@action("/clear-topics")
def clear_several(visit: Visit) -> Done:
    """Deletes the records of exactly the topics of the list that was shown."""
    names = visit.field("names").split()
    check_typed(visit, f"clear {len(names)}")
    visit.cluster.refresh(names)
    places = [TopicPartition(name, one) for name in names for one in visit.cluster.partitions(name)]
    results = admin.delete_records(visit.cluster, dict.fromkeys(places, -1))
    failed = {place.topic: error for place, error in results.items() if isinstance(error, ApiError)}
    if failed:
        raise PageError(f"The records of {counted(len(names) - len(failed), 'topic')} were deleted, but not {_shown(failed)}")
    return Done(f"The records of {counted(len(names), 'topic')} were deleted.", "/topics")
