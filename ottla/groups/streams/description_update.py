"""StreamsGroupTopologyDescriptionUpdate: takes the description of a topology from a member (KIP-1331), after Kafka's checks."""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import DescriptionResult
from ottla.groups.shard import GroupShard
from ottla.groups.streams.description import NODE_KINDS, Description
from ottla.groups.streams.group import StreamsGroup
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import answered


def update_description(
    shard: GroupShard, group_id: str, member_id: str, topology_epoch: int, description: Description, owner: str, reply: Reply
) -> Decision:
    """Answers with a `DescriptionResult`. The codes are Kafka's; a description that takes too much memory gets
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, and is not asked for again."""
    try:
        _store(shard, group_id, member_id, topology_epoch, description, owner)
    except ApiError as error:
        return answered(reply, DescriptionResult(error.code, error.message), DescriptionResult)
    return answered(reply, DescriptionResult(ErrorCode.NONE), DescriptionResult)


def _store(shard: GroupShard, group_id: str, member_id: str, topology_epoch: int, description: Description, owner: str) -> None:
    group = shard.groups.get(group_id)
    if type(group) is not StreamsGroup:
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a streams group."
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    if member_id not in group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
    current = -1 if group.topology is None else group.topology.epoch
    if topology_epoch != current:
        message = f"Topology epoch {topology_epoch} does not match the group's current topology epoch {current}."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    unknown = [node.kind for node in description.nodes() if node.kind not in NODE_KINDS]
    if unknown:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown topology node type: {unknown[0]}")
    state, size = shard.streams_state(group_id).described, description.held_bytes()
    limit = shard.settings.member_metadata_bytes_max
    if size > limit:
        state.refused_epoch = topology_epoch
        message = f"The description takes {size} bytes, and at most {limit} are kept."
        raise ApiError(ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, message)
    shard.memory.admit(size, shard.owner_of(group_id, owner))
    state.store(topology_epoch, description)
