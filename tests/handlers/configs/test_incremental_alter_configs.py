"""IncrementalAlterConfigs: its operations, encoded and decoded. The controller's tests cover what each operation does."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.controller.api import CONFIG_ENTRIES_MAX
from ottla.wire.messages.alter_configs import AlterableConfig as OldConfig
from ottla.wire.messages.alter_configs import AlterConfigsRequest
from ottla.wire.messages.alter_configs import AlterConfigsResource as AlterConfigsResourceOfOld
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.handlers.admin_world import AdminWorld


def request(*rows: tuple[str, int, str | None], name: str = "a") -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in rows]
    return IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)])


@pytest.mark.parametrize("version", range(2))
def test_each_operation(version: int) -> None:
    world = AdminWorld()
    world.cluster.create("a")
    for rows, expected in (
        ([("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact")], {"retention.ms": "5", "cleanup.policy": "delete,compact"}),
        ([("retention.ms", 1, None), ("cleanup.policy", 3, "delete")], {"cleanup.policy": "compact"}),
    ):
        assert world.ask(request(*rows), version).responses[0].error_code == 0
        assert world.cluster.metadata.configs(2, "a") == expected


def test_a_resource_has_a_bounded_number_of_settings() -> None:
    """The resources are a topic and the loggers of a broker. Kafka has no bound, and refuses the first name that it does not know."""
    world = AdminWorld()
    world.cluster.create("a")
    many = request(*((f"name-{number}", 0, "5") for number in range(CONFIG_ENTRIES_MAX + 1)))
    loggers = request(*[("root", 0, "DEBUG")] * (CONFIG_ENTRIES_MAX + 1), name="0")
    loggers.resources[0].resource_type = 8
    resources = [AlterConfigsResourceOfOld(resource_type=2, resource_name="a", configs=[OldConfig(name="x", value="1")] * 100_000)]
    for asked in (many, loggers, AlterConfigsRequest(resources=resources)):
        (result,) = world.ask(asked).responses
        assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "More than 1000 configurations of one resource")
    assert world.cluster.metadata.configs(2, "a") == {}


def test_an_unknown_operation_changes_nothing() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    (result,) = world.ask(request(("retention.ms", 0, "5"), ("segment.ms", 9, "5"))).responses
    assert (result.error_code, result.resource_name) == (ErrorCode.INVALID_REQUEST, "a")
    assert world.cluster.metadata.configs(2, "a") == {}


@pytest.mark.parametrize(
    ("name", "row", "code"),
    [
        ("", ("retention.ms", 0, "5"), ErrorCode.INVALID_REQUEST),
        ("a/b", ("retention.ms", 0, "5"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("no", ("retention.ms", 0, "x"), ErrorCode.INVALID_CONFIG),
        ("no", ("retention.ms", 0, "5"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_wrong_is_said_in_kafkas_order(name: str, row: tuple[str, int, str], code: ErrorCode) -> None:
    (result,) = AdminWorld().ask(request(row, name=name)).responses
    assert result.error_code == code
