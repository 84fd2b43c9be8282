"""Requests that alter the settings of one broker and are sent to another one, in a cluster in memory."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.cluster_metadata import CONFIG_BROKER, CONFIG_TOPIC
from ottla.base.errors import ErrorCode
from ottla.wire.messages import alter_configs as replacing
from ottla.wire.messages import incremental_alter_configs as incremental
from ottla.wire.messages.create_topics import CreateTopicsRequest
from tests.server.execution.test_forwarding import OTHER, Nodes, topic

CONTROLLER = 1
RATE = {"leader.replication.throttled.rate": "77000"}


def request(*resources: tuple[int, str, dict[str, str]], is_replacing: bool = False) -> Any:
    module: Any = replacing if is_replacing else incremental
    made = [
        module.AlterConfigsResource(
            resource_type=kind, resource_name=name,
            configs=[module.AlterableConfig(name=key, value=value) for key, value in values.items()],
        )
        for kind, name, values in resources
    ]  # fmt: skip
    return (replacing.AlterConfigsRequest if is_replacing else incremental.IncrementalAlterConfigsRequest)(resources=made)


def answered(nodes: Nodes, broker: int, body: Any) -> dict[str, tuple[int, str | None]]:
    return {one.resource_name: (one.error_code, one.error_message) for one in nodes.ask(broker, body).responses}


@pytest.mark.parametrize("is_replacing", [True, False])
@pytest.mark.parametrize(("asked", "named"), [(OTHER, CONTROLLER), (CONTROLLER, OTHER), (OTHER, 99)])
@pytest.mark.parametrize("name", ["leader.replication.throttled.rate", "ssl.keystore.location"])
def test_each_broker_refuses_what_is_for_another_one(asked: int, named: int, name: str, is_replacing: bool) -> None:
    nodes = Nodes(2)
    body = request((CONFIG_BROKER, str(named), {name: "1"}), is_replacing=is_replacing)
    message = f"Unexpected broker id, expected {asked}, but received {named}"
    assert answered(nodes, asked, body) == {str(named): (ErrorCode.INVALID_REQUEST, message)}
    assert nodes.nodes[CONTROLLER].metadata.configs(CONFIG_BROKER, str(named)) == {}


@pytest.mark.parametrize("asked", [OTHER, CONTROLLER])
def test_what_is_for_this_broker_or_for_all_is_carried_out_beside_it(asked: int) -> None:
    nodes = Nodes(2)
    nodes.ask(CONTROLLER, CreateTopicsRequest(topics=[topic("a", replicas=2)], timeout_ms=60_000))
    named = CONTROLLER if asked == OTHER else OTHER
    found = answered(
        nodes, asked,
        request(
            (CONFIG_BROKER, str(named), RATE), (CONFIG_BROKER, str(asked), RATE), (CONFIG_BROKER, "", {"log.retention.ms": "5"}),
            (CONFIG_TOPIC, "a", {"retention.ms": "6"}),
        ),
    )  # fmt: skip
    assert {name: code for name, (code, _) in found.items()} == {str(named): ErrorCode.INVALID_REQUEST, str(asked): 0, "": 0, "a": 0}
    assert nodes.nodes[CONTROLLER].metadata.configs(CONFIG_BROKER, str(asked)) == RATE


def test_a_name_that_is_no_number() -> None:
    body = request((CONFIG_BROKER, "x", RATE))
    assert answered(Nodes(2), OTHER, body) == {"x": (ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x")}
