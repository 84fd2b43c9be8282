"""`ottla partitions drain` and `rebalance`: plan new replicas, move them, and wait until they are in sync.

Without `--execute` the plan is only shown. The moves are reassignments, which the controller finishes even if the command ends before them.
If the command is called again, it waits for the unfinished moves and plans the remaining ones, so it can be repeated until nothing remains
to be moved. A partition without a leader is not moved, because its records cannot be copied.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from ottla.analysis.progress import Progress
from ottla.analysis.replica_plans import Plan, Sizes, assigned, bytes_on, drained, is_cordoned, partition_sizes, rebalanced
from ottla.base.counted import counted
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.cluster.partitions import PlannedRow, clear_throttles, parse_rate
from ottla.cli.command import YES, Args, Refused, UsageError, command, confirm, flag, merged, merged_numbers, option
from ottla.cli.render.ottla import Output
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import replica_admin

POLL_S = 0.5
STALLED_S = 20.0
"""If no move has ended for this time, the command names the moves and the replicas that are not in sync."""
NAMED_MAX = 5

MOVES = (
    option("--throttle", type=int, metavar="B/s", help="bytes a second between brokers while replicas move"),
    flag("--execute", help="move the replicas; without this the plan is only shown"),
    flag("--no-wait", help="return when the moves have started"),
    YES,
)


@command(
    "partitions drain",
    "Move all replicas away from brokers.",
    option("--broker", action="append", required=True, metavar="ID,...", help="the brokers to empty; they may be down"),
    option("--to", action="append", metavar="ID,...", help="the brokers that take the replicas; default: all live others, if not cordoned"),
    *MOVES,
)
def _drain(args: Args, cluster: Cluster, output: Output) -> int:
    emptied = merged_numbers(args.broker, "--broker is a broker id or a list of them, such as 3,4")
    targets = _targets(cluster, merged_numbers(args.to, "--to is a list of broker ids, such as 1,2"), emptied)
    now = assigned(cluster, cluster.topic_names())
    plan, stuck = drained(now, emptied, targets, cluster.metadata.racks)
    if stuck:
        copies, others = counted(len(now[stuck[0]]), "replica"), counted(len(targets), "other broker")
        raise Refused(f"{stuck[0]} has {copies}, too many for {others}; start one more, or name more with --to")
    return _carry_out(args, cluster, output, now, plan)


@command(
    "partitions rebalance",
    "Spread replicas, leaders and bytes evenly over the brokers.",
    option("--topic", action="append", metavar="TOPIC", help="only these topics; default: all"),
    flag("--leaders-only", help="move no records, only change who is preferred as leader"),
    *MOVES,
)
def _rebalance(args: Args, cluster: Cluster, output: Output) -> int:
    brokers = _targets(cluster, [], [])
    now = assigned(cluster, merged(args.topic) or cluster.topic_names())
    sizes: Sizes = {}
    if not args.leaders_only:
        sizes, unread = partition_sizes(cluster, brokers)
        if unread:
            names = ", ".join(map(str, unread))
            output.note(f"only replicas are counted, not bytes: the sizes on {counted(len(unread), 'broker')} cannot be read ({names})")
            sizes = {}
    plan = rebalanced(now, brokers, cluster.metadata.racks, leaders_only=args.leaders_only, sizes=sizes)
    status = _carry_out(args, cluster, output, now, plan)
    if sizes and plan and not args.execute:
        before, after = bytes_on(now, sizes), bytes_on({**now, **plan}, sizes)
        output.note("bytes by broker: " + ", ".join(f"{broker}: {before[broker]} -> {after[broker]}" for broker in brokers))
    return status


def _targets(cluster: Cluster, named: Sequence[int], emptied: Collection[int]) -> list[int]:
    """Returns the brokers that take replicas: the named ones, or all live brokers that are not cordoned. Brokers that are being emptied are
    left out. Raises `UsageError` for a named broker that is not live.
    """
    cluster.refresh([])
    live = sorted(cluster.metadata.brokers)
    unknown = sorted(set(named) - set(live))
    if unknown:
        raise UsageError(f"no broker {unknown[0]} is alive; there are {', '.join(map(str, live))}")
    kept = [broker for broker in named or live if broker not in emptied]
    return kept if named else [broker for broker in kept if not is_cordoned(cluster, broker)]


def _carry_out(args: Args, cluster: Cluster, output: Output, now: Plan, plan: Plan) -> int:
    rate = parse_rate(args.throttle, "--throttle")
    errors = dict.fromkeys(_leaderless(cluster, plan), ErrorCode.LEADER_NOT_AVAILABLE)
    movable = {partition: replicas for partition, replicas in plan.items() if partition not in errors}
    if args.execute:
        if movable:
            confirm(args, f"Change the replicas of {counted(len(movable), 'partition')}?")
        errors = {**errors, **_execute(cluster, output, now, movable, rate, must_wait=not args.no_wait)}
    rows = [
        PlannedRow(*partition, now[partition], replicas, errors[partition].name if errors.get(partition) else None)
        for partition, replicas in sorted(plan.items())
    ]
    output.rows("partitions", PlannedRow, rows, extra={"executed": args.execute})
    if not args.execute:
        output.note("nothing was changed; add --execute to do it" if plan else "there is nothing to move")
    if without := len(plan) - len(movable):
        advice = "start the brokers that are down, or see `ottla partitions elect --accept-loss`"
        output.note(f"{counted(without, 'partition')} without a leader cannot be moved: {advice}")
    return 1 if any(errors.values()) else 0


def _execute(
    cluster: Cluster, output: Output, now: Plan, plan: Plan, rate: int | None, *, must_wait: bool
) -> Mapping[TopicPartition, ErrorCode]:
    """Starts the moves. With `must_wait`, waits for them and for moves of an earlier run, removes the throttles unless other partitions
    still move, and elects the preferred leaders. Returns the error code of each partition of the plan."""
    moving = {partition: now[partition] for partition in replica_admin.moves_under_way(cluster) if partition in now}
    changing = {**moving, **plan}
    if rate is not None and changing:  # replaces the throttles of an earlier run
        replica_admin.throttle_moves(cluster, changing, replica_admin.replicas_of(cluster, changing), rate)
    errors = replica_admin.move_replicas(cluster, plan) if plan else {}
    if must_wait:
        _wait(cluster, output, changing)
        if not replica_admin.moves_under_way(cluster):
            topics = sorted({partition.topic for partition in now})
            clear_throttles(cluster, output, replica_admin.throttled_topics(cluster, topics))
        if changing:
            replica_admin.elect_leaders(cluster, replica_admin.PREFERRED, list(changing))
    return errors


def _leaderless(cluster: Cluster, plan: Plan) -> set[TopicPartition]:
    topics = {partition.topic for partition in plan}
    found = {TopicPartition(topic, each.partition_index): each for topic in topics for each in cluster.topic(topic).partitions}
    return {partition for partition in plan if found[partition].leader_id < 0}


def _wait(cluster: Cluster, output: Output, changing: Plan) -> None:
    """Waits until none of the partitions is being moved."""
    left = len(changing.keys() & replica_admin.moves_under_way(cluster).keys())
    if left:
        output.note(f"{counted(left, 'partition')} moving; the moves go on if this command ends, and the same command waits for them again")
    with Progress("moving replicas", left, is_quiet=output.is_quiet) as progress:
        named_at_s = time.monotonic() + STALLED_S
        while left:
            time.sleep(POLL_S)
            moving = changing.keys() & replica_admin.moves_under_way(cluster).keys()
            progress.add(left - len(moving))
            if len(moving) < left:
                left, named_at_s = len(moving), time.monotonic() + STALLED_S
            elif time.monotonic() >= named_at_s:
                named_at_s = time.monotonic() + STALLED_S
                output.note(f"still waiting for {', '.join(_obstacles(cluster, changing, moving))}")


def _obstacles(cluster: Cluster, changing: Plan, moving: Collection[TopicPartition]) -> Iterator[str]:
    """Yields what the first `NAMED_MAX` moves wait for: `orders-0 (no leader)`, `orders-1 (broker 3 not in sync)`."""
    for partition in sorted(moving)[:NAMED_MAX]:
        found = next(one for one in cluster.topic(partition.topic).partitions if one.partition_index == partition.partition)
        behind = [str(broker) for broker in changing[partition] if broker not in found.isr_nodes]
        reason = f"{'broker' if len(behind) == 1 else 'brokers'} {', '.join(behind)} not in sync" if behind else "the controller"
        yield f"{partition} ({'no leader' if found.leader_id < 0 else reason})"
    if len(moving) > NAMED_MAX:
        yield f"{len(moving) - NAMED_MAX} more"
