"""Finds the metrics that a client shall push: the metrics of all subscriptions that match the client (KIP-714).

A subscription is a resource of the cluster's settings (`base/settings/client_metrics.py`), so every broker knows the same ones. The client
pushes as often as the matching subscription with the shortest interval says. The subscription id is computed from the wanted metrics, the
interval and the client's id. All brokers compute the same id, so a client may push to any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.cluster_metadata import CONFIG_CLIENT_METRICS, ClusterMetadata
from ottla.base.errors import ApiError
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.base.settings.client_metrics import CLIENT_METRICS_SETTINGS, ClientMetricsSettings, check_client_metrics
from ottla.base.settings.dynamic_values import parse_for_client
from ottla.wire.checksum import crc32c

log = logging.getLogger("ottla.telemetry")

ALL_METRICS = "*"
INTERVAL_MS_DEFAULT: int = ClientMetricsSettings.interval_ms.default


class Client(NamedTuple):
    """The sender of a request, under the names that `match` compares. A client without a client id matches no pattern for it."""

    client_id: str | None
    client_instance_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    """The settings of one subscription."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, NamePattern], ...]

    def matches(self, client: Client) -> bool:
        return all(_is_match(pattern, getattr(client, name)) for name, pattern in self.patterns)


class Wanted(NamedTuple):
    """The metrics that one client shall push: prefixes of names (`*` for all metrics, empty for none), and how often."""

    metrics: tuple[str, ...]
    interval_ms: int

    def covers(self, name: str) -> bool:
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)

    def subscription_id(self, instance_id: bytes) -> int:
        """Returns the CRC of the subscription and the client's id, as a signed integer."""
        text = f"{self.metrics}{self.interval_ms}".encode()
        return int.from_bytes(crc32c(instance_id, crc32c(text)).to_bytes(4, "big"), "big", signed=True)


class Subscriptions:
    """The subscriptions in the cluster's metadata. They are parsed again after a change."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._parsed_version = -1
        self._parsed: list[Subscription] = []

    @property
    def version(self) -> int:
        """The number of changes of subscriptions that this broker has learned of."""
        return self._metadata.client_metrics_version

    @property
    def are_there(self) -> bool:
        """Whether the cluster has a valid subscription."""
        return bool(self._all())

    def of(self, client: Client) -> Wanted:
        matching = [subscription for subscription in self._all() if subscription.matches(client)]
        metrics = {name for subscription in matching for name in subscription.metrics}
        interval_ms = min([INTERVAL_MS_DEFAULT, *(subscription.interval_ms for subscription in matching)])
        return Wanted((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)

    def _all(self) -> list[Subscription]:
        if self._parsed_version != self.version:
            self._parsed_version = self.version
            names = self._metadata.config_names(CONFIG_CLIENT_METRICS)
            parsed = (_parse(name, self._metadata.configs(CONFIG_CLIENT_METRICS, name)) for name in names)
            self._parsed = [subscription for subscription in parsed if subscription is not None]
        return self._parsed


def _parse(name: str, values: Mapping[str, str]) -> Subscription | None:
    """Returns None for settings that are not valid, because another program has written them into the metadata store."""
    try:
        check_client_metrics(values)
    except ApiError as error:
        log.warning('subscription "%s" to metrics of clients is ignored: %s', name, error.message)
        return None
    parsed = {key: parse_for_client(CLIENT_METRICS_SETTINGS[key], text) for key, text in values.items()}
    pairs = [part.partition("=")[::2] for part in parsed.get("match", ())]
    return Subscription(
        tuple(parsed.get("metrics", ())),
        parsed.get("interval.ms", INTERVAL_MS_DEFAULT),
        tuple((part.strip(), NamePattern(pattern.strip())) for part, pattern in pairs),
    )


def _is_match(pattern: NamePattern, text: str | None) -> bool:
    try:
        return text is not None and pattern.matches(text)
    except PatternError:  # The text is not ASCII, and the pattern is too large for such texts.
        return False
