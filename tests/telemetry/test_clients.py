"""Clients that push metrics: their ids, intervals, refusals and expiry, and the limit on all clients together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.cluster_metadata import CONFIG_CLIENT_METRICS, ConfigPut
from ottla.base.control_messages import UpdateConfigs
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import METADATA_TOPIC_UUID, ZERO_UUID
from ottla.cluster.metadata_cache import MetadataCache
from ottla.handlers.context import ConnectionInfo
from ottla.telemetry.clients import CLIENT_BYTES, ReportingClient, ReportingClients
from ottla.telemetry.otlp import Kind, Point
from ottla.telemetry.subscriptions import Subscriptions
from tests.fakes.clock import ManualClock
from tests.fakes.randomness import SeededRandom

INTERVAL_MS = 10_000
BYTES_MAX = 100 * CLIENT_BYTES


class World:
    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.clock = ManualClock()
        self.clients = ReportingClients(Subscriptions(self.cache), self.clock, SeededRandom(1), BYTES_MAX)
        self.connection = self.connect()
        self.subscribe("a", {"metrics": "m", "interval.ms": str(INTERVAL_MS)})

    def connect(self, host: str = "10.0.0.1", port: int = 1) -> ConnectionInfo:
        return ConnectionInfo(identity=f"{host}:{port}", host=host, listener="PLAINTEXT")

    def subscribe(self, name: str, values: dict[str, str]) -> None:
        changes = [ConfigPut(CONFIG_CLIENT_METRICS, name, values)]
        self.cache.update_configs(UpdateConfigs(controller_id=-1, controller_epoch=-1, broker_epoch=-1, changes=changes, is_complete=False))

    def ask(self, instance_id: bytes = ZERO_UUID, connection: ConnectionInfo | None = None) -> ReportingClient:
        return self.clients.ask(instance_id, "app", connection or self.connection)

    def push(self, client: ReportingClient, *, subscription_id: int | None = None, is_last: bool = False, series: int = 1) -> None:
        wanted = client.subscription_id if subscription_id is None else subscription_id
        found = self.clients.admit(
            client.instance_id, "app", client.connection, subscription_id=wanted, is_terminating=is_last
        )
        report = self.clients.new_report(found)
        for index in range(series):
            report.add(Point("m", Kind.GAUGE, (("i", str(index)),), 1))
        self.clients.keep(found, report)

    def reporting(self) -> list[bytes]:
        return [client.instance_id for client in self.clients.reporting()]


def refusal(function: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        function()
    return refused.value.code


def test_a_client_without_an_id_gets_one() -> None:
    world = World()
    first, second = world.ask(), world.ask()
    assert first.instance_id != second.instance_id and ZERO_UUID not in (first.instance_id, second.instance_id)
    assert first.client.client_id == "app" and first.client.client_source_address == "10.0.0.1" and first.client.client_source_port == "1"


def test_the_interval_between_pushes() -> None:
    world = World()
    client = world.ask()
    world.push(client)  # accepted at any time, because clients choose a random time for the first push
    assert refusal(lambda: world.push(client)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.advance(INTERVAL_MS - 1)
    assert refusal(lambda: world.push(client)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.advance(1)
    world.push(client)
    assert (world.clients.pushes, world.clients.early_requests) == (2, 2)


def test_the_interval_between_questions() -> None:
    world = World()
    client = world.ask()
    assert refusal(lambda: world.ask(client.instance_id)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.advance(INTERVAL_MS)
    assert world.ask(client.instance_id) is client


def test_a_client_of_another_broker_may_push_at_once() -> None:
    """The subscription id is the same on all brokers."""
    client = World().ask()
    other = World()
    client.connection = other.connection
    other.push(client)
    assert other.reporting() == [client.instance_id]


def test_a_change_of_the_subscription() -> None:
    world = World()
    client = world.ask()
    world.push(client)
    former = client.subscription_id
    world.subscribe("b", {"metrics": "n"})
    assert refusal(lambda: world.push(client, subscription_id=former)) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert world.ask(client.instance_id).wanted.metrics == ("m", "n"), "asked again at once"
    world.push(client)
    assert world.clients.unknown_subscriptions == 1


def test_a_change_is_answered_at_once() -> None:
    world = World()
    client = world.ask()
    world.subscribe("a", {"metrics": "x"})
    assert world.ask(client.instance_id).wanted.metrics == ("x",)


def test_a_client_that_is_asked_for_nothing_any_more_has_no_series() -> None:
    world = World()
    client = world.ask()
    world.push(client)
    held = world.clients.bytes_kept
    world.subscribe("a", {})
    assert world.ask(client.instance_id).wanted.metrics == ()
    assert world.reporting() == [] and len(world.clients) == 1 and world.clients.bytes_kept < held


def test_the_last_push() -> None:
    world = World()
    client = world.ask()
    world.push(client)
    world.push(client, is_last=True)  # the last push need not wait for the interval
    assert refusal(lambda: world.push(client, is_last=True)) is ErrorCode.INVALID_REQUEST
    world.clock.advance(INTERVAL_MS)
    assert refusal(lambda: world.push(client)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("instance_id", [ZERO_UUID, METADATA_TOPIC_UUID])
def test_reserved_ids_may_not_push(instance_id: bytes) -> None:
    world = World()
    client = world.ask()
    client.instance_id = instance_id
    assert refusal(lambda: world.push(client)) is ErrorCode.INVALID_REQUEST


def test_a_client_is_gone_with_the_connection_of_its_last_request() -> None:
    world = World()
    client = world.ask()
    former = world.connection
    world.clock.advance(INTERVAL_MS)
    world.ask(client.instance_id, world.connect(port=2))
    world.push(client)
    former.closed()
    assert world.reporting() == [client.instance_id]
    client.connection.closed()
    assert world.reporting() == [] and len(world.clients) == 0 and world.clients.bytes_kept == 0


def test_a_client_that_does_not_push_expires() -> None:
    world = World()
    client = world.ask()
    world.push(client)
    world.clock.advance(60_000)
    assert world.reporting() == [client.instance_id]
    world.clock.advance(1)
    assert world.reporting() == [] and len(world.clients) == 0
    world.push(client)  # the client is a new one now
    assert world.reporting() == [client.instance_id]
    world.clock.advance(60_001)
    assert world.ask(client.instance_id) is not client


def test_a_long_interval_expires_after_three() -> None:
    world = World()
    world.subscribe("a", {"metrics": "m"})
    client = world.ask()
    world.push(client)
    world.clock.advance(3 * 300_000)
    assert world.reporting() == [client.instance_id]
    world.clock.advance(1)
    assert world.reporting() == []


def test_all_clients_are_bounded_and_addresses_share_the_limit() -> None:
    world = World()
    honest = world.ask(connection=world.connect("10.0.0.2"))
    world.push(honest)
    for _ in range(300):
        world.ask()
    assert world.clients.bytes_kept <= BYTES_MAX and 90 < len(world.clients) <= 100
    assert world.reporting() == [honest.instance_id], "the flood has evicted its own clients"


def test_one_report_takes_at_most_an_eighth() -> None:
    world = World()
    client = world.ask()
    world.push(client, series=10_000)
    assert client.report is not None and 0 < client.report.bytes <= BYTES_MAX // 8
    assert world.clients.dropped_points == 10_000 - client.report.series_count > 0


def test_a_report_of_a_client_that_is_gone_is_dropped() -> None:
    world = World()
    client = world.ask()
    report = world.clients.new_report(client)
    client.connection.closed()
    world.clients.keep(client, report)
    assert world.reporting() == []
