"""Sends requests to other brokers: `ports.Peers` over `LoopConnection`.

Requests to one broker may use several connections (lanes), so that slow requests do not delay others. A lane's connection is opened on use,
and again after it has closed. Requests of one lane are answered in order. A request to a broker without a known address fails with
BROKER_NOT_AVAILABLE. If the broker cannot be reached within `request.timeout.ms`, or does not answer within the same time after that, the
request fails with NETWORK_EXCEPTION; the broker may have executed it. A refused login fails with the broker's error code. After a broker's
address has changed, the next request closes the lane's old connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.base.errors import ErrorCode, OttlaError
from ottla.base.ports import DEFAULT_LANE, Clock, Locate, Network, Threads, Timers
from ottla.server.reachability import Reachability

if TYPE_CHECKING:
    from ottla.client.core.sasl import SaslExchange
    from ottla.security.cluster_identity import ClusterIdentity
    from ottla.server.peer_connection import LoopConnection

Answered = Callable[[Any, int], None]


class Access(Protocol):
    """TLS settings and logins for connections to other brokers."""

    @property
    def tls(self) -> str:
        """The listener with the settings for TLS; empty without TLS."""

    @property
    def logs_in(self) -> bool:
        """Whether brokers log in by SASL before they prove their identity."""

    def begin_login(self, done: Callable[[SaslExchange | None, OttlaError | None], object]) -> None:
        """Calls `done`, now or later, with the exchange of a login, or with None and the error."""

    def prepare(self) -> None:
        """Fetches a token for later logins, if they need one."""

    def share(self) -> float:
        """Returns a random share for `LoginRenewal` of one connection."""

    def close(self) -> None:
        """Stops fetching tokens."""


class ConnectionOpening(NamedTuple):
    """The first exchanges of a connection: a login if brokers log in, and the proof of the broker's identity if required."""

    login: SaslExchange | None = None
    proof: SaslExchange | None = None


class BrokerPeers:
    """`ports.Peers`. `timeout_ms` is called for each request. Without `identity`, other brokers treat this one as a client. Without
    `access`, connections have no TLS and no login. Passwords are hashed in `threads`."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        timers: Timers,
        *,
        client_id: str,
        timeout_ms: Callable[[], int],
        identity: ClusterIdentity | None = None,
        access: Access | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._timers = timers
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._identity = identity
        self._access = access
        self._threads = threads
        self._connections: dict[tuple[int, str], LoopConnection] = {}
        self._locate: Locate = lambda _broker_id: None
        self._is_closed = False
        self._reachability = Reachability(clock)
        self._on_hang_up: Callable[[int], object] = lambda _broker_id: None

    def start(self, locate: Locate) -> None:
        self._locate = locate
        if self._access is not None:
            self._timers.call_soon(self._access.prepare)

    def send(self, broker_id: int, request: Any, done: Answered, *, lane: str = DEFAULT_LANE) -> None:
        address = self._locate(broker_id)
        if address is None:
            done(None, ErrorCode.BROKER_NOT_AVAILABLE)
            return
        connection = self._connections.get((broker_id, lane))
        if connection is not None and not connection.is_closed and connection.address == address:
            self._ask(connection, broker_id, request, done)
        elif self._identity is None:
            self._open((broker_id, lane), address, request, done, ConnectionOpening())
        else:

            def begin(proof: SaslExchange | None) -> None:
                if proof is None:
                    done(None, ErrorCode.NETWORK_EXCEPTION)
                else:
                    self._log_in((broker_id, lane), address, request, done, proof)

            self._identity.connecting(broker_id, begin)

    def _log_in(self, key: tuple[int, str], address: tuple[str, int], request: Any, done: Answered, proof: SaslExchange) -> None:
        """Begins a login if brokers log in, and continues with its exchange."""
        if self._access is None or not self._access.logs_in:
            self._open(key, address, request, done, ConnectionOpening(None, proof))
            return

        def begun(login: SaslExchange | None, error: OttlaError | None) -> None:
            if error is None:
                self._open(key, address, request, done, ConnectionOpening(login, proof))
            else:
                self._refuse(key[0], error, done)

        self._access.begin_login(begun)

    def _open(self, key: tuple[int, str], address: tuple[str, int], request: Any, done: Answered, opening: ConnectionOpening) -> None:
        """Opens a connection unless there is one, and sends the request over it."""
        if self._is_closed:
            done(None, ErrorCode.NETWORK_EXCEPTION)
            return
        known = self._connections.get(key)
        if known is not None and not known.is_closed and known.address == address:
            self._ask(known, key[0], request, done)
            return
        from ottla.client.addresses import Address
        from ottla.server.peer_connection import LoopConnection  # imported on use: not needed by a single broker

        access = self._access
        connection = self._connections[key] = LoopConnection(
            Address(*address), self._network, self._timers, self._clock, client_id=self._client_id,
            sasl=opening.login, proof=opening.proof, tls="" if access is None else access.tls,
            begin_login=None if access is None or opening.login is None else access.begin_login,
            share=0.0 if access is None else access.share(), threads=self._threads,
        )  # fmt: skip
        connection.on_hang_up = lambda: self._on_hang_up(key[0])
        if known is not None:
            known.close()  # Waiting requests fail, and their callers may send again.
        self._ask(connection, key[0], request, done)

    def _ask(self, connection: LoopConnection, broker_id: int, request: Any, done: Answered) -> None:
        timeout_s = self._timeout_ms() / 1000

        def answered(response: Any, error: OttlaError | None) -> None:
            if error is None:
                self._reachability.answered(broker_id)
                done(response, ErrorCode.NONE)
            else:
                self._refuse(broker_id, error, done)

        def ask(_connection: object, error: OttlaError | None) -> None:
            if error is None:
                connection.request(request, answered, version=connection.newest_of(request.API_KEY), timeout_s=timeout_s)
            else:
                answered(None, error)

        if connection.is_open:
            ask(connection, None)
        else:
            connection.open(ask, timeout_s)

    def call_at_hang_up(self, function: Callable[[int], object]) -> None:
        self._on_hang_up = function

    def close(self) -> None:
        self._is_closed = True
        if self._access is not None:
            self._access.close()
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def _refuse(self, broker_id: int, error: OttlaError, done: Answered) -> None:
        from ottla.client.errors import KafkaError

        self._reachability.failed(broker_id, str(error))
        done(None, error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION)
