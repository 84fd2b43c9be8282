"""ElectLeaders, encoded and decoded. The controller's tests cover which replica is elected."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.ports import Set
from ottla.metadata_store import znodes
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.handlers.admin_world import AdminWorld, DenyAll


def codes(answer: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, part.partition_id): part.error_code for topic in answer.replica_election_results for part in topic.partition_result
    }


ASKED = [TopicPartitions(topic="a", partitions=[0, 5]), TopicPartitions(topic="no", partitions=[0])]


@pytest.mark.parametrize("version", range(3))
def test_every_version(version: int) -> None:
    world = AdminWorld()
    world.cluster.create("a")
    assert codes(world.ask(ElectLeadersRequest(topic_partitions=ASKED), version)) == {
        ("a", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("a", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_all_partitions_need_nothing() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    assert codes(world.ask(ElectLeadersRequest(topic_partitions=None, election_type=1))) == {}


def test_an_election_of_all_partitions_without_a_controller_is_an_error_of_the_request() -> None:
    """The answer has no results that could carry the error. Without an error of the request, it would look like that of a cluster that
    needs no election."""
    world = AdminWorld()
    world.cluster.create("a")
    world.cluster.store.multi([Set(znodes.CONTROLLER_EPOCH, b"garbage")], lambda _outcome: None)
    world.cluster.create("b")  # this write notices the other epoch
    answer = world.ask(ElectLeadersRequest(topic_partitions=None), 2)
    assert (answer.error_code, codes(answer)) == (ErrorCode.NOT_CONTROLLER, {})
    named = world.ask(ElectLeadersRequest(topic_partitions=ASKED), 2)
    assert (named.error_code, set(codes(named).values())) == (ErrorCode.NONE, {ErrorCode.NOT_CONTROLLER})


@pytest.mark.parametrize("version", range(3))
def test_without_the_right_every_version_is_refused_and_the_connection_stays_open(version: int) -> None:
    """The answer of version 0 has no field for an error of the whole request, so formerly it could not be encoded."""
    denied = AdminWorld(authorizer=DenyAll()).ask(ElectLeadersRequest(topic_partitions=ASKED), version)
    assert set(codes(denied).values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_refused() -> None:
    unknown = AdminWorld().ask(ElectLeadersRequest(topic_partitions=ASKED, election_type=7))
    assert unknown.error_code == ErrorCode.INVALID_REQUEST
    denied = AdminWorld(authorizer=DenyAll()).ask(ElectLeadersRequest(topic_partitions=ASKED))
    assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert set(codes(denied).values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
