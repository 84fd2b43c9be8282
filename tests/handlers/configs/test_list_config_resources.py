"""ListConfigResources: it lists the resources that DescribeConfigs can describe."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.handlers.admin_world import AdminWorld, DenyAll


@pytest.fixture
def world() -> AdminWorld:
    made = AdminWorld()
    made.cluster.create("a", "b")
    entry = ConfigEntry(name="consumer.session.timeout.ms", operation=ConfigOperation.SET, value="50000")
    made.cluster.loop.alter_configs([ConfigRequest(resource_type=32, name="g", entries=[entry])], False, lambda results: None)
    return made


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], [(2, "a"), (2, "b"), (4, "0"), (8, "0"), (32, "g")]),
        ([32, 2, 32], [(32, "g"), (2, "a"), (2, "b")]),
        ([8, 16], [(8, "0")]),
    ],
)
def test_kinds(world: AdminWorld, kinds: list[int], expected: list[tuple[int, str]]) -> None:
    answer = world.ask(ListConfigResourcesRequest(resource_types=kinds))
    assert [(resource.resource_type, resource.resource_name) for resource in answer.config_resources] == expected


def test_version_0_knows_only_client_metrics(world: AdminWorld) -> None:
    assert world.ask(ListConfigResourcesRequest(), 0).config_resources == []
    entry = ConfigEntry(name="interval.ms", operation=ConfigOperation.SET, value="1000")
    world.cluster.loop.alter_configs([ConfigRequest(resource_type=16, name="m", entries=[entry])], False, lambda results: None)
    assert [resource.resource_name for resource in world.ask(ListConfigResourcesRequest(), 0).config_resources] == ["m"]


def test_refused(world: AdminWorld) -> None:
    assert world.ask(ListConfigResourcesRequest(resource_types=[99])).error_code == ErrorCode.UNSUPPORTED_VERSION
    denied = AdminWorld(authorizer=DenyAll(), cluster=world.cluster).ask(ListConfigResourcesRequest())
    assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
