"""GetTelemetrySubscriptions: a client asks which metrics it shall push (KIP-714).

Behaviour: a client without an id gets one. The answer has the metrics of all subscriptions that match the client, none if none matches. A
client that asks again before its push interval is over gets THROTTLING_QUOTA_EXCEEDED, unless its subscription has changed. Needs no
permission. Two differences from Apache Kafka: counters are asked for as sums since the client's start, because `/metrics` shows such sums.
All metrics are asked for by the empty prefix, as the KIP says, because franz-go does not understand Kafka's `*`.

Version notes: none.
"""

from __future__ import annotations

from ottla.base.errors import ApiError
from ottla.handlers.context import Broker, RequestContext
from ottla.telemetry.subscriptions import ALL_METRICS
from ottla.wire.compression import CODEC_GZIP, CODEC_LZ4, CODEC_SNAPPY, CODEC_ZSTD
from ottla.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse

ACCEPTED_CODECS = (CODEC_ZSTD, CODEC_LZ4, CODEC_GZIP, CODEC_SNAPPY)
"""In the order of preference. A client may push uncompressed metrics as well."""


def handle(broker: Broker, request: RequestContext, body: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    try:
        client = broker.reporting_clients.ask(body.client_instance_id, request.client_id, request.connection)
    except ApiError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client.instance_id,
        subscription_id=client.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=client.wanted.interval_ms,
        telemetry_max_bytes=broker.config.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=[""] if client.wanted.metrics == (ALL_METRICS,) else list(client.wanted.metrics),
    )
