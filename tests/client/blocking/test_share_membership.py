"""Heartbeats of a share group's member, with a broker made of a script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.share_membership import ShareMembership
from ottla.client.errors import ConnectError
from ottla.wire.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatResponse, TopicPartitions
from tests.client.fake_broker import HangUp
from tests.client.fake_share_group import HEARTBEAT, TOPIC_ID, FakeShareGroup


@pytest.fixture
def broker() -> Iterator[FakeShareGroup]:
    with FakeShareGroup() as broker:
        yield broker


@pytest.fixture
def membership(broker: FakeShareGroup) -> Iterator[ShareMembership]:
    with Cluster(broker.address, timeout_s=5) as cluster:
        membership = ShareMembership(cluster, "g", ["t"], rack="r1")
        yield membership
        membership.coordinator.close()


def beats(broker: FakeShareGroup) -> list[Any]:
    return broker.asked(HEARTBEAT)


def until_due(membership: ShareMembership) -> bool:
    time.sleep(membership.due_s())
    return membership.keep_alive()


def test_a_member_joins_keeps_its_place_and_leaves(broker: FakeShareGroup, membership: ShareMembership) -> None:
    assert membership.keep_alive()
    assert membership.assignment == {TopicPartition("t", 0): TOPIC_ID} and membership.heartbeat_interval_s == 0.05
    assert not membership.keep_alive()
    assert not until_due(membership) and membership.assignment
    membership.leave()
    membership.leave()
    joined, kept, left = beats(broker)
    assert (joined.group_id, joined.member_epoch, joined.subscribed_topic_names, joined.rack_id) == ("g", 0, ["t"], "r1")
    assert (kept.member_epoch, kept.subscribed_topic_names, kept.rack_id) == (1, None, None)
    assert left.member_epoch == -1
    assert len(joined.member_id) == 22 and {joined.member_id} == {kept.member_id, left.member_id}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_member_that_is_no_longer_known_joins_anew(broker: FakeShareGroup, membership: ShareMembership, code: ErrorCode) -> None:
    membership.keep_alive()
    broker.beat = lambda _: ShareGroupHeartbeatResponse(error_code=code)
    assert until_due(membership) and membership.assignment == {} and membership.epoch == 0
    broker.beat = broker.assigns
    assert until_due(membership) and membership.assignment
    assert beats(broker)[-1].subscribed_topic_names == ["t"]


def test_a_coordinator_that_moves_is_found_again(broker: FakeShareGroup, membership: ShareMembership) -> None:
    membership.keep_alive()
    broker.beat = lambda _: ShareGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert not until_due(membership) and membership.assignment
    broker.beat = broker.assigns
    assert not until_due(membership)
    assert len(broker.asked(10)) == 2


def test_a_lost_connection_costs_a_member_nothing(broker: FakeShareGroup, membership: ShareMembership) -> None:
    membership.keep_alive()

    def hang_up(_: Any) -> Any:
        raise HangUp

    broker.beat = hang_up
    assert not until_due(membership) and membership.assignment
    broker.beat = broker.assigns
    assert not until_due(membership) and membership.epoch == 1


def test_a_member_leaves_though_the_answer_to_its_join_was_lost(broker: FakeShareGroup, membership: ShareMembership) -> None:
    """The group may know it: without the request it would wait for the end of the session."""

    def hang_up(_: Any) -> ShareGroupHeartbeatResponse:
        raise HangUp

    broker.beat = hang_up
    assert not membership.keep_alive()
    broker.beat = broker.assigns
    membership.leave()
    assert [beat.member_epoch for beat in beats(broker)][-1] == -1


def test_a_member_joins_although_the_coordinator_dies_meanwhile(broker: FakeShareGroup, membership: ShareMembership) -> None:
    answers = iter([HangUp(), HangUp(), HangUp()])

    def beat(body: Any) -> ShareGroupHeartbeatResponse:
        for failure in answers:
            raise failure
        return broker.assigns(body)

    broker.beat = beat
    assert [until_due(membership) for _ in range(4)] == [False, False, False, True]
    assert len(broker.asked(10)) == 4  # the coordinator is looked up again each time


def test_a_coordinator_that_stays_unreachable_is_an_error_of_the_join(broker: FakeShareGroup, membership: ShareMembership) -> None:
    def hang_up(_: Any) -> ShareGroupHeartbeatResponse:
        raise HangUp

    broker.beat = hang_up
    membership.cluster.timeout_s = 0.3
    with pytest.raises(ConnectError):
        while not until_due(membership):
            pass


def test_a_refusal_is_raised(broker: FakeShareGroup, membership: ShareMembership) -> None:
    broker.beat = lambda _: ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, error_message="full")
    with pytest.raises(ApiError, match="full") as refused:
        membership.keep_alive()
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_topic_without_a_name_waits(broker: FakeShareGroup, membership: ShareMembership) -> None:
    unknown = Assignment(topic_partitions=[TopicPartitions(topic_id=b"\x44" * 16, partitions=[0])])
    broker.beat = lambda body: ShareGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=50, assignment=unknown)
    assert not membership.keep_alive() and membership.assignment == {}


def test_a_member_without_partitions_asks_sooner_a_few_times(broker: FakeShareGroup, membership: ShareMembership) -> None:
    broker.beat = lambda body: ShareGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=60_000)
    membership.keep_alive()
    assert membership.due_s() < 1
