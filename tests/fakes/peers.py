"""Peers that keep what is sent to them until the test answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.ports import Locate
from ottla.sharing.remote import OtherShareCoordinators
from ottla.transactions.remote import OtherCoordinators


class Asked(NamedTuple):
    """One request to another broker; `done(response, 0)` or `done(None, code)` answers it."""

    broker_id: int
    request: Any
    done: Callable[[Any, int], None]


class HeldPeers:
    """`ports.Peers`."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.is_closed = False

    def start(self, locate: Locate) -> None:
        pass

    def send(self, broker_id: int, request: Any, done: Callable[[Any, int], None]) -> None:
        self.asked.append(Asked(broker_id, request, done))

    def close(self) -> None:
        self.is_closed = True
        asked, self.asked = self.asked, []
        for one in asked:
            one.done(None, ErrorCode.NETWORK_EXCEPTION)


class NoLeaders:
    """`transactions.remote.Leaders` that knows no other broker."""

    def leader_of(self, topic: str, partition: int) -> int | None:
        return None


NO_OTHER_COORDINATORS = OtherCoordinators(1, NoLeaders(), HeldPeers())
NO_OTHER_SHARE_COORDINATORS = OtherShareCoordinators(1, lambda _shard: None, HeldPeers())
