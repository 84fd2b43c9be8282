"""Limits the memory that the settings of topics, groups and subscriptions take in each broker.

A long value is usually a list, and its parts take more memory than its text. The few settings of brokers are included. Above the limit,
changes that add memory are refused; present settings are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.cluster_metadata import CONFIG_TOPIC
from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.state import RESOURCE_BYTES, ClusterState, settings_bytes

MEMORY_PARTS = 4
"""Divisor of `ottla.memory.max.bytes`: settings may take a quarter of it."""


class SettingsRoom:
    """The memory left for settings, reduced by each change of a request."""

    def __init__(self, state: ClusterState, config: BrokerConfig) -> None:
        self._state = state
        self._left = config.ottla_memory_max_bytes // MEMORY_PARTS - state.settings_bytes

    def take(self, key: tuple[int, str], configs: Mapping[str, str]) -> None:
        """Accounts for the new settings of a resource. Raises `ApiError` POLICY_VIOLATION if they exceed the limit."""
        old = self._state.configs(*key)
        more = settings_bytes(configs) - settings_bytes(old)
        if key[0] != CONFIG_TOPIC and key not in self._state.config_nodes:
            more += RESOURCE_BYTES
        if more > max(self._left, 0):
            message = "The settings of topics, groups and subscriptions would take more than a quarter of ottla.memory.max.bytes."
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)
        self._left -= more
