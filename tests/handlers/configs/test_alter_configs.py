"""AlterConfigs: a setting that the request does not name goes back to its default."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.controller.api import NewTopic
from ottla.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.handlers.admin_world import AdminWorld, DenyAll


def request(*resources: tuple[int, str, dict[str, str | None]], validate_only: bool = False) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )


@pytest.mark.parametrize("version", range(3))
def test_every_version_replaces(version: int) -> None:
    world = AdminWorld()
    world.cluster.create(NewTopic(name="a", configs={"segment.ms": "9"}))
    answers = world.ask(request((2, "a", {"retention.ms": "5"})), version).responses
    assert [(result.resource_name, result.error_code) for result in answers] == [("a", 0)]
    assert world.cluster.metadata.configs(2, "a") == {"retention.ms": "5"}


def test_answers_keep_their_order_through_refusals() -> None:
    world = AdminWorld()
    world.cluster.create("a", "b")
    answers = world.ask(request((99, "x", {}), (2, "a", {"retention.ms": "x"}), (2, "no", {}), (2, "b", {}), (2, "b", {}))).responses
    assert [(result.resource_name, result.error_code) for result in answers] == [
        ("x", ErrorCode.INVALID_REQUEST),
        ("a", ErrorCode.INVALID_CONFIG),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.INVALID_REQUEST),
    ]


def test_validate_only_and_rights() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    assert world.ask(request((2, "a", {"retention.ms": "5"}), validate_only=True)).responses[0].error_code == 0
    assert world.cluster.metadata.configs(2, "a") == {}
    denied = AdminWorld(authorizer=DenyAll(), cluster=world.cluster).ask(request((2, "a", {}), (4, "0", {}), (32, "g", {})))
    assert [result.error_code for result in denied.responses] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ]
