"""GetTelemetrySubscriptions and PushTelemetry: answers and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.wire.compression import CODEC_GZIP, CODEC_NAMES, compress
from ottla.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from tests.handlers.admin_world import AdminWorld, DenyAll
from tests.handlers.configs.test_describe_configs import CLIENT_METRICS, set_config
from tests.telemetry.otlp_writer import gauge, metrics, point

BYTES_MAX = 10_000
PAYLOAD = metrics(gauge("org.apache.kafka.a", point(1.5)), gauge("other", point(2)))


class World(AdminWorld):
    """A broker with the subscription `s` to the metrics whose names begin with `org.`."""

    def __init__(self, authorizer: Any = None) -> None:
        super().__init__(load(assignments=[f"telemetry.max.bytes={BYTES_MAX}"])[0])
        self.clock = self.cluster.timers.clock
        self.clients = self.broker.reporting_clients
        set_config(self, CLIENT_METRICS, "s", "metrics", "org.")
        set_config(self, CLIENT_METRICS, "s", "interval.ms", "1000")
        self.broker.authorizer = authorizer or self.broker.authorizer
        self.answer = self.get()

    def get(self, instance_id: bytes = ZERO_UUID) -> Any:
        return self.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))

    def push(self, payload: bytes = PAYLOAD, codec: int = 0, **fields: Any) -> ErrorCode:
        known = {"client_instance_id": self.answer.client_instance_id, "subscription_id": self.answer.subscription_id}
        answer = self.ask(PushTelemetryRequest(**{**known, "metrics": payload, "compression_type": codec, **fields}))
        assert answer.throttle_time_ms == 0
        return ErrorCode(answer.error_code)

    def families(self) -> list[str]:
        return [name for client in self.clients.reporting() if client.report is not None for name in client.report.families]


def test_a_subscription() -> None:
    answer = World().answer
    assert (answer.error_code, answer.throttle_time_ms) == (ErrorCode.NONE, 0)
    assert answer.client_instance_id != ZERO_UUID
    assert (answer.requested_metrics, answer.push_interval_ms, answer.telemetry_max_bytes) == (["org."], 1_000, BYTES_MAX)
    assert [CODEC_NAMES[codec] for codec in answer.accepted_compression_types] == ["zstd", "lz4", "gzip", "snappy"]
    assert not answer.delta_temporality


def test_all_metrics_are_the_empty_prefix() -> None:
    world = World()
    set_config(world, CLIENT_METRICS, "s", "metrics", "a,*")
    assert world.get().requested_metrics == [""]


def test_without_a_subscription() -> None:
    world = World()
    set_config(world, CLIENT_METRICS, "s", "match", "client_id=another")
    answer = world.get()
    assert (answer.error_code, answer.requested_metrics, answer.push_interval_ms) == (ErrorCode.NONE, [], 300_000)


def test_a_question_that_comes_too_early() -> None:
    world = World()
    refused = world.get(world.answer.client_instance_id)
    assert (refused.error_code, refused.client_instance_id, refused.requested_metrics) == (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, ZERO_UUID, [],
    )  # fmt: skip


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
def test_a_push_in_every_codec(codec: int) -> None:
    world = World()
    assert world.push(compress(codec, PAYLOAD), codec) is ErrorCode.NONE
    assert world.families() == ["kafka_client_a"], "what the subscription does not ask for is not kept"


def test_a_push_without_metrics() -> None:
    world = World()
    assert world.push(b"", CODEC_GZIP) is ErrorCode.NONE and world.families() == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"payload": bytes(BYTES_MAX + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"payload": compress(CODEC_GZIP, bytes(BYTES_MAX + 1)), "codec": CODEC_GZIP}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"payload": b"no gzip", "codec": CODEC_GZIP}, ErrorCode.INVALID_RECORD),
        ({"payload": b"\x0a\x7f"}, ErrorCode.INVALID_RECORD),
    ],
)
def test_refused_pushes(fields: dict[str, Any], code: ErrorCode) -> None:
    world = World()
    assert world.push(**fields) is code
    assert world.families() == []


def test_a_refusal_that_the_client_can_repair_lets_it_ask_at_once() -> None:
    world = World()
    assert world.push(codec=9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert world.get(world.answer.client_instance_id).error_code == ErrorCode.NONE
    assert world.push() is ErrorCode.NONE


def test_too_early_and_the_last_push() -> None:
    world = World()
    assert world.push() is ErrorCode.NONE
    assert world.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.push(terminating=True) is ErrorCode.NONE
    assert world.push(terminating=True) is ErrorCode.INVALID_REQUEST


def test_no_permission_is_needed() -> None:
    world = World(authorizer=DenyAll())
    assert world.answer.error_code == ErrorCode.NONE and world.push() is ErrorCode.NONE
