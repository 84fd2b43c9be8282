"""Sample requests about streams groups; see `sample_requests.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.wire.messages.streams_group_topology_description_update import (
    TopologyDescription,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from tests.clients.broker_process import eventually
from tests.clients.sample_share_requests import JOINING, member_id
from tests.clients.wire_client import In

if TYPE_CHECKING:
    from tests.clients.sample_world import World


def joining(world: World, make: In, cls: Any, group: str) -> Any:
    """Returns the heartbeat of a joining member with a state store whose changelog topic does not exist yet."""
    changelog = make(TopicInfo, name=world.fresh("changelog"))
    part = make(Subtopology, subtopology_id="0", source_topics=[world.topic], state_changelog_topics=[changelog])
    return make(
        cls, group_id=group, member_id=member_id(world), member_epoch=JOINING, rebalance_timeout_ms=1_000, process_id="process",
        topology=make(Topology, epoch=0, subtopologies=[part]), active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip


def heartbeat(world: World, make: In, cls: Any) -> Any:
    return joining(world, make, cls, world.fresh("streams-group"))


def describe(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("streams-group")
    beat = joining(world, In(1), StreamsGroupHeartbeatRequest, group)
    eventually(lambda: world.client.ask(beat, 1).error_code == 0)
    return make(cls, group_ids=[group], include_authorized_operations=True)


def describe_topology(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("streams-group")
    beat = joining(world, In(1), StreamsGroupHeartbeatRequest, group)
    eventually(lambda: world.client.ask(beat, 1).error_code == 0)
    source = make(TopologyDescriptionNode, name="source", node_type=1, source_topics=[world.topic], stores=[], successors=["store"])
    store = make(TopologyDescriptionNode, name="store", node_type=2, source_topics=[], stores=["counts"], successors=[])
    part = make(TopologyDescriptionSubtopology, subtopology_id="0", nodes=[source, store])
    description = make(TopologyDescription, subtopologies=[part], global_stores=[])
    return make(cls, group_id=group, member_id=beat.member_id, topology_epoch=0, topology_description=description)


STREAMS_REQUESTS = {88: heartbeat, 89: describe, 93: describe_topology}
