"""StreamsGroupTopologyDescriptionUpdate: a member of a streams group sends the description of its topology."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, nested, string


class TopologyDescriptionNode(Struct):
    name: str = string()
    node_type: int = i8()
    source_topics: list[str] = array(string)
    sink_topic: str | None = string(nullable=True, default=None)
    stores: list[str] = array(string)
    successors: list[str] = array(string)


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string()
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode)


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = nested(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = nested(TopologyDescriptionNode)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore)


class StreamsGroupTopologyDescriptionUpdateRequest(Request):
    group_id: str = string()
    member_id: str = string()
    topology_epoch: int = i32()
    topology_description: TopologyDescription = nested(TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
