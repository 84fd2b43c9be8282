"""How brokers of the simulation ask each other (`ports.Peers`), over the same bad network as clients.

An answer that does not come in time is NETWORK_EXCEPTION, and one that comes later is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode
from ottla.base.ports import Locate
from ottla.base.types import TopicPartition
from ottla.handlers import (
    add_partitions_to_txn,
    initialize_share_group_state,
    read_share_group_state,
    write_share_group_state,
    write_txn_markers,
)
from tests.sim.network import Call

if TYPE_CHECKING:
    from tests.sim.broker import LifeTimers, SimBroker

PATIENCE_MS = 1_000
HANDLERS: dict[int, Any] = {
    24: add_partitions_to_txn,
    27: write_txn_markers,
    83: initialize_share_group_state,
    84: read_share_group_state,
    85: write_share_group_state,
}
VERSIONS = {24: 5, 27: 2, 85: 1}


class SimPeers:
    """Of one life of a broker."""

    def __init__(self, broker: SimBroker, timers: LifeTimers) -> None:
        self._broker = broker
        self._timers = timers

    def start(self, locate: Locate) -> None:
        pass

    def close(self) -> None:
        pass

    def send(self, broker_id: int, request: Any, done: Callable[[Any, int], None]) -> None:
        is_answered = False

        def finish(response: Any, code: int) -> None:
            nonlocal is_answered
            if not is_answered and not self._timers.is_over:
                is_answered = True
                done(response, code)

        world, key = self._broker.world, request.API_KEY
        call = Call(HANDLERS[key], VERSIONS.get(key, 0), lambda: request, TopicPartition("", 0))
        world.network.send(call, world.brokers[broker_id], lambda answer: finish(answer, 0), is_peer=True)
        self._timers.call_later(PATIENCE_MS, lambda: finish(None, ErrorCode.NETWORK_EXCEPTION))
