"""Descriptions of topologies: when a member is asked for one, what the coordinator keeps, which clients see it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.groups.streams.description import ASK_FIRST_MS, ASK_MAX_MS, DescriptionState
from ottla.security.acl import AclOperation
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from tests.handlers.admin_world import DenyAll
from tests.handlers.streams_groups.test_streams_groups import TOPICS, BrokerWorld, beat

READ, DESCRIBE, CREATE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.CREATE
SOURCE, PROCESSOR, SINK = 1, 2, 3


def node(name: str, kind: int, **fields: Any) -> TopologyDescriptionNode:
    return TopologyDescriptionNode(name=name, node_type=kind, **fields)


def description() -> TopologyDescription:
    nodes = [
        node("lines", SOURCE, source_topics=["t"], successors=["count"]),
        node("count", PROCESSOR, stores=["totals"], successors=["result"]),
        node("result", SINK, sink_topic="out"),
    ]
    table = TopologyDescriptionGlobalStore(source=node("names", SOURCE, source_topics=["names"]), processor=node("update", PROCESSOR))
    return TopologyDescription(
        subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes)], global_stores=[table]
    )


def update(world: BrokerWorld, group: str = "g", member: str = "m", epoch: int = 0, wanted: TopologyDescription | None = None) -> Any:
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group, member_id=member, topology_epoch=epoch, topology_description=wanted or description()
    )
    return world.ask(request, 0)


def described(world: BrokerWorld, group: str = "g", *, with_description: bool = True) -> Any:
    (found,) = world.ask(StreamsGroupDescribeRequest(group_ids=[group], include_topology_description=with_description)).groups
    return found


def test_a_member_is_asked_and_its_description_is_shown() -> None:
    world = BrokerWorld()
    joined = world.ask(beat())
    assert joined.topology_description_required
    assert described(world).topology_description_status == 1, "not stored"
    answer = update(world)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    found = described(world)
    assert found.topology_description_status == 3
    ((part,), (table,)) = found.topology_description.subtopologies, found.topology_description.global_stores
    assert [(one.name, one.node_type, one.source_topics, one.sink_topic, one.stores, one.successors) for one in part.nodes] == [
        ("lines", SOURCE, ["t"], None, [], ["count"]),
        ("count", PROCESSOR, [], None, ["totals"], ["result"]),
        ("result", SINK, [], "out", [], []),
    ]
    assert (part.subtopology_id, table.source.name, table.processor.name) == ("0", "names", "update")
    assert not world.ask(beat(joined.member_epoch)).topology_description_required
    silent = described(world, with_description=False)
    assert (silent.topology_description_status, silent.topology_description) == (0, None)


def test_members_learn_how_often_to_report_offsets() -> None:
    """The answer also says how far behind a copy of a task's state may be."""
    answer = BrokerWorld().ask(beat())
    assert (answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (60_000, 10_000)


def test_an_older_client_is_not_asked() -> None:
    world = BrokerWorld()
    joined = world.ask(beat(), 0)
    assert world.ask(beat(joined.member_epoch), 1).topology_description_required, "no time was lost with the older one"


def test_a_member_that_sends_nothing_is_asked_again_later() -> None:
    state = DescriptionState()
    asked = [at for at in range(0, 10 * ASK_FIRST_MS, ASK_FIRST_MS // 2) if state.must_ask(0, at)]
    assert asked == [0, ASK_FIRST_MS, 3 * ASK_FIRST_MS, 7 * ASK_FIRST_MS]
    assert state.must_ask(1, asked[-1]), "another topology"
    for _ in range(10):
        assert state.must_ask(1, state.next_ask_ms)
    assert state.pause_ms == ASK_MAX_MS


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"group": "other"}, ErrorCode.GROUP_ID_NOT_FOUND, "Group other not found."),
        ({"member": "z"}, ErrorCode.UNKNOWN_MEMBER_ID, "Member z is not a member of group g."),
        ({"epoch": 3}, ErrorCode.INVALID_REQUEST, "Topology epoch 3 does not match the group's current topology epoch 0."),
        ({"group": ""}, ErrorCode.INVALID_REQUEST, "The request names no group or no member."),
        ({"member": ""}, ErrorCode.INVALID_REQUEST, "The request names no group or no member."),
    ],
)
def test_what_is_refused_is_not_kept(fields: dict[str, Any], code: ErrorCode, message: str) -> None:
    world = BrokerWorld()
    world.ask(beat())
    answer = update(world, **fields)
    assert (answer.error_code, answer.error_message) == (code, message)
    assert described(world).topology_description_status == 1


def test_an_unknown_kind_of_node() -> None:
    world = BrokerWorld()
    world.ask(beat())
    part = TopologyDescriptionSubtopology(subtopology_id="0", nodes=[node("x", 9)])
    answer = update(world, wanted=TopologyDescription(subtopologies=[part]))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown topology node type: 9")


def test_a_description_that_is_too_large_is_not_asked_for_again() -> None:
    world = BrokerWorld()
    joined = world.ask(beat())
    large = TopologyDescriptionSubtopology(subtopology_id="0", nodes=[node("n" * 30_000, PROCESSOR) for _ in range(20)])
    answer = update(world, wanted=TopologyDescription(subtopologies=[large]))
    assert answer.error_code == ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
    assert answer.error_message.endswith("and at most 524288 are kept.")
    shard = world.groups.machine.shard
    assert not shard.streams_state("g").described.must_ask(0, ASK_MAX_MS)
    assert not world.ask(beat(joined.member_epoch)).topology_description_required


def test_its_memory_is_counted() -> None:
    world = BrokerWorld()
    world.ask(beat())
    shard = world.groups.machine.shard
    shard.memory.count()
    before = shard.memory.bytes
    update(world)
    admitted = shard.memory.bytes
    shard.memory.count()
    assert before < shard.memory.bytes == admitted
    update(world)
    shard.memory.count()
    assert shard.memory.bytes == admitted, "the second one replaces the first"


def test_a_new_topology_has_no_description_yet() -> None:
    world = BrokerWorld()
    world.ask(beat())
    update(world)
    state = world.groups.machine.shard.streams_state("g").described
    assert state.current(0) is not None and state.current(1) is None


def test_a_right_to_read_the_group_is_enough_to_send_one() -> None:
    creating = ((CREATE, topic) for topic in TOPICS)
    world = BrokerWorld(DenyAll((READ, "g"), *creating, *((DESCRIBE, topic) for topic in (*TOPICS, "names", "g"))))
    world.ask(beat())
    assert update(world).error_code == ErrorCode.NONE
    found = described(world)
    assert (found.topology_description_status, found.topology_description) == (2, None), "it names `out`"
    refused = BrokerWorld(DenyAll())
    assert update(refused).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_without_streams_groups() -> None:
    world = BrokerWorld(None, "group.coordinator.rebalance.protocols=classic,consumer")
    assert update(world).error_code == ErrorCode.UNSUPPORTED_VERSION
