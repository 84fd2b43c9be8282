"""Log levels of the broker's loggers, changed while the broker runs: Kafka's names of the levels, and requests that are carried out whole
or not at all."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.base.errors import ErrorCode
from ottla.controller.api import ConfigEntry, ConfigOperation
from ottla.handlers.configs.broker_loggers import LEVELS, alter_loggers, logger_entries
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.handlers.admin_world import AdminWorld

LOGGER, SET, DELETE, APPEND = 8, 0, 1, 2
PART = "ottla.test.part"


@pytest.fixture(autouse=True)
def part() -> Iterator[logging.Logger]:
    root, part = logging.getLogger("ottla"), logging.getLogger(PART)
    before = root.level
    root.setLevel(logging.INFO)
    part.setLevel(logging.NOTSET)
    yield part
    root.setLevel(before)
    part.setLevel(logging.NOTSET)


def levels(world: AdminWorld, name: str = "0") -> dict[str, str]:
    resource = DescribeConfigsResource(resource_type=LOGGER, resource_name=name, configuration_keys=None)
    (result,) = world.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True)).results
    assert result.error_code == 0
    assert {entry.config_source for entry in result.configs} == {6}
    return {entry.name: entry.value for entry in result.configs}


def alter(world: AdminWorld, *rows: tuple[str, int, str | None], name: str = "0", validate_only: bool = False) -> ErrorCode:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in rows]
    resource = AlterConfigsResource(resource_type=LOGGER, resource_name=name, configs=configs)
    (response,) = world.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)).responses
    assert (response.resource_type, response.resource_name) == (LOGGER, name)
    return ErrorCode(response.error_code)


def test_a_level_is_shown_set_and_given_up(part: logging.Logger) -> None:
    world = AdminWorld()
    assert (levels(world)["root"], levels(world)[PART]) == ("INFO", "INFO")
    assert alter(world, (PART, SET, "debug"), ("root", SET, "WARN")) is ErrorCode.NONE
    assert (levels(world)["root"], levels(world)[PART], part.getEffectiveLevel()) == ("WARN", "DEBUG", logging.DEBUG)
    assert alter(world, (PART, DELETE, None)) is ErrorCode.NONE
    assert levels(world)[PART] == "WARN"


def test_a_question_changes_nothing() -> None:
    world = AdminWorld()
    assert alter(world, (PART, SET, "ERROR"), validate_only=True) is ErrorCode.NONE
    assert levels(world)[PART] == "INFO"


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (("no.such.part", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ((PART, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((PART, SET, None), ErrorCode.INVALID_CONFIG),
        ((PART, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_wrong_changes_nothing(row: tuple[str, int, str | None], code: ErrorCode) -> None:
    world = AdminWorld()
    assert alter(world, ("root", SET, "ERROR"), row) is code
    assert levels(world)["root"] == "INFO"


def test_another_brokers_loggers_are_not_ours() -> None:
    world = AdminWorld()
    assert alter(world, (PART, SET, "INFO"), name="7") is ErrorCode.INVALID_REQUEST
    resource = DescribeConfigsResource(resource_type=LOGGER, resource_name="7", configuration_keys=None)
    assert world.ask(DescribeConfigsRequest(resources=[resource])).results[0].error_code == ErrorCode.INVALID_REQUEST


def test_every_word_of_kafkas_is_taken() -> None:
    shown = []
    for word in LEVELS:
        alter_loggers([ConfigEntry(name=PART, operation=ConfigOperation.SET, value=word)], validate_only=False)
        shown += [entry.value for entry in logger_entries() if entry.setting.name == PART]
    assert shown == ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "DEBUG"]
