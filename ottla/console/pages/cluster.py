"""Pages about the cluster: running reassignments, leaders that are not preferred, elections that the console has seen, and the wizard that
moves replicas in three steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ottla.analysis.replica_plans import Plan, assigned, drained, handed_over, is_cordoned, rebalanced
from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core import replica_admin
from ottla.console.model import Done, Field, Form, Link, Mark, Note, Page, PageError, Table, columns, moment, number, size
from ottla.console.pages.topic import topics_now
from ottla.console.snapshot import View
from ottla.console.visit import Visit, action, check_typed, page

TRAIL = (Link("Cluster", "/cluster"),)
WAYS = (
    ("rebalance", "spread replicas and leaders evenly over the brokers"), ("leaders", "spread only the leaders; no record moves"),
    ("leadership", "hand over the leaders of a broker; no record moves"), ("drain", "move everything away from a broker"),
    ("replicas", "give partitions of a topic these replicas"),
)  # fmt: skip
LEADER_WAYS = ("leaders", "leadership")
"""Ways that only change the order of replicas. The console then elects the preferred leaders."""
ORDERED_S = 5.0
"""Seconds that an action waits for the new order of replicas before it elects leaders."""
LEVELS = {"election": "warn", "offline": "bad", "fewer in sync": "warn", "more in sync": "ok"}


@page("/cluster", "The controller, moves of replicas, and elections that the console has seen", name="Cluster", section="Cluster")
def cluster(visit: Visit) -> Page:
    view = visit.view()
    moves, notes = dict[TopicPartition, replica_admin.Move](), []
    try:
        moves = replica_admin.moves_under_way(visit.cluster)
    except ApiError as error:
        notes.append(Note(f"Moves of replicas are not shown: {error.message} ({error.code.name})", "warn"))
    unpreferred = [
        {"partition": f"{name}-{one.partition_index}", "leader": one.leader_id, "preferred": one.replica_nodes[0],
         "in_sync": Mark("in sync", "ok") if one.replica_nodes[0] in one.isr_nodes else Mark("not in sync", "warn")}
        for name, topic in sorted(view.topics.items()) for one in topic.partitions
        if one.replica_nodes and one.leader_id not in (-1, one.replica_nodes[0])
    ]  # fmt: skip
    changes = [
        {"at": moment(1000 * one.at_s), "partition": one.partition, "what": Mark(one.what, LEVELS[one.what]), "before": one.before,
         "after": one.after}
        for one in reversed(visit.desk.snapshot.changes.seen)
    ]  # fmt: skip
    rows = [
        {"partition": str(place), "replicas": list(one.replicas), "adding": list(one.adding), "removing": list(one.removing)}
        for place, one in sorted(moves.items())
    ]
    facts = [
        ("Cluster id", view.look.cluster_id), ("Controller", view.look.controller), ("Brokers", Link(str(view.look.brokers), "/brokers")),
        ("Partitions", view.look.partitions), ("Without a leader", view.look.leaderless), ("Under-replicated", view.look.out_of_sync),
        ("Leader not preferred", len(unpreferred)), ("Moves", len(moves)), ("ZooKeeper", Link("nodes", "/zookeeper")),
    ]  # fmt: skip
    tables = [
        Table("moves", "Replicas that move",
              columns(partition="Partition", replicas="Replicas", adding="Adding", removing="Removing"), rows, "No replica moves."),
        Table("unpreferred", "Leaders that are not the preferred one",
              columns(partition="Partition", leader="Leader", preferred="Preferred", in_sync="The preferred one is"), unpreferred,
              "Every leader is the preferred one."),
        Table("changes", "Elections and changes of the in-sync replicas, seen by this console",
              columns(at="When", partition="Partition", what="What", before="Before", after="After"), changes,
              "None since this console looks."),
    ]  # fmt: skip
    return Page("Cluster", facts, tables, _forms(), notes, refresh_s=10)


def _forms() -> list[Form]:
    topic = Field("topic", "Topic (empty: all)")
    return [
        Form("/do/cluster/elect", "Elect the preferred leaders", "Elect", [topic],
             "Makes the first replica of each partition its leader, if it is in sync. Clients find the new leader by themselves."),
        Form("/cluster/plan", "Move replicas: choose, look at the plan, then do it", "Show the plan", _plan_fields({}),
             "Shows the replicas now and then; nothing is changed yet.", is_query=True),
        Form("/do/cluster/cancel", "Cancel moves", "Cancel the moves", [topic],
             "The replicas that are being added are removed, and the old ones stay.", "cancel"),
        Form("/do/cluster/unthrottle", "Remove throttles of moves", "Remove the throttles", (),
             "Removes the replication throttles of all brokers and topics. Do it when no replica moves."),
    ]  # fmt: skip


def _plan_fields(query: Mapping[str, str]) -> list[Field]:
    return [
        Field("way", "What to do", query.get("way", "rebalance"), choices=WAYS),
        Field("topic", "Topic (empty: all)", query.get("topic", "")),
        Field("broker", "Broker, to drain it or to hand over its leaders", query.get("broker", "")),
        Field("partition", "Partition (empty: all of the topic), for given replicas", query.get("partition", "")),
        Field("replicas", "Replicas, such as 1,2,3; the first one is preferred as leader", query.get("replicas", "")),
    ]


@page("/cluster/plan", "The plan of a reassignment: replicas now and then; changes nothing",
      query=("way", "topic", "broker", "partition", "replicas"))  # fmt: skip
def show_plan(visit: Visit) -> Page:
    view, query = visit.view(), visit.query
    now, plan = _plan(visit, view, query)
    sizes = _sizes(view)
    rows, copied = [], 0
    for place, replicas in sorted(plan.items()):
        new = [broker for broker in replicas if broker not in now[place]]
        bytes_copied = len(new) * sizes.get((place.topic, place.partition), 0)
        copied += bytes_copied
        rows.append({
            "partition": str(place), "now": list(now[place]), "then": list(replicas),
            "copied": size(bytes_copied) if new else "only the order",
        })  # fmt: skip
    table = Table("plan", "Plan", columns(partition="Partition", now="Replicas now", then="Replicas then", copied="Copied"), rows,
                  "There is nothing to move: this is how the replicas are.")  # fmt: skip
    text = " ".join(f"{place.topic}:{place.partition}={','.join(map(str, replicas))}" for place, replicas in sorted(plan.items()))
    if query.get("way") in LEADER_WAYS:
        do = Form("/do/cluster/reassign", "Do it", "Hand over the leaders", (),
                  f"Changes the order of the replicas of {counted(len(plan), 'partition')}, and elects the first ones as leaders. No "
                  "record moves.", "reassign", {"plan": text, "elect": "yes"}, is_open=True)  # fmt: skip
    else:
        do = Form("/do/cluster/reassign", "Do it", "Move the replicas",
                  [Field("throttle", "Bytes a second between brokers (empty: no limit)", kind="number")],
                  f"Changes the replicas of {counted(len(plan), 'partition')} and copies {size(copied)}. The controller finishes the moves "
                  "by itself.", "reassign", {"plan": text}, is_open=True)  # fmt: skip
    again = Form("/cluster/plan", "Choose again", "Show the plan", _plan_fields(query), is_query=True)
    notes = [Note("Nothing was changed yet. This is the plan.")]
    return Page("Move replicas", tables=[table], forms=[*([do] if plan else []), again], notes=notes, trail=TRAIL)


def _sizes(view: View) -> dict[tuple[str, int], int]:
    sizes: dict[tuple[str, int], int] = {}
    for directory in view.directories:
        for place, found in directory.sizes.items():
            sizes[place] = max(found, sizes.get(place, 0))
    return sizes


def _plan(visit: Visit, view: View, query: Mapping[str, str]) -> tuple[Plan, Plan]:
    """Returns the current replicas and the changes. Raises `PageError` for unusable input, and if a broker cannot be drained."""
    way, topic = query.get("way", ""), query.get("topic", "").strip()
    if way not in dict(WAYS):
        raise PageError("Choose what to do.")
    topics = topics_now(visit)
    if topic and topic not in topics:
        raise PageError(f"There is no topic {topic[:100]!r}.", 404)
    now = assigned(visit.cluster, [topic] if topic else sorted(topics))
    live = sorted(broker.node_id for broker in view.metadata.brokers)
    racks = {broker.node_id: broker.rack for broker in view.metadata.brokers}
    if way == "replicas":
        return now, _given(now, topic, query, live)
    if way == "leadership":
        givers = _brokers(query.get("broker", ""), live)
        if len(givers) > 1:
            raise PageError("Name one broker whose leaders are handed over.")
        return now, handed_over(now, givers[0], live)
    targets = [broker for broker in live if not is_cordoned(visit.cluster, broker)]
    if way != "drain":
        return now, rebalanced(now, targets, racks, leaders_only=way == "leaders")
    (emptied,) = _brokers(query.get("broker", ""), None) or [-1]
    plan, stuck = drained(now, [emptied], [broker for broker in targets if broker != emptied], racks)
    if stuck:
        copies, others = counted(len(now[stuck[0]]), "replica"), counted(len(targets) - (emptied in targets), "other broker")
        raise PageError(f"{stuck[0]} has {copies}, too many for {others}. Start one more.", 409)
    return now, plan


def _given(now: Plan, topic: str, query: Mapping[str, str], live: Sequence[int]) -> Plan:
    if not topic:
        raise PageError("Name the topic whose replicas are given.")
    replicas = _brokers(query.get("replicas", ""), live)
    number_text = query.get("partition", "").strip()
    wanted = [place for place in now if not number_text or str(place.partition) == number_text]
    if not wanted:
        raise PageError(f"Topic {topic!r} has no partition {number_text[:20]}.", 404)
    return {place: replicas for place in wanted if now[place] != replicas}


def _brokers(text: str, live: Sequence[int] | None) -> list[int]:
    """Returns brokers as numbers. If `live` is given, only these brokers may be named."""
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and len(word) < 11 for word in words) or (live is None and len(words) > 1):
        raise PageError(f"Name {'brokers such as 1,2,3' if live is not None else 'the broker to empty'}, not {text[:40]!r}.")
    found = [int(word) for word in words]
    unknown = [broker for broker in found if live is not None and broker not in live]
    if unknown or len(set(found)) != len(found):
        raise PageError(f"Broker {unknown[0]} does not run." if unknown else f"{text[:40]!r} names a broker twice.")
    return found


# Actions


@action("/cluster/reassign")
def reassign(visit: Visit) -> Done:
    """Moves exactly the replicas of the plan that was shown."""
    check_typed(visit, "reassign")
    plan: Plan = {}
    for step in visit.field("plan").split():
        place, _, replicas = step.rpartition("=")
        topic, _, partition = place.rpartition(":")
        if not (topic and partition.isdecimal() and all(one.isdecimal() for one in replicas.split(","))):
            raise PageError("The plan in this form cannot be read; nothing was changed.")
        plan[TopicPartition(topic, int(partition))] = [int(one) for one in replicas.split(",")]
    rate = visit.whole("throttle", 0)
    if rate < 0:
        raise PageError("The throttle is a number of bytes a second above 0; nothing was changed.")
    if rate:
        visit.cluster.refresh(sorted({place.topic for place in plan}))
        replica_admin.throttle_moves(visit.cluster, plan, replica_admin.replicas_of(visit.cluster, plan), rate)
    _check_moved(replica_admin.move_replicas(visit.cluster, plan))
    if visit.form.get("elect") == "yes":
        return _elected_in_order(visit, plan)
    return Done(f"The replicas of {counted(len(plan), 'partition')} are being moved.", "/cluster")


def _elected_in_order(visit: Visit, plan: Plan) -> Done:
    """Elects the preferred leaders of a plan when the cluster has the new order of replicas."""
    deadline = time.monotonic() + ORDERED_S
    while True:
        visit.cluster.refresh(sorted({place.topic for place in plan}))
        if all(list(found) == plan[place] for place, found in replica_admin.replicas_of(visit.cluster, plan).items()):
            return _elected(visit, list(plan))
        if time.monotonic() > deadline:
            raise PageError("The replicas are being ordered. Elect the preferred leaders when the plan is empty.", 503)
        time.sleep(0.05)


def _check_moved(results: Mapping[TopicPartition, ErrorCode]) -> None:
    refused = [f"{place}: {code.name}" for place, code in results.items() if code]
    if refused:
        raise PageError(f"{number(len(refused))} of {number(len(results))} were refused: {'; '.join(refused[:5])}")


@action("/cluster/cancel")
def cancel(visit: Visit) -> Done:
    check_typed(visit, "cancel")
    topic = visit.form.get("topic", "").strip()
    wanted = [place for place in replica_admin.moves_under_way(visit.cluster) if not topic or place.topic == topic]
    if not wanted:
        raise PageError("No such replica moves; nothing was done.", 404)
    _check_moved(replica_admin.move_replicas(visit.cluster, dict.fromkeys(wanted)))
    return Done(f"The moves of {counted(len(wanted), 'partition')} were cancelled.", "/cluster")


@action("/cluster/unthrottle")
def unthrottle(visit: Visit) -> Done:
    topics = replica_admin.throttled_topics(visit.cluster, sorted(topics_now(visit)))
    unreached = replica_admin.clear_throttles(visit.cluster, topics)
    if unreached:
        raise PageError(f"Broker {unreached[0]} could not be reached, so it keeps its throttles.", 503)
    return Done("No broker and no topic has a replication throttle now.", "/cluster")


@action("/cluster/elect")
def elect(visit: Visit) -> Done:
    topic = visit.form.get("topic", "").strip()
    if topic and topic not in topics_now(visit):
        raise PageError(f"There is no topic {topic[:100]!r}; nothing was done.", 404)
    return _elected(visit, [TopicPartition(topic, one) for one in visit.cluster.partitions(topic)] if topic else None)


def _elected(visit: Visit, wanted: Sequence[TopicPartition] | None) -> Done:
    """Elects the preferred leaders of these partitions, or of all."""
    results = replica_admin.elect_leaders(visit.cluster, replica_admin.PREFERRED, wanted)
    failed = [f"{place}: {one.code.name}" for place, one in results.items()
              if one is not None and one.code is not ErrorCode.ELECTION_NOT_NEEDED]  # fmt: skip
    elected = sum(one is None for one in results.values())
    if failed:
        raise PageError(f"{counted(elected, 'leader')} elected, but not of {'; '.join(failed[:5])}")
    return Done(f"{counted(elected, 'leader')} elected." if elected else "Every leader was the preferred one already.", "/cluster")
