"""Converts a live group from the classic protocol to KIP-848's, and back.

Upgrade: the first member with the new protocol turns the classic group into a consumer group. The classic members remain members. Their
assignments become their current and target assignments, and the generation becomes the group's epoch. (In the first rebalance of a group
the members have no assignments yet.) The classic members have to join again, and continue with classic requests (`classic_members.py`).

Downgrade: when the last member of the new protocol has quit or was removed and only classic members remain, the group becomes a classic
group again. The group's epoch becomes the generation, and the group rebalances.

Invariants: the conversion itself revokes no partition; a group that cannot be converted does not change. A downgraded group starts in a
rebalance. Until all members have joined again, its requests are answered as during any rebalance. `group.consumer.migration.policy` allows
both directions, one or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.base.uuids import Uuid
from ottla.groups import records
from ottla.groups.classic import rebalance
from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, read_subscription
from ottla.groups.classic.member import ClassicMember
from ottla.groups.consumer.group import ClassicFacts, ConsumerGroup, MemberFacts
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.modern.group import PartitionsByTopic
from ottla.groups.modern.reconciling import ReconciledAssignment
from ottla.groups.modern.topics import metadata_hash
from ottla.groups.shard import GroupShard
from ottla.groups.states import STABLE
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition

STICKY = ("sticky", "cooperative-sticky")

# Assignments in the encoding of classic members


def write_assignment(shard: GroupShard, assigned: Mapping[Uuid, Iterable[int]], subscription: bytes) -> bytes:
    """Encodes an assignment for a classic consumer, by topic names, in the version of the consumer's subscription."""
    topics = []
    for topic_id, partitions in assigned.items():
        name = shard.topics.topic_name(topic_id)
        if name is not None:
            topics.append(ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=list(partitions)))
    newest = ConsumerProtocolAssignment.VERSIONS[1]
    version = min(int.from_bytes(subscription[:2], "big"), newest)
    return version.to_bytes(2, "big") + encoder(ConsumerProtocolAssignment, version)(ConsumerProtocolAssignment(assigned_partitions=topics))


def read_assignment(shard: GroupShard, data: bytes, protocol_name: str | None) -> PartitionsByTopic | None:
    """Decodes an assignment; empty data has no partitions. Returns None if decoding fails, or if it contains user data of a custom
    assignor, because a server-side assignor cannot update such data.

    The user data of the sticky assignors only repeats the assigned partitions, so it is ignored.
    """
    if not data:
        return {}
    try:
        version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.VERSIONS[1])
        assignment, _ = decoder(ConsumerProtocolAssignment, version)(data, 2)
    except WireError:
        return None
    if assignment.user_data and protocol_name not in STICKY:
        return None
    return by_topic_id(shard, {topic.topic: topic.partitions for topic in assignment.assigned_partitions})


def by_topic_id(shard: GroupShard, partitions: Mapping[str, Iterable[int]]) -> PartitionsByTopic:
    """Returns the partitions by topic id, without unknown topics and negative partition numbers."""
    found: PartitionsByTopic = {}
    for name, wanted in partitions.items():
        topic_id = shard.topics.topic_id(name)
        if topic_id is not None and (mine := tuple(sorted({partition for partition in wanted if partition >= 0}))):
            found[topic_id] = mine
    return found


# Upgrade


def upgrade(shard: GroupShard, group: ClassicGroup) -> ConsumerChange:
    """Converts a classic group. Raises GROUP_ID_NOT_FOUND if that is not possible. The caller calls `leave_classic` after all other
    checks.
    """
    if shard.settings.consumer_migration_policy not in ("bidirectional", "upgrade"):
        raise _cannot_upgrade(group, "the migration policy does not allow it")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _cannot_upgrade(group, f"its members are no consumers but {group.protocol_type!r}")
    if len(group.members) > shard.settings.consumer_members_max:
        raise _cannot_upgrade(group, "it has too many members")
    change, held = ConsumerChange(ConsumerGroup(group.group_id)), 0
    change.records.append(records.group_tombstone(group.group_id))
    for member_id, member in group.members.items():
        assigned = read_assignment(shard, bytes(member.assignment), group.protocol_name) if group.state is STABLE or group.stored else {}
        metadata = member.metadata(group.protocol_name) or member.protocols[0][1]
        subscription = read_subscription(metadata)
        if subscription is None or assigned is None:
            raise _cannot_upgrade(group, f"the subscription or assignment of member {member_id} is not in a known format")
        change.put_member(member_id, _facts(member, tuple(sorted(dict.fromkeys(subscription.topics)))))
        change.put_target(member_id, assigned)
        change.put_position(member_id, ReconciledAssignment.settled(group.generation, group.generation, assigned))
        held += sum(map(len, assigned.values()))
    if held != len(change.group.owners):
        raise _cannot_upgrade(group, "some partitions have several readers")
    change.put_epoch(group.generation, metadata_hash(shard, change.group))
    # With time 0 the target is treated as old, so a new target is made at once for the first member of the new protocol.
    change.put_target_epoch(group.generation, 0)
    return change


