"""Quotas of a whole broker are in force as soon as they are set, and end as soon as they are removed. Before the first quota nothing is
measured."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.base.cluster_metadata import QuotaEntity
from ottla.base.errors import ErrorCode
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest, QuotaRequest
from ottla.server.app import BrokerServer
from ottla.server.monitoring.metrics import Metrics
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_response_header, write_request
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema import Request
from tests.server.conftest import MakeServer

Ask = Callable[..., list[Any]]
WINDOW_MS = 3_600_000
EACH_CLIENT: QuotaEntity = (("client-id", None),)


def set_quota(server: BrokerServer, entity: QuotaEntity, **values: float | None) -> None:
    errors: list[ErrorCode] = []
    request = QuotaRequest(entity=entity, values=values)
    server.node.controller.alter_quotas([request], False, lambda results: errors.extend(result.error for result in results))
    assert errors == [ErrorCode.NONE]


def throttle_of(server: BrokerServer, name: str) -> dict[tuple[str, str], float]:
    """Returns the samples of a metric, by user and client id."""
    page = Metrics(server.node).render().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    return {(sample.labels["user"], sample.labels["client_id"]): sample.value for sample in families[name].samples}


@pytest.fixture
def server(make_server: MakeServer) -> BrokerServer:
    """A broker with quota windows that are longer than the slowest test."""
    return make_server("quota.window.size.seconds=3600")


@pytest.fixture
def ask(loop: asyncio.AbstractEventLoop, server: BrokerServer) -> Ask:
    """`ask(request, ..., client_id=, between=)` sends all on one connection, calls `between` after each, returns the answers."""

    async def talk(requests: tuple[Request, ...], client_id: str, between: Callable[[], object]) -> list[Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.node.endpoints[0].port)
        answers = []
        for number, request in enumerate(requests):
            key, version = type(request).API_KEY, type(request).VERSIONS[1]
            writer.write(write_request(key, version, number, client_id, encoder(type(request), version)(request)))
            data = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            _, at = read_response_header(key, version, data)
            answers.append(decoder(load(key)[1], version)(data, at)[0])
            between()
        writer.close()
        return answers

    def ask(*requests: Request, client_id: str = "c", between: Callable[[], object] = lambda: None) -> list[Any]:
        return loop.run_until_complete(asyncio.wait_for(talk(requests, client_id, between), 60))

    return ask


def describe(count: int) -> DescribeConfigsRequest:
    resources = [DescribeConfigsResource(resource_type=32, resource_name=f"g{number}", configuration_keys=None) for number in range(count)]
    return DescribeConfigsRequest(resources=resources)


def test_a_broker_without_quotas_has_nothing_of_them(server: BrokerServer, ask: Ask) -> None:
    assert server.node.quotas is None and server.node.broker.quotas is None
    assert server.node.dispatcher.throttling is None and server.node.listeners.gate is None
    assert ask(MetadataRequest(topics=[]))[0].throttle_time_ms == 0
    assert throttle_of(server, "kafka_server_produce_throttle_time") == {("", ""): 0}


def test_a_quota_is_in_force_at_once_and_gone_at_once(server: BrokerServer, ask: Ask) -> None:
    set_quota(server, EACH_CLIENT, request_percentage=1e-9)
    (answer,) = ask(MetadataRequest(topics=[]))
    assert answer.throttle_time_ms == WINDOW_MS
    set_quota(server, EACH_CLIENT, request_percentage=None)
    assert server.node.broker.quotas is None and server.node.dispatcher.throttling is None
    (answer,) = ask(MetadataRequest(topics=[]))
    assert answer.throttle_time_ms == 0


def test_another_value_frees_the_muted(server: BrokerServer, ask: Ask) -> None:
    set_quota(server, EACH_CLIENT, producer_byte_rate=1.0)
    data = TopicProduceData(partition_data=[PartitionProduceData(index=0, records=b"x" * 100_000)])
    upload = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
    first, second = ask(upload, MetadataRequest(topics=[]), between=lambda: set_quota(server, EACH_CLIENT, producer_byte_rate=1e9))
    assert first.throttle_time_ms > 3_600_000, "without the other value the next request would wait for hours"
    assert second.throttle_time_ms == 0


@pytest.mark.parametrize("count", [1, 3, 400])
def test_long_requests_are_charged_for_all_of_their_work(server: BrokerServer, ask: Ask, count: int) -> None:
    set_quota(server, EACH_CLIENT, request_percentage=1e-9)
    (answer,) = ask(describe(count))
    assert len(answer.results) == count
    assert 0 < answer.throttle_time_ms <= WINDOW_MS, "what is left of it when the answer is there"


def test_the_pieces_of_a_long_request_share_one_quota_of_changes(server: BrokerServer, ask: Ask) -> None:
    server.node.create_topics([(f"t{number}", 1) for number in range(60)])
    set_quota(server, EACH_CLIENT, controller_mutation_rate=1.0)
    (answer,) = ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{number}") for number in range(60)]))
    refused = [result for result in answer.responses if result.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert len(answer.responses) == 60 and 0 < len(refused) < 60
    assert 0 < answer.throttle_time_ms <= 1000


def test_metrics_show_who_is_throttled_whatever_the_names(server: BrokerServer, ask: Ask) -> None:
    set_quota(server, EACH_CLIENT, request_percentage=1e-9)
    names = ["plain", 'quote"', "new\nline", "tab\tand\x00zero", "next\x85line\u2028", "ä", ""]
    for name in names:
        ask(MetadataRequest(topics=[]), client_id=name)
    shown = throttle_of(server, "kafka_server_request_throttle_time")
    assert {client_id for _, client_id in shown} == {
        "plain", 'quote"', "new%0Aline", "tab%09and%00zero", "next%C2%85line%E2%80%A8", "ä", ""
    }  # fmt: skip
    assert set(shown.values()) == {WINDOW_MS}
    assert all(rate > 0 for rate in throttle_of(server, "kafka_server_request_request_time").values())


def test_a_thousand_client_ids_are_a_thousand_shares_and_the_scrape_works(server: BrokerServer, ask: Ask) -> None:
    set_quota(server, EACH_CLIENT, request_percentage=1e9)
    for number in range(1000):
        assert server.node.broker.quotas is not None
        server.node.broker.quotas.charge_time("User:ANONYMOUS", f"client-{number}", 1)
    assert len(throttle_of(server, "kafka_server_request_throttle_time")) == 1000


# New connections


def connects(port: int) -> bool:
    """Returns whether the broker answers on a new connection, instead of closing it."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(write_request(3, 9, 1, "c", encoder(MetadataRequest, 9)(MetadataRequest(topics=[]))))
        try:
            return sock.recv(1) != b""
        except ConnectionResetError:
            return False


