"""How group requests of each version become commands, and how the commands' results become responses of that version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.groups.answers import (
    Beat,
    DescribedClassicGroup,
    Joined,
    JoinedMember,
    Left,
    MemberLeft,
    ShareOffsetOutcome,
    ShareOffsetOutcomes,
)
from ottla.groups.classic.rebalance import refuse_join
from ottla.handlers.context import ConnectionInfo, RequestContext
from ottla.handlers.groups import consumer_group_heartbeat, describe_groups, join_group, leave_group
from ottla.handlers.groups.offset_topics import offsets_of
from ottla.handlers.share_groups import alter_share_group_offsets, share_group_heartbeat
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic

BROKER: Any = SimpleNamespace(authorizer=SimpleNamespace(allows_clients_everything=lambda _connection: True))


def request(version: int) -> RequestContext:
    connection = ConnectionInfo(identity="c1", host="10.0.0.1", listener="PLAINTEXT")
    connection.client_software_name = "kafka-python"
    return RequestContext(version, "client", connection)


@pytest.mark.parametrize(("version", "needs_id", "may_skip"), [(0, False, False), (3, False, False), (4, True, False), (9, True, True)])
def test_what_a_joiner_understands_follows_from_the_version(version: int, needs_id: bool, may_skip: bool) -> None:
    body = JoinGroupRequest(group_id="g", session_timeout_ms=7, rebalance_timeout_ms=-1 if version == 0 else 9, protocol_type="consumer")
    command = join_group.command_of(BROKER, request(version), body)
    assert (command.needs_member_id, command.may_skip_assignment) == (needs_id, may_skip)
    assert command.rebalance_timeout_ms == (7 if version == 0 else 9), "version 0 has one time-out for both"
    assert command.caller == ("client", "/10.0.0.1", "c1", "kafka-python", None, "")


def test_protocols_keep_their_order() -> None:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=memoryview(name.encode())) for name in ("sticky", "range")]
    command = join_group.command_of(BROKER, request(9), JoinGroupRequest(group_id="g", protocols=protocols))
    assert command.protocols == (("sticky", b"sticky"), ("range", b"range"))


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_protocol_name_may_be_null_since_version_7(version: int, name: str | None) -> None:
    assert join_group.respond(refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, "m"), version).protocol_name == name


def test_a_leader_gets_the_members() -> None:
    joined = Joined(member_id="m", generation=3, leader_id="m", protocol_name="range", members=[JoinedMember("m", "i", b"x")])
    response = join_group.respond(joined, 9)
    (member,) = response.members
    assert (response.error_code, response.generation_id, response.leader) == (ErrorCode.NONE, 3, "m")
    assert (member.member_id, member.group_instance_id, member.metadata) == ("m", "i", b"x")


def test_versions_with_one_leaver_have_its_error_in_the_response() -> None:
    left = Left(members=[MemberLeft("m", None, ErrorCode.UNKNOWN_MEMBER_ID)])
    assert leave_group.respond_single(left).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave_group.respond_single(Left(error=ErrorCode.NOT_COORDINATOR)).error_code == ErrorCode.NOT_COORDINATOR
    assert [member.error_code for member in leave_group.respond(left).members] == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(("version", "code", "message"), [(5, ErrorCode.NONE, None), (6, ErrorCode.GROUP_ID_NOT_FOUND, "gone")])
def test_an_unknown_group_is_dead_and_an_error_since_version_6(version: int, code: ErrorCode, message: str | None) -> None:
    described = DescribedClassicGroup(group_id="g", error=ErrorCode.GROUP_ID_NOT_FOUND, message="gone", state="Dead")
    response = describe_groups.respond(described, version)
    assert (response.error_code, response.error_message, response.group_state) == (code, message, "Dead")


@pytest.mark.parametrize("version", [0, 1])
def test_a_consumer_heartbeat(version: int) -> None:
    owned = [TopicPartitions(topic_id=b"t" * 16, partitions=[1, 0])]
    body = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=4, topic_partitions=owned)
    command = consumer_group_heartbeat.command_of(BROKER, request(version), body)
    assert command.makes_member_id is (version == 1)
    assert command.owned == {b"t" * 16: {0, 1}}
    assert (command.topics, command.regex, command.rebalance_timeout_ms) == (None, None, -1)


@pytest.mark.parametrize("respond", [consumer_group_heartbeat.respond, share_group_heartbeat.respond])
def test_an_assignment_that_has_not_changed_is_null(respond) -> None:  # type: ignore[no-untyped-def]
    assert respond(Beat(member_id="m", member_epoch=2)).assignment is None
    (topic,) = respond(Beat(member_id="m", assignment={b"t" * 16: (0, 2)})).assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (b"t" * 16, [0, 2])
    assert respond(Beat(member_id="m", assignment={})).assignment.topic_partitions == []


def test_offsets_without_metadata_have_an_empty_one() -> None:
    partition = OffsetCommitRequestPartition(partition_index=3, committed_offset=7, committed_leader_epoch=2, committed_metadata=None)
    (offset,) = offsets_of([OffsetCommitRequestTopic(name="t", topic_id=b"i" * 16, partitions=[partition])])
    assert offset == ("t", b"i" * 16, 3, 7, 2, "")


def test_outcomes_of_one_topic_stand_together() -> None:
    outcomes = [ShareOffsetOutcome(topic="t", partition=0), ShareOffsetOutcome(topic="u"), ShareOffsetOutcome(topic="t", partition=1)]
    response = alter_share_group_offsets.respond(ShareOffsetOutcomes(outcomes=outcomes))
    assert [(topic.topic_name, len(topic.partitions)) for topic in response.responses] == [("t", 2), ("u", 1)]
