"""StreamsGroupHeartbeat: joins a streams group, keeps the membership, changes a member's tasks step by step, or ends it (KIP-1071).

A member sends its process, endpoint and topology when it joins. Other heartbeats have the tasks that it owns, if they changed, and the
offsets of its tasks. The answer has the member's epoch. It has the tasks if they changed, if the member joins, or if its connection is
new. Each member moves to the target with its own heartbeats, as in a consumer group (`modern/reconciliation.py`).

The answer also has statuses: topics that are missing or do not fit the topology, a topology that another member has replaced, a delayed
assignment, or a request to end the application. The handler creates missing internal topics with the permissions of the member.

Invariants: the group keeps one topology; a member with another topology is refused while the group has other members, unless its epoch is
earlier. A heartbeat that changes nothing logs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups import records
from ottla.groups.answers import EndpointTasks, StreamsBeat, refuse_streams_beat
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import StreamsHeartbeat
from ottla.groups.modern import topics as epoch_topics
from ottla.groups.modern.group import JOINING_EPOCH, LEAVING_EPOCH, admit, check_names
from ottla.groups.modern.members import check_ids, check_leaving, find_member, invalid, leave_for_a_moment
from ottla.groups.modern.reconciliation import next_position
from ottla.groups.modern.reconciling import LEFT_STATIC_EPOCH
from ottla.groups.modern.sessions import follow_revocation, stop_watching_revocation
from ottla.groups.modern.topics import refresh_of
from ottla.groups.shard import GroupShard
from ottla.groups.streams.group import ACTIVE, STANDBY, StreamsFacts, StreamsGroup, StreamsState, TaskRole
from ottla.groups.streams.records import StreamsChange
from ottla.groups.streams.sessions import RULES, extend_streams_session, remove_streams_member
from ottla.groups.streams.topology import Configured, check_topology
from ottla.groups.streams.update import StreamsUpdate, assignment_configs, is_gathering, may_assign, tag_keys
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import Draft, answered

STALE_TOPOLOGY, SHUTDOWN_APPLICATION, ASSIGNMENT_DELAYED, MISSING_CLIENT_TAGS = 0, 4, 5, 6
TAG_CHARACTERS_MAX = 4_096
"""Limit of the characters of a member's tags and endpoint. Kafka's clients send at most five tags of 50 characters."""


def streams_heartbeat(shard: GroupShard, command: StreamsHeartbeat, reply: Reply, now_ms: int) -> Decision:
    reply = shard.claiming(command.group_id, command.caller.owner, reply)
    try:
        _check_request(shard, command)
        if command.member_epoch < 0:
            return _leave(shard, command, reply)
        return _beat(shard, command, reply, now_ms)
    except ApiError as error:
        shard.forget_soft_state(command.group_id)
        return answered(reply, refuse_streams_beat(error.code, error.message), refuse_streams_beat)


def _check_request(shard: GroupShard, command: StreamsHeartbeat) -> None:
    """Checks the fields of a request that do not depend on the group. Raises `ApiError`."""
    check_ids(command)
    check_names(shard.settings, (command.member_id, command.instance_id, command.rack_id, command.process_id), None)
    texts = [text for tag in command.tags or () for text in tag] + [command.endpoint[0] if command.endpoint else ""]
    if sum(map(len, texts)) > TAG_CHARACTERS_MAX:
        raise invalid(f"the tags and the endpoint of a member have at most {TAG_CHARACTERS_MAX} characters")
    if len(dict(command.tags or ())) < len(command.tags or ()):
        raise invalid("the tags of a member have a key twice")
    if command.member_epoch == JOINING_EPOCH:
        if command.owned is None or command.owned:
            raise invalid("a member that joins has no tasks")
        if command.topology is None:
            raise invalid("a member that joins must send its topology")
        check_topology(command.topology, shard.settings.member_metadata_bytes_max)
    elif command.topology is not None:
        raise invalid("only a member that joins may send its topology")


# Joining and staying


def _beat(shard: GroupShard, command: StreamsHeartbeat, reply: Reply, now_ms: int) -> Decision:
    draft, change, member_id = Draft(), _find_group(shard, command), command.member_id
    state, refresh = shard.streams_state(command.group_id), refresh_of(shard, command.group_id)
    if not change.group.facts:
        state.shutdown_by = ""
        refresh.gathers_until_ms = now_ms + shard.setting_of(command.group_id, "streams.initial.rebalance.delay.ms")
    before = find_member(change, command, shard.settings.streams_members_max)
    position_before = change.group.position(member_id)
    facts = _merge(before, command)
    if facts != before:
        admit(shard.memory, before, facts, shard.owner_of(command.group_id, command.caller.owner))
    wants_other = facts != before
    wants_other = _take_topology(shard, change, command) or wants_other
    if change.group.topology is None:  # its record is damaged
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, "the topology of the group is unknown; the member must join again")
    if facts != before:
        change.put_member(member_id, facts)
    if before is not None and facts.process_id != before.process_id:
        _leave_process(change, command)
    _check_tasks(state.configured, change.group, facts, command)
    _update_group(shard, change, state, draft, now_ms, wants_other=wants_other)
    position = next_position(change.group, member_id, command.owned)
    if position is not change.group.position(member_id):
        change.put_position(member_id, position)
    draft.records.extend(change.records)
    session = extend_streams_session(shard, command.group_id, member_id, draft, now_ms)
    follow_revocation(shard, change.group, member_id, position_before, RULES, draft)
    _note_state(state, command)
    has_changed = position.assigned != position_before.assigned
    is_joining = command.member_epoch == JOINING_EPOCH
    if facts.endpoint is not None and (has_changed or is_joining):
        state.endpoint_epoch += 1
    # `has_moved` must be called for each heartbeat, because it records the connection.
    has_tasks = session.has_moved(command.caller.connection) or is_joining or has_changed
    configured, epoch = state.configured, change.group.topology.epoch
    answer = StreamsBeat(
        member_id=member_id,
        member_epoch=position.epoch,
        heartbeat_interval_ms=shard.setting_of(command.group_id, "streams.heartbeat.interval.ms"),
        tasks=position.assigned if has_tasks else None,
        statuses=_statuses(shard, change.group, facts, state, now_ms) + _missing_tags(shard, command, facts),
        missing=configured.missing if configured is not None else (),
        endpoint_epoch=state.endpoint_epoch,
        endpoints=_endpoints(shard, change.group, configured) if command.endpoint_epoch != state.endpoint_epoch else None,
        task_offset_interval_ms=shard.setting_of(command.group_id, "streams.task.offset.interval.ms"),
        acceptable_recovery_lag=shard.setting_of(command.group_id, "streams.acceptable.recovery.lag"),
        must_describe=command.is_of_4_4 and facts.topology_epoch == epoch and state.described.must_ask(epoch, now_ms),
    )
    draft.answer(reply, answer, refuse_streams_beat)
    draft.on_refusal(lambda _repair, _code: shard.forget_soft_state(command.group_id))
    return draft.decision()


def _find_group(shard: GroupShard, command: StreamsHeartbeat) -> StreamsChange:
    """Returns a change of the group. A joining member may create a group, or replace an empty classic group. Raises GROUP_ID_NOT_FOUND."""
    group = shard.groups.get(command.group_id)
    if type(group) is StreamsGroup:
        return StreamsChange(group)
    is_joining = command.member_epoch == JOINING_EPOCH
    if group is not None and not (is_joining and type(group) is ClassicGroup and not group.members):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} is not a streams group.")
    if not is_joining:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {command.group_id} not found.")
    change = StreamsChange(StreamsGroup(command.group_id))
    if group is not None:
        change.records.append(records.group_tombstone(command.group_id))
    return change


def _merge(before: StreamsFacts | None, command: StreamsHeartbeat) -> StreamsFacts:
    """Merges a heartbeat into the member's earlier description. Null fields keep their earlier values."""
    facts = before if before is not None else StreamsFacts()
    return StreamsFacts(
        instance_id=command.instance_id if command.instance_id is not None else facts.instance_id,
        rack_id=command.rack_id if command.rack_id is not None else facts.rack_id,
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms if command.rebalance_timeout_ms != -1 else facts.rebalance_timeout_ms,
        topology_epoch=command.topology.epoch if command.topology is not None else facts.topology_epoch,
        process_id=command.process_id if command.process_id is not None else facts.process_id,
        endpoint=command.endpoint if command.endpoint is not None else facts.endpoint,
        tags=command.tags if command.tags is not None else facts.tags,
    )


