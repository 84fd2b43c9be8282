"""Attacks by metrics that a client pushes (KIP-714), with a subscription to all metrics of all clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.base.uuids import fresh_uuid
from ottla.wire.compression import CODEC_GZIP, CODEC_NONE, compress
from ottla.wire.framing import load
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from ottla.wire.schema import Request
from tests.hostile.attacks import Target, attack
from tests.hostile.attacks_growth import send_many
from tests.telemetry.otlp_writer import field, gauge, metrics, point

CLIENT_METRICS, PUSH_BYTES_MAX = 16, 1 << 20


def subscribe(target: Target) -> None:
    settings = [AlterableConfig(name="metrics", config_operation=0, value="*"), AlterableConfig(name="interval.ms", value="100")]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=settings)
    answer = target.client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert not answer.responses[0].error_code, answer


def pushes(target: Target, count: int, payload: bytes, codec: int) -> Iterator[tuple[Request, int]]:
    """Yields pushes of new clients. The broker refuses a wrong subscription id, so each client asks for its subscription first."""
    get: Any = load(71)[0]
    for number in target.numbers(count):
        instance_id = fresh_uuid(number.to_bytes(16, "big"))
        subscription = target.client.ask(get(client_instance_id=instance_id), 0)
        yield (
            PushTelemetryRequest(
                client_instance_id=instance_id, subscription_id=subscription.subscription_id, compression_type=codec, metrics=payload
            ),
            0,
        )  # fmt: skip


@attack("PushTelemetry of 3,000 clients with 100 series each", not_on_kafka="it needs a plugin")
def many_pushing_clients(target: Target) -> None:
    subscribe(target)
    payload = metrics(*[gauge(f"{index:03}" + "m" * 200, point(1, label="v" * 200)) for index in range(100)])
    target.begin()
    send_many(target, pushes(target, 3_000, payload, CODEC_NONE))


@attack("PushTelemetry of half a million empty fields in a kilobyte, 50 times", not_on_kafka="it needs a plugin")
def empty_fields(target: Target) -> None:
    subscribe(target)
    payload = compress(CODEC_GZIP, field(1, b"\x12\x00" * ((PUSH_BYTES_MAX - 10) // 2)))
    target.begin()
    send_many(target, pushes(target, 50, payload, CODEC_GZIP))


@attack("PushTelemetry of 60,000 series in 50 kilobytes, 50 times", not_on_kafka="it needs a plugin")
def many_series(target: Target) -> None:
    subscribe(target)
    payload = compress(CODEC_GZIP, metrics(*[gauge("a", *[point(1) for _ in range(60)]) for _ in range(500)]))
    target.begin()
    send_many(target, pushes(target, 50, payload, CODEC_GZIP))
