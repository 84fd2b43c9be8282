"""The memory that the settings of topics, groups and subscriptions take in each broker, and its bound.

A long value is mostly a list, whose parts take more than its text does. Values of brokers are few and count as well. A change is refused if
it adds something beyond the bound; the present settings are never touched.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.cluster_metadata import CONFIG_TOPIC
from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.state import RESOURCE_BYTES, ClusterState, settings_bytes

MEMORY_PARTS = 4
"""Of `ottla.memory.max.bytes`."""


class SettingsRoom:
    """The room there is, less what was taken by the changes before it in a request."""

    def __init__(self, state: ClusterState, config: BrokerConfig) -> None:
        self._state = state
        self._left = config.ottla_memory_max_bytes // MEMORY_PARTS - state.settings_bytes

    def take(self, key: tuple[int, str], configs: Mapping[str, str]) -> None:
        """A resource is to have these settings. Raises `ApiError`."""
        old = self._state.configs(*key)
        more = settings_bytes(configs) - settings_bytes(old)
        if key[0] != CONFIG_TOPIC and key not in self._state.config_nodes:
            more += RESOURCE_BYTES
        if more > max(self._left, 0):
            message = "The settings of topics, groups and subscriptions would take more than a quarter of ottla.memory.max.bytes."
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)
        self._left -= more