def test_an_address_over_its_rate_is_turned_away(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("quota.window.num=1")  # so that the first connection is above the rate, however slow the machine is
    port = server.node.endpoints[0].port
    set_quota(server, (("ip", "127.0.0.1"),), connection_creation_rate=1.0)
    assert server.node.listeners.gate is not None and server.node.dispatcher.throttling is None
    assert not loop.run_until_complete(loop.run_in_executor(None, connects, port))
    set_quota(server, (("ip", "127.0.0.1"),), connection_creation_rate=None)
    assert server.node.listeners.gate is None
    assert loop.run_until_complete(loop.run_in_executor(None, connects, port))


def test_a_listener_may_have_a_rate_of_its_own(make_server: MakeServer) -> None:
    protocols = "listener.security.protocol.map=SLOW:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    listeners = ("listeners=PLAINTEXT://127.0.0.1:0,SLOW://127.0.0.1:0", protocols)
    server = make_server(*listeners, "listener.name.slow.max.connection.creation.rate=1", "quota.window.num=1")
    gate = server.node.listeners.gate
    assert gate is not None and server.node.quotas is not None
    rates = server.node.quotas.connections
    assert [rates.note(name, "h").ms > 0 for name in ("PLAINTEXT", "PLAINTEXT", "PLAINTEXT", "SLOW", "SLOW")] == [False] * 3 + [True] * 2


def test_a_rate_from_the_settings_counts_and_may_change(make_server: MakeServer) -> None:
    server = make_server("max.connection.creation.rate=5")
    assert server.node.listeners.gate is not None
    entry = ConfigEntry(name="max.connection.creation.rate", operation=ConfigOperation.SET, value="2147483647")
    errors: list[ErrorCode] = []
    server.node.controller.alter_configs(
        [ConfigRequest(resource_type=4, name="", entries=[entry])], False, lambda results: errors.extend(one.error for one in results)
    )
    assert errors == [ErrorCode.NONE]
    assert server.node.listeners.gate is None
