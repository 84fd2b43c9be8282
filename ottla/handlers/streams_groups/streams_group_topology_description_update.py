"""StreamsGroupTopologyDescriptionUpdate: a member of a streams group sends the description of its topology (KIP-1331).

Behaviour: the coordinator keeps the description for StreamsGroupDescribe, without a plugin. A group that is unknown or of another type gets
GROUP_ID_NOT_FOUND, and a member that is not in the group UNKNOWN_MEMBER_ID. A description of another topology epoch than the group's, and
an unknown kind of node, get INVALID_REQUEST. A description that takes too much memory gets STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED. The
answer is UNSUPPORTED_VERSION while the feature `streams.version` is at level 0, or if `group.coordinator.rebalance.protocols` excludes the
protocol. See `groups/streams/description.py`.

Version notes: none.

Not done: descriptions are not stored on disk. A new coordinator asks the members again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import DescriptionResult
from ottla.groups.streams.description import Description, Node
from ottla.groups.streams.description_update import update_description
from ottla.handlers.advertised_levels import require_streams_groups
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import ask
from ottla.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
    TopologyDescriptionNode,
)

if TYPE_CHECKING:
    from ottla.groups.shard import GroupShard
    from ottla.machine.contract import Decision, Reply


def handle(broker: Broker, request: RequestContext, body: StreamsGroupTopologyDescriptionUpdateRequest) -> Any:
    try:
        require_streams_groups(broker)
        if not body.group_id or not body.member_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The request names no group or no member.")
    except ApiError as error:
        return respond(DescriptionResult(error.code, error.message))
    description, owner = read(body.topology_description), request.connection.owner

    def run(shard: GroupShard, reply: Reply, _now_ms: int) -> Decision:
        return update_description(shard, body.group_id, body.member_id, body.topology_epoch, description, owner, reply)

    return ask(broker, request, body.group_id, run, respond, DescriptionResult)


def respond(result: DescriptionResult) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=result.code, error_message=result.message or None)


def read(description: TopologyDescription) -> Description:
    return Description(
        tuple((part.subtopology_id, tuple(map(_node, part.nodes))) for part in description.subtopologies),
        tuple((_node(store.source), _node(store.processor)) for store in description.global_stores),
    )


def _node(node: TopologyDescriptionNode) -> Node:
    return Node(
        node.name, node.node_type, tuple(node.source_topics), node.sink_topic, tuple(node.stores), tuple(node.successors)
    )