def _cannot_upgrade(group: ClassicGroup, why: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a classic group and cannot be upgraded: {why}.")


def _facts(member: ClassicMember, topics: tuple[str, ...]) -> MemberFacts:
    return MemberFacts(
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicFacts(member.session_timeout_ms, member.protocols),
    )


def leave_classic(shard: GroupShard, group: ClassicGroup, draft: Draft, now_ms: int) -> None:
    """Answers waiting JoinGroup and SyncGroup requests with REBALANCE_IN_PROGRESS, so that these members join again, and stops the timers
    of the classic rebalance. If the log refuses the conversion, the classic group remains, and its timers start again.
    """
    for member in group.members.values():
        rebalance.answer_join(member, group, draft, rebalance.refuse_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        rebalance.answer_sync(member, draft, rebalance.refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS))
    draft.cancel(f"join/{group.group_id}")
    draft.cancel(f"sync/{group.group_id}")
    draft.on_refusal(lambda repair, _code: rebalance.watch_again(shard, group, repair, now_ms))


# Downgrade


def is_downgrade_allowed(shard: GroupShard) -> bool:
    return shard.settings.consumer_migration_policy in ("bidirectional", "downgrade")


def may_downgrade(shard: GroupShard, group: ConsumerGroup) -> bool:
    """Whether the policy allows a downgrade, and all members are classic, at most `group.max.size`, and support a common protocol."""
    if not is_downgrade_allowed(shard):
        return False
    if not 0 < len(group.facts) <= shard.settings.members_max:
        return False
    shared: set[str] | None = None
    for facts in group.facts.values():
        if facts.classic is None:
            return False
        names = {name for name, _ in facts.classic.protocols}
        shared = names if shared is None else shared & names
    return bool(shared)


def downgrade(shard: GroupShard, change: ConsumerChange, draft: Draft) -> None:
    """Adds the records that turn a group of classic members into a classic group, with the group's epoch as generation. Afterwards the
    timers of its members start."""
    group = change.group
    twin = _as_classic(group)
    twin.protocol_name = twin.select_protocol()
    assignments = {}
    for member_id, facts in group.facts.items():
        assert facts.classic is not None
        assignments[member_id] = write_assignment(shard, group.position(member_id).assigned, facts.classic.protocols[0][1])
    value = twin.to_record(assignments)
    value.leader = None  # a record without leader is loaded as a group in a rebalance
    change.remove_group()
    change.records.append(records.group_metadata(group.group_id, value))
    group_id = group.group_id
    draft.schedule(f"downgrade/{group_id}", 0, lambda now_ms: _start_classic(shard, group_id, now_ms))


def protocol_after_downgrade(group: ConsumerGroup) -> str:
    return _as_classic(group).select_protocol()


def _as_classic(group: ConsumerGroup) -> ClassicGroup:
    twin = ClassicGroup(group.group_id, group.target_timestamp_ms)
    twin.protocol_type = CONSUMER_PROTOCOL_TYPE
    twin.generation = group.epoch
    for member_id, facts in group.facts.items():
        assert facts.classic is not None
        twin.add(
            ClassicMember(
                member_id=member_id,
                instance_id=facts.instance_id,
                client_id=facts.client_id,
                client_host=facts.client_host,
                rebalance_timeout_ms=facts.rebalance_timeout_ms,
                session_timeout_ms=facts.classic.session_timeout_ms,
                protocols=facts.classic.protocols,
            )
        )
    return twin


def _start_classic(shard: GroupShard, group_id: str, now_ms: int) -> Decision:
    group = shard.groups.get(group_id)
    if type(group) is not ClassicGroup:
        return NOTHING
    draft = Draft()
    rebalance.watch_members(shard, group, draft, now_ms)
    return draft.decision()
