"""Stored passwords that cannot be encrypted are tried again when the settings are reviewed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.base.config import SettingError
from ottla.cluster.password_upkeep import PasswordUpkeep
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers

NAME = "listener.name.tls.ssl.key.password"


class Passwords:
    """One password that is stored in clear, and an encoder that can fail."""

    has_secret = True
    is_failing = True

    def exposed(self, _stored: object) -> dict[str, str]:
        return {NAME: "secret"}

    def encrypt(self, text: str, _random: object) -> str:
        if self.is_failing:
            raise SettingError("no such cipher")
        return text[::-1]


def test_a_password_that_could_not_be_encrypted_is_tried_again() -> None:
    passwords, timers, altered = Passwords(), ManualTimers(), list[Any]()
    config = SimpleNamespace(passwords=passwords, this_broker_id=1, is_single_broker=True)
    metadata = SimpleNamespace(configs=lambda _kind, _name: {})
    controller = SimpleNamespace(alter_configs=lambda requests, _is_dry, _done: altered.extend(requests))
    upkeep = PasswordUpkeep(cast(Any, config), cast(Any, metadata), cast(Any, controller), random=SeededRandom(1), timers=timers)
    upkeep.review()
    timers.run_due()
    assert altered == []
    passwords.is_failing = False
    upkeep.review()
    timers.run_due()
    assert [(entry.name, entry.value) for entry in altered[0].entries] == [(NAME, "terces")]