def _leave_process(change: StreamsChange, command: StreamsHeartbeat) -> None:
    """Takes the tasks of a member's former process away: its new process may have some of them already. Raises INVALID_REQUEST unless the
    member joins and thus has no tasks.
    """
    if command.member_epoch != JOINING_EPOCH:
        raise invalid("only a member that joins may name another process")
    change.put_position(command.member_id, change.group.new_position)


def _take_topology(shard: GroupShard, change: StreamsChange, command: StreamsHeartbeat) -> bool:
    """Stores the topology of the first or only member; returns whether the group's topology changes. A member with an earlier epoch may
    join and gets no tasks. Raises INVALID_REQUEST for another topology while the group has other members.
    """
    topology, known = command.topology, change.group.topology
    if topology is None or topology == known:
        return False
    has_others = any(member_id != command.member_id for member_id in change.group.facts)
    if known is not None and has_others:
        if topology.epoch < known.epoch:
            return False
        raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    shard.memory.admit(topology.held_bytes(), shard.owner_of(command.group_id, command.caller.owner))
    change.put_topology(topology)
    state = shard.streams_state(command.group_id)
    state.configured = None
    state.failures.clear()
    return True


def _check_tasks(configured: Configured | None, group: StreamsGroup, facts: StreamsFacts, command: StreamsHeartbeat) -> None:
    """Raises INVALID_REQUEST if the member reports tasks that its topology does not have."""
    if configured is None or not configured.is_ready or not command.owned or facts.topology_epoch != configured.topology.epoch:
        return
    for key, partitions in command.owned.items():
        count = configured.tasks.get(key.subtopology)
        if count is None:
            raise invalid(f"Subtopology {key.subtopology} does not exist in the topology.")
        wrong = sorted(partition for partition in partitions if not 0 <= partition < count)
        if wrong:
            raise invalid(f"Task {wrong[0]} for subtopology {key.subtopology} is invalid. Number of tasks for this subtopology: {count}")


