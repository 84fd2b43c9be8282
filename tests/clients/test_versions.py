"""A sample request of every API in every version that the table promises is executed, and the answer has the same version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.served_apis import TABLE
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_requests import MAY_ANSWER, REQUESTS
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient, error_codes

SERVED = [(api.key, version) for api in TABLE.values() for version in range(api.min_version, api.max_version + 1)]


@pytest.fixture(scope="module")
def world(broker: BrokerProcess) -> Iterator[World]:
    with WireClient(broker.port) as client:
        yield World(client)


def test_there_is_a_request_for_every_line_of_the_table() -> None:
    assert set(REQUESTS) == set(TABLE)


@pytest.mark.parametrize(("key", "version"), SERVED, ids=[f"{TABLE[key].name}-{version}" for key, version in SERVED])
def test_a_sensible_request_is_granted(world: World, broker: BrokerProcess, key: int, version: int) -> None:
    request = world.request(key, version)
    with WireClient(broker.port) as client:
        answer = client.ask(request, version)
    refused = {ErrorCode(code).name for code in error_codes(answer)} - {"NONE"} - {code.name for code in MAY_ANSWER.get(key, ())}
    assert not refused, answer
