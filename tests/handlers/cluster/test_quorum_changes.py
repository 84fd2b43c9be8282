"""UnregisterBroker, AddRaftVoter and RemoveRaftVoter: answered with Kafka's refusals, because there is no quorum of voters to change."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.advertised_levels import served
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.handlers.admin_world import AdminWorld, DenyAll

DIRECTORY = bytes(range(16))


def refusal(request: object, version: int = 0) -> tuple[int, str]:
    answer = AdminWorld().ask(request, version)
    return answer.error_code, answer.error_message


def test_a_broker_that_is_not_registered_is_not_unregistered() -> None:
    expected = (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 77 is not currently registered")
    assert refusal(UnregisterBrokerRequest(broker_id=77)) == expected


def test_a_broker_that_runs_is_not_unregistered() -> None:
    expected = (ErrorCode.INVALID_REQUEST, "Broker 0 is running and cannot be unregistered. Its registration ends when it stops.")
    assert refusal(UnregisterBrokerRequest(broker_id=0)) == expected


@pytest.mark.parametrize("version", range(2))
def test_no_voter_is_added(version: int) -> None:
    expected = (ErrorCode.UNSUPPORTED_VERSION, "Cluster doesn't support adding voter because the kraft.version feature is 0")
    assert refusal(AddRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=DIRECTORY), version) == expected


def test_no_voter_is_removed() -> None:
    expected = (ErrorCode.UNSUPPORTED_VERSION, "Cluster doesn't support removing voter because the kraft.version feature is 0")
    assert refusal(RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=DIRECTORY)) == expected


@pytest.mark.parametrize(("message", "verb"), [(AddRaftVoterRequest, "Add"), (RemoveRaftVoterRequest, "Remove")])
def test_what_is_wrong_with_a_request_comes_first(message: type, verb: str) -> None:
    code, text = refusal(message(cluster_id="other", voter_id=-1))
    assert (code, text.startswith('The given id "other" doesn\'t match the cluster id "')) == (ErrorCode.INCONSISTENT_CLUSTER_ID, True)
    expected = (ErrorCode.INVALID_REQUEST, f"{verb} voter request didn't include a valid voter")
    assert refusal(message(cluster_id=None, voter_id=-1)) == expected
    world = AdminWorld()
    assert world.ask(message(cluster_id=world.broker.metadata.cluster_id, voter_id=1)).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("message", [UnregisterBrokerRequest, AddRaftVoterRequest, RemoveRaftVoterRequest])
def test_without_the_right_to_alter_the_cluster(message: type) -> None:
    assert AdminWorld(authorizer=DenyAll()).ask(message()).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_they_came_with_4_0() -> None:
    assert not {64, 80, 81} & served("3.9").keys()
    assert [served("4.0")[key].max_version for key in (64, 80, 81)] == [0, 0, 0]
    assert served("4.2")[80].max_version == 1