def _update_group(
    shard: GroupShard, change: StreamsChange, state: StreamsState, draft: Draft, now_ms: int, *, wants_other: bool
) -> None:
    """Starts an update of the group if a member or the topology changed, topics may have changed, or a new target is due."""
    if change.group_id in shard.updates:
        if wants_other:
            change.raise_epoch()
        return
    refresh = refresh_of(shard, change.group_id)
    must = epoch_topics.must_look_up(shard, refresh, now_ms) or state.configured is None
    must = must or change.group.validation.configs != assignment_configs(shard, change.group_id)
    refresh.topics_version = shard.topics_version
    if must or wants_other or may_assign(shard, change.group, now_ms):
        StreamsUpdate(shard, must_look_up=must, wants_other=wants_other).begin(change, draft, now_ms)


def _note_state(state: StreamsState, command: StreamsHeartbeat) -> None:
    if command.shutdown_application:
        state.shutdown_by = state.shutdown_by or command.member_id
    known = state.configured.tasks if state.configured is not None else {}
    for index, offsets in enumerate((command.task_offsets, command.task_end_offsets)):
        if offsets is not None:
            kept = {task: offset for task, offset in offsets.items() if task[1] in range(known.get(task[0], 0))}
            pair = [*state.offsets.get(command.member_id, ({}, {}))]
            pair[index] = kept
            state.offsets[command.member_id] = pair[0], pair[1]


def _statuses(shard: GroupShard, group: StreamsGroup, facts: StreamsFacts, state: StreamsState, now_ms: int) -> list[tuple[int, str]]:
    statuses: list[tuple[int, str]] = []
    assert group.topology is not None
    epoch, group_epoch = facts.topology_epoch, group.topology.epoch
    if epoch < group_epoch:
        statuses.append((STALE_TOPOLOGY, f"The member's topology epoch {epoch} is behind the group's topology epoch {group_epoch}."))
    if group.epoch > group.target_epoch and is_gathering(shard, group, now_ms):
        statuses.append((ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."))
    if state.configured is not None and state.configured.status is not None:
        statuses.append((state.configured.status, state.configured.detail))
    if state.shutdown_by:
        reason = "encountered a fatal error and requested a shutdown for the entire application."
        statuses.append((SHUTDOWN_APPLICATION, f"Streams group member {state.shutdown_by} {reason}"))
    return statuses


def _missing_tags(shard: GroupShard, command: StreamsHeartbeat, facts: StreamsFacts) -> list[tuple[int, str]]:
    """Returns the status of a member that lacks required client tags; clients before Kafka 4.4 do not know it."""
    missing = [key for key in tag_keys(shard, command.group_id) if key not in dict(facts.tags)] if command.is_of_4_4 else []
    if not missing:
        return []
    remedy = "Configure them via 'client.tag.<tagKey>' in your Streams config."
    reason = f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. {remedy}"
    return [(MISSING_CLIENT_TAGS, reason)]


def _endpoints(shard: GroupShard, group: StreamsGroup, configured: Configured | None) -> list[EndpointTasks]:
    """Returns the partitions behind the endpoint of each member, for interactive queries."""
    if configured is None or not configured.is_ready:
        return []
    reads = {part.subtopology_id: part.read_topics() for part in configured.topology.subtopologies}

    def partitions(assigned: Mapping[Any, tuple[int, ...]], role: TaskRole) -> list[tuple[str, list[int]]]:
        found: list[tuple[str, list[int]]] = []
        for key, mine in assigned.items():
            if key.role is role:
                for topic in reads.get(key.subtopology, ()):
                    count = shard.topics.partition_count(topic)
                    found.append((topic, [partition for partition in mine if partition < count]))
        return found

    return [
        EndpointTasks(facts.endpoint, partitions(assigned, ACTIVE), partitions(assigned, STANDBY))
        for member_id, facts in group.facts.items()
        if facts.endpoint is not None
        for assigned in (group.position(member_id).assigned,)
    ]


# Leaving


def _leave(shard: GroupShard, command: StreamsHeartbeat, reply: Reply) -> Decision:
    change, member_id = _find_group(shard, command), command.member_id
    check_leaving(change.group, command)
    draft = Draft()
    if command.shutdown_application:
        shard.streams_state(command.group_id).shutdown_by = member_id
    if command.member_epoch == LEFT_STATIC_EPOCH:
        leave_for_a_moment(change, member_id)
        stop_watching_revocation(command.group_id, member_id, draft)
    else:
        remove_streams_member(shard, change, member_id)
    draft.records.extend(change.records)
    epoch = LEAVING_EPOCH if command.member_epoch == LEAVING_EPOCH else LEFT_STATIC_EPOCH
    draft.answer(reply, StreamsBeat(member_id=member_id, member_epoch=epoch), refuse_streams_beat)
    return draft.decision()
