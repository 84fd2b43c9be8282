"""Encrypts this broker's stored passwords that are in clear text or encrypted with the old secret. Runs when the broker has read its
settings.

The broker alters them through the controller. Without a secret, a cluster member logs once what to do, and a single broker keeps them in
clear text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.base.cluster_metadata import CONFIG_BROKER, ClusterMetadata
from ottla.base.config import BrokerConfig, SettingError
from ottla.base.ports import Random, Timers
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest, ConfigResult, Controller

log = logging.getLogger("ottla.cluster")


class PasswordUpkeep:
    """Encrypts the exposed passwords of one broker."""

    def __init__(self, config: BrokerConfig, metadata: ClusterMetadata, controller: Controller, *, random: Random, timers: Timers) -> None:
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._random = random
        self._timers = timers
        self._is_under_way = False
        self._is_logged = False

    def review(self) -> None:
        """Checks the changed settings of this broker for exposed passwords."""
        exposed = self._config.passwords.exposed(self._stored())
        if not exposed or self._is_under_way:
            return
        if self._config.passwords.has_secret:
            self._is_under_way = True
            self._timers.call_soon(self._encrypt)  # Later, because the controller may be applying a change now.
        elif not self._config.is_single_broker and not self._is_logged:
            self._is_logged = True
            log.warning(
                "passwords of this broker are stored in clear: %s; set password.encoder.secret and start this broker again, which encrypts "
                "them", ", ".join(sorted(exposed)),
            )  # fmt: skip

    def _stored(self) -> Mapping[str, str]:
        return self._metadata.configs(CONFIG_BROKER, str(self._config.this_broker_id))

    def _encrypt(self) -> None:
        passwords = self._config.passwords
        try:
            entries = [
                ConfigEntry(name=name, operation=ConfigOperation.SET, value=passwords.encrypt(text, self._random))
                for name, text in passwords.exposed(self._stored()).items()
            ]
        except SettingError as error:
            self._is_under_way = False
            log.warning("stored passwords are not encrypted: %s", error)
            return
        request = ConfigRequest(resource_type=CONFIG_BROKER, name=str(self._config.this_broker_id), entries=entries)
        self._controller.alter_configs([request], False, lambda results: self._altered(entries, results))

    def _altered(self, entries: list[ConfigEntry], results: list[ConfigResult]) -> None:
        self._is_under_way = False
        names = ", ".join(sorted(entry.name for entry in entries))
        refused = [result for result in results if result.error]
        if refused:
            reason = refused[0].message or refused[0].error.name
            log.warning("stored passwords are not encrypted yet, the next start tries again: %s: %s", names, reason)
        else:
            log.info("stored passwords are now encrypted by password.encoder.secret: %s", names)
