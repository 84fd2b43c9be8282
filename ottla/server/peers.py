"""Requests to other brokers: `ports.Peers` over the client's shell for event loops.

One connection a broker, opened when it is first needed and again after it has closed; answers come in the order of the requests. A broker
whose address is not known is BROKER_NOT_AVAILABLE. One that cannot be reached, or does not answer within `request.timeout.ms`, is
NETWORK_EXCEPTION: it may have done what was asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, OttlaError
from ottla.base.ports import Clock, Locate, Network, Timers
from ottla.client.addresses import Address
from ottla.client.errors import KafkaError
from ottla.wire.apis import API_VERSION_RANGES

if TYPE_CHECKING:
    from ottla.client.loop import LoopClient

log = logging.getLogger("ottla.peers")


class BrokerPeers:
    """`ports.Peers`: one connection to each other broker. `timeout_ms` is called for each request."""

    def __init__(self, network: Network, clock: Clock, timers: Timers, *, client_id: str, timeout_ms: Callable[[], int]) -> None:
        self._network = network
        self._clock = clock
        self._timers = timers
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._client: LoopClient | None = None
        self._locate: Locate = lambda _broker_id: None

    def start(self, locate: Locate) -> None:
        self._locate = locate

    def send(self, broker_id: int, request: Any, done: Callable[[Any, int], None]) -> None:
        address = self._locate(broker_id)
        if address is None:
            done(None, ErrorCode.BROKER_NOT_AVAILABLE)
            return

        def answered(response: Any, error: OttlaError | None) -> None:
            if error is None:
                done(response, ErrorCode.NONE)
            else:
                log.info("broker %d: %s", broker_id, error)
                done(None, error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION)

        key = request.API_KEY
        from ottla.client.core.versions import CEILINGS

        # The newest version of all: the ceilings of ordinary clients are not meant for brokers of one cluster.
        version = API_VERSION_RANGES[key][1] if key in CEILINGS else None
        if self._client is None:
            self._client = self._new_client()
        self._client.ask(Address(*address), request, answered, version=version, timeout_s=self._timeout_ms() / 1000)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _new_client(self) -> LoopClient:
        from ottla.client.loop import LoopClient  # on use: a broker by itself asks no other

        return LoopClient(self._network, self._timers, self._clock, client_id=self._client_id)
