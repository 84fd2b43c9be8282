"""PushTelemetry: a client sends its metrics (KIP-714).

Behaviour: the broker keeps the metrics of the last push that the client's subscription asks for, and shows them on `/metrics`. Refused: a
reserved client instance id and a push after the last one (INVALID_REQUEST), a push before the interval is over (THROTTLING_QUOTA_EXCEEDED),
another subscription than the present one (UNKNOWN_SUBSCRIPTION_ID), an unknown codec (UNSUPPORTED_COMPRESSION_TYPE), more than
`telemetry.max.bytes` before or after decompression (TELEMETRY_TOO_LARGE), and malformed metrics (INVALID_RECORD). Needs no permission.

Version notes: none.

Not done: histograms and summaries are skipped. Kafka's clients push none.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.handlers.context import Broker, RequestContext, Task
from ottla.telemetry.clients import ReportingClient
from ottla.telemetry.otlp import read_points
from ottla.wire.compression import CODEC_NAMES, UnpackedTooLarge, decompress
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def handle(broker: Broker, request: RequestContext, body: PushTelemetryRequest) -> PushTelemetryResponse | Task:
    clients = broker.reporting_clients
    try:
        client = clients.admit(
            body.client_instance_id, request.client_id, request.connection,
            subscription_id=body.subscription_id, is_terminating=body.terminating,
        )  # fmt: skip
        metrics = _unpacked(broker, client, body)
    except ApiError as error:
        return PushTelemetryResponse(error_code=error.code)
    return _read(broker, client, metrics)


def _unpacked(broker: Broker, client: ReportingClient, body: PushTelemetryRequest) -> bytes:
    bytes_max = broker.config.telemetry_max_bytes
    refused = broker.reporting_clients.refused
    if not 0 <= body.compression_type < len(CODEC_NAMES):
        raise refused(client, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(body.metrics) > bytes_max:
        raise refused(client, ErrorCode.TELEMETRY_TOO_LARGE)
    try:
        return bytes(decompress(body.compression_type, body.metrics, bytes_max)) if body.metrics else b""
    except UnpackedTooLarge:
        raise refused(client, ErrorCode.TELEMETRY_TOO_LARGE) from None
    except WireError:
        raise refused(client, ErrorCode.INVALID_RECORD) from None


def _read(broker: Broker, client: ReportingClient, metrics: bytes) -> Task:
    clients = broker.reporting_clients
    report = clients.new_report(client)
    try:
        for point in read_points(metrics, client.wanted.covers):
            if point is None:
                yield
            else:
                report.add(point)
    except WireError:
        return PushTelemetryResponse(error_code=clients.refused(client, ErrorCode.INVALID_RECORD).code)
    if metrics:
        clients.keep(client, report)
    return PushTelemetryResponse()
