"""Requests of the classic protocol. A consumer group (KIP-848) has other rules for them than a classic group.

The rules are in `classic/` and in `consumer/classic_members.py`.
"""

from __future__ import annotations

from ottla.groups.classic import join, leave, rebalance, sync
from ottla.groups.commands import Heartbeat, Join, Leave, Sync
from ottla.groups.consumer import classic_members
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.shard import GroupShard
from ottla.machine.contract import NOTHING, Decision, Reply
from ottla.machine.draft import Draft


def join_group(shard: GroupShard, command: Join, reply: Reply, now_ms: int) -> Decision:
    group = shard.groups.get(command.group_id)
    if type(group) is not ConsumerGroup:
        return join.join_group(shard, command, reply, now_ms)
    draft = Draft()
    if not classic_members.give_way(shard, group, command, draft):
        return classic_members.join_group(shard, group, command, reply, now_ms)
    # `give_way` has put the conversion to a classic group into the draft. The member joins when the conversion is committed.
    deferred = shard.deferred.defer("join", reply, lambda code: rebalance.refuse_join(code, command.member_id), draft)
    draft.schedule(deferred.key, 0, lambda later_ms: join_group(shard, command, reply, later_ms) if deferred.take() else NOTHING)
    return draft.decision()


def sync_group(shard: GroupShard, command: Sync, reply: Reply, now_ms: int) -> Decision:
    group = shard.groups.get(command.group_id)
    if type(group) is ConsumerGroup:
        return classic_members.sync_group(shard, group, command, reply, now_ms)
    return sync.sync_group(shard, command, reply, now_ms)


def heartbeat(shard: GroupShard, command: Heartbeat, reply: Reply, now_ms: int) -> Decision:
    """Answers with an `ErrorCode`."""
    group = shard.groups.get(command.group_id)
    if type(group) is ConsumerGroup:
        return classic_members.heartbeat(shard, group, command, reply, now_ms)
    return sync.heartbeat(shard, command, reply, now_ms)


def leave_group(shard: GroupShard, command: Leave, reply: Reply, now_ms: int) -> Decision:
    group = shard.groups.get(command.group_id)
    if type(group) is ConsumerGroup:
        return classic_members.leave_group(shard, group, command, reply)
    return leave.leave_group(shard, command, reply, now_ms)
