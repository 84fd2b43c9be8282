"""FindCoordinator: a request without the right creates no internal topic, and delays no other key of the request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX
from ottla.base.uuids import uuid_to_text
from ottla.handlers.context import ConnectionInfo, RequestContext
from ottla.handlers.groups.find_coordinator import handle
from ottla.security.acl import AclOperation
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.cluster.nodes import Nodes
from tests.fakes.authorizer import StrictAuthorizer


class BrokerWorld:
    """A broker without internal topics. It counts the requests to create one."""

    def __init__(self, *denied: object) -> None:
        self.created: list[str] = []
        self.broker: Any = SimpleNamespace(
            authorizer=StrictAuthorizer(*denied),
            internal_topics=SimpleNamespace(ensure=self._ensure),
            metadata=SimpleNamespace(topic=lambda name: None),
        )

    def _ensure(self, topic: str, done: Any) -> None:
        self.created.append(topic)
        done(ErrorCode.NONE)

    def ask(self, *keys: str, key_type: int = 0) -> list[tuple[str, int]]:
        request = RequestContext(6, "test", ConnectionInfo(identity="c", host="test", listener="PLAINTEXT"))
        answer = handle(self.broker, request, FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys)))
        found = getattr(answer, "response", answer)
        return [(coordinator.key, coordinator.error_code) for coordinator in found.coordinators]


def test_nothing_is_created_for_clients_without_rights() -> None:
    world = BrokerWorld("secret", "hidden")
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.ask("secret", "hidden", "secret") == [("secret", refused), ("hidden", refused), ("secret", refused)]
    assert world.ask("secret", key_type=1) == [("secret", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]
    assert world.ask("not a share partition", key_type=2) == [("not a share partition", ErrorCode.INVALID_REQUEST)]
    assert world.created == []


def test_one_right_is_enough_to_create_the_topic() -> None:
    world = BrokerWorld("secret")
    assert world.ask("secret", "mine") == [
        ("secret", ErrorCode.GROUP_AUTHORIZATION_FAILED), ("mine", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]  # fmt: skip
    assert world.created == ["__consumer_offsets"]


def test_with_access_rules_a_client_is_refused_before_its_share_partition_is_read() -> None:
    world = BrokerWorld(AclOperation.CLUSTER_ACTION)
    assert world.ask("nonsense", key_type=2) == [("nonsense", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]


def test_without_access_rules_what_is_no_share_partition_is_refused_as_such() -> None:
    nodes = Nodes(3)
    whole = f"g:{uuid_to_text(b'i' * 16)}:0"
    answer = nodes.ask(1, FindCoordinatorRequest(key_type=2, coordinator_keys=["nonsense", whole]))
    assert [(found.key, found.error_code) for found in answer.coordinators] == [
        ("nonsense", ErrorCode.INVALID_REQUEST), (whole, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]  # fmt: skip


def test_ids_that_no_coordinator_accepts_are_refused_before_they_are_hashed() -> None:
    world = BrokerWorld()
    long = "g" * (ID_CHARACTERS_MAX + 1)
    assert world.ask(long) == [(long, ErrorCode.INVALID_GROUP_ID)]
    assert world.ask(long, key_type=1) == [(long, ErrorCode.INVALID_REQUEST)]
    assert world.created == []
    assert world.ask(long, "mine") == [(long, ErrorCode.INVALID_GROUP_ID), ("mine", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
