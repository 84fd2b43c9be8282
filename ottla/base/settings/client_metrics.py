"""Settings of a subscription to the metrics of clients (KIP-714): the metrics, the interval, and the clients.

Subscriptions are stored, described and listed as any other settings. `telemetry/subscriptions.py` finds the subscriptions of a client.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.base.settings.dynamic_values import parse_for_client
from ottla.base.settings.setting import Scope, Setting, Type, settings_of

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
PARTS_OF_CLIENTS = frozenset((
    "client_id", "client_instance_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port",
))  # fmt: skip


class ClientMetricsSettings:
    """One subscription."""

    interval_ms = Setting("interval.ms", Type.INT, 300_000, "How often clients send their metrics.", scope=Scope.CLIENT_METRICS)
    match = Setting(
        "match", Type.LIST, (), "Clients of the subscription, as client_id=PATTERN and so on; empty: all.", scope=Scope.CLIENT_METRICS
    )
    metrics = Setting("metrics", Type.LIST, (), "Prefixes of the names of the wanted metrics; *: all.", scope=Scope.CLIENT_METRICS)


CLIENT_METRICS_SETTINGS = {setting.name: setting for setting in settings_of(ClientMetricsSettings)}


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Raises `ApiError` with Kafka's codes: INVALID_REQUEST for an unknown name or an interval out of bounds, INVALID_CONFIG for any other
    invalid value."""
    for name, text in values.items():
        setting = CLIENT_METRICS_SETTINGS.get(name)
        if setting is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        value = parse_for_client(setting, text)
        if setting.type is Type.LIST:
            _check_list(name, text)
        elif not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            bounds = f"interval must be between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid value {text} for {name}, {bounds}")


def _check_list(name: str, text: str) -> None:
    parts = text.split(",") if text.strip() else []
    if not all(part.strip() for part in parts):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")
    if name == "match":
        for part in parts:
            _check_match(part)


def _check_match(part: str) -> None:
    name, _, pattern = part.partition("=")
    try:
        if name.strip() not in PARTS_OF_CLIENTS or not pattern.strip() or "=" in pattern:
            raise PatternError("not PART=PATTERN")
        NamePattern(pattern.strip())
    except PatternError:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part}") from None
