"""Listens on the configured addresses, admits or refuses new connections, and closes idle ones.

A new connection is closed if it exceeds `max.connections` of the broker or of its listener, the limit of its address, the descriptors of
the process, or the memory for TLS. If only a limit of the broker is reached, a new connection on the brokers' listener replaces the client
connection that has been idle longest. A sweep closes idle connections.

Half of `ottla.memory.max.bytes` is for requests that are being received (`queued.max.request.bytes`, if that is less). The other half is
divided equally among the connections, for their answers and waiting requests; each gets at most `ottla.connection.memory.max.bytes`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ottla.base.config import BrokerConfig, Endpoint
from ottla.base.errors import StorageError
from ottla.base.ports import AddressError, Channel, Listener, Network, Part, SecuredChannel
from ottla.base.settings.network import per_host
from ottla.base.settings.setting import INT_MAX
from ottla.handlers.context import ConnectionInfo
from ottla.security.authentication import Authentication, Mechanisms
from ottla.security.principal import ANONYMOUS, join_principal
from ottla.server.connection import Connection, Executor
from ottla.server.connection_state import FULL
from ottla.server.memory.answer_memory import AnswerMemory, ConnectionLimits
from ottla.server.memory.receive_buffer import ReceiveBuffers

if TYPE_CHECKING:
    from ottla.security.audit import AuditLog
    from ottla.server.answer_queue import AnswerQueue
    from ottla.server.quotas.connection_gate import ConnectionGate

log = logging.getLogger("ottla.network")

QUEUED_BYTES_LEAST = 1 << 16
"""Minimum share of each connection in the memory for answers and waiting requests, in bytes."""
BACKLOG_LEAST = 128
TLS_CONNECTION_BYTES = 60_000
"""Memory of OpenSSL for a connection that has received a record without its last byte, in bytes. A silent connection takes 24 kB."""

Mapper = Callable[[str], str | None]
"""Maps the subject of a certificate to the name of a principal (`security/principal_mapping.py`)."""
MechanismsOf = Callable[[Endpoint], Mechanisms | None]
"""Returns the SASL mechanisms of a listener, or None if its clients do not authenticate by SASL."""


def no_mechanisms(_endpoint: Endpoint) -> None:
    """The `MechanismsOf` of a broker without SASL."""


class Listeners:
    """All listening addresses and all client connections of one broker."""

    def __init__(
        self, network: Network, config: BrokerConfig, executor: Executor,
        on_storage_error: Callable[[StorageError], None], on_broken_invariant: Callable[[AssertionError], None],
        *, connections_max: int = INT_MAX, mechanisms: MechanismsOf = no_mechanisms, audit: AuditLog | None = None,
    ) -> None:  # fmt: skip
        self._network = network
        self._config = config
        self._executor = executor
        self.on_storage_error = on_storage_error
        self.on_broken_invariant = on_broken_invariant
        self._connections_max = connections_max
        self._mechanisms = mechanisms
        self._audit = audit
        self._unauthenticated: dict[Connection, int] = {}
        """Connections that had not authenticated at the last tick, with the ticks since they opened."""
        self._buffers = ReceiveBuffers(request_bytes_max(config))
        self._limits = ConnectionLimits(
            frame_bytes_max=config.socket_request_max_bytes,
            in_flight_max=config.ottla_connection_requests_max,
            queued_bytes_max=config.ottla_connection_memory_max_bytes,
            unauthenticated_frame_bytes_max=min(
                config.sasl_server_max_receive_size, config.ottla_request_unauthenticated_max_bytes, config.socket_request_max_bytes
            ),
            memory=AnswerMemory(config.ottla_memory_max_bytes // 2),
        )
        self._bound: list[tuple[Endpoint, Listener]] = []
        self._endpoints: dict[str, Endpoint] = {}
        self._map_subject: dict[str, Mapper] = {}
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}
        self._buffers.unfinished.inboxes = lambda: (connection.inbox for connection in self.connections)
        self.certificate_ends: Callable[[], Mapping[str, float]] = dict
        """When the certificates of TLS listeners end, in seconds since 1970."""
        self.gate: ConnectionGate | None = None
        """None while no rate of connections is set."""
        self.on_arrival: Callable[[str, str, str], None] | None = None
        """Called for each connection: listener, the address at which it arrived, the client's host (`server/arrivals.py`)."""

    def bind(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Binds the listeners without accepting connections yet. Returns the endpoints with their ports. If one fails, releases all and
        raises `AddressError`."""
        try:
            return [self._bind(endpoint) for endpoint in endpoints]
        except AddressError:
            self.stop_accepting()
            raise

    def _bind(self, endpoint: Endpoint) -> Endpoint:
        backlog = max(self._config.socket_listen_backlog_size, BACKLOG_LEAST)
        if endpoint.is_tls:
            self._map_subject[endpoint.name] = self._subject_mapper(endpoint)
            listener = self._network.listen(endpoint.host, endpoint.port, backlog, tls=endpoint.name)
        else:
            listener = self._network.listen(endpoint.host, endpoint.port, backlog)
        bound = endpoint._replace(port=listener.port)
        self._bound.append((bound, listener))
        self._endpoints[bound.name] = bound
        return bound

    def start(self) -> None:
        for endpoint, listener in self._bound:
            listener.accept(lambda channel, name=endpoint.name: self._accepted(name, channel))  # type: ignore[misc]

    def stop_accepting(self) -> None:
        for _endpoint, listener in self._bound:
            listener.close()
        self._bound.clear()
        if self.gate is not None:
            self.gate.close()

    def pause_all(self) -> None:
        """Stops reading requests. Running requests continue. A connection that one of them blocks reads again when that request is
        executed."""
        for connection in list(self.connections):
            connection.channel.pause_reading()

    def finish(self, done: Callable[[], object]) -> None:
        """Executes no further requests. Calls `done` when the running ones are answered and the answers were written to the sockets, or
        their connections are closed."""
        busy = dict(self.connections)

        def idle(connection: Connection) -> None:
            busy.pop(connection, None)
            if not busy:
                done()

        if not busy:
            done()
        for connection in list(busy):
            connection.finish(idle)

    def close_all(self) -> None:
        for connection in list(self.connections):
            connection.channel.close()

    def sweep(self, ticks_max: int) -> None:
        """Closes connections that have been idle for more than `ticks_max` calls: the client has sent nothing and taken no answer, although
        an answer waits for it or no request is running. A connection that no longer reads because its requests wait is idle, too. Such a
        connection does not notice that its client has closed it, so the requests would wait until their timeout, up to 24 days."""
        for connection in list(self.connections):
            channel = connection.channel
            if channel.bytes_sent != connection.bytes_taken:
                connection.bytes_taken = channel.bytes_sent
                connection.idle_ticks = 0
            connection.idle_ticks += 1
            if connection.idle_ticks > ticks_max and (channel.queued_bytes > 0 or connection.is_idle() or connection.state is FULL):
                channel.close()

    def relieve(self) -> None:
        """Relieves the memory for received requests, and closes connections that do not authenticate in time. Called every tick."""
        self._buffers.relieve()
        for connection, ticks in list(self._unauthenticated.items()):
            if connection.info.is_authenticated:
                del self._unauthenticated[connection]
            elif ticks * self._config.ottla_tick_interval_ms >= self._config.ottla_authentication_timeout_ms:
                log.warning("closing %s: it did not authenticate in time", connection.info.identity, extra=connection.facts())
                connection.channel.close()
            else:
                self._unauthenticated[connection] = ticks + 1

    def on_closed(self, connection: Connection) -> None:
        """Implements `connection.ConnectionOwner`."""
        del self.connections[connection]
        self._unauthenticated.pop(connection, None)
        host = connection.info.host
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        self._per_listener[connection.info.listener] -= 1
        self._share_memory()

    def _accepted(self, listener: str, channel: Channel) -> None:
        if self.gate is not None:
            self.gate.pass_through(listener, channel)
        else:
            self.admit(listener, channel)

    def admit(self, listener: str, channel: Channel) -> None:
        """Opens a new connection, or closes it if there are too many."""
        host = channel.peer_host
        if self._is_full(listener, host):
            channel.close()
            return
        mechanisms = self._mechanisms(self._endpoints[listener])
        authentication = None if mechanisms is None else Authentication(mechanisms)
        info = ConnectionInfo(identity=f"{host}:{channel.peer_port}", host=host, listener=listener, authentication=authentication)
        connection = Connection(self._executor, self._buffers, info, self._limits, channel, self)
        if listener in self._map_subject:
            self._await_handshake(connection)
        self.connections[connection] = None
        self._per_host[host] += 1
        self._per_listener[listener] += 1
        self._share_memory()
        if not info.is_authenticated:
            self._await_authentication(connection)
        if self.on_arrival is not None:
            self.on_arrival(listener, channel.local_host(), host)
        channel.open(connection)

    def _is_full(self, listener: str, host: str) -> bool:
        """Whether a limit of connections is reached. May close a client's connection for one on the brokers' listener."""
        of_listener = self._config.of_listeners.limit(listener, "max.connections")
        if of_listener is not None and self._per_listener[listener] >= of_listener:
            return True
        if self._per_host.get(host, 0) >= self._host_max(host):
            return True
        connections_max = min(self._config.max_connections, self._connections_max)
        is_full = len(self.connections) >= connections_max or not self._has_memory_for_tls(listener)
        return is_full and not self._make_room_for_broker(listener)

    def _has_memory_for_tls(self, listener: str) -> bool:
        """Whether another TLS connection is allowed. The memory of OpenSSL is not accounted (`memory/answer_memory.py`), so the number of
        connections bounds it."""
        if listener not in self._map_subject:
            return True
        of_tls = sum(self._per_listener[name] for name in self._map_subject)
        return of_tls < self._config.ottla_memory_max_bytes // TLS_CONNECTION_BYTES

    def _make_room_for_broker(self, listener: str) -> bool:
        """Closes the client connection that has been idle longest, if `listener` is for brokers. Returns whether one was closed. Clients
        must not prevent connections between brokers."""
        if listener != self._config.inter_broker_listener:
            return False
        clients = [connection for connection in self.connections if connection.info.listener != listener]
        if clients:
            max(clients, key=lambda connection: connection.idle_ticks).channel.close()
        return bool(clients)

    def _subject_mapper(self, endpoint: Endpoint) -> Mapper:
        from ottla.security.principal_mapping import MappingError, parse_rules

        try:
            return parse_rules(self._config.of_listeners.value(endpoint.name, "ssl.principal.mapping.rules"))
        except MappingError as error:
            raise AddressError(f"listener {endpoint.name}: {error}") from None

    def _await_handshake(self, connection: Connection) -> None:
        """Marks a client as not authenticated until the TLS handshake is complete. Without SASL, its certificate then gives its principal.
        """
        info, map_subject = connection.info, self._map_subject[connection.info.listener]
        info.is_authenticated = False

        def secured(certificate: bytes | None) -> None:
            if info.authentication is None:
                principal = ANONYMOUS if certificate is None else _certified(certificate, map_subject)
                if principal is None:
                    log.warning("closing %s: no principal for the subject of its certificate", info.identity, extra=connection.facts())
                    connection.channel.close()
                else:
                    info.authenticated(principal)

        channel = cast(SecuredChannel, connection.channel)
        channel.on_secured = secured
        audit = self._audit
        if audit is not None:
            channel.on_failed = lambda reason: audit.refused_authentication(info.host, info.listener, "TLS", "", reason)

    def _await_authentication(self, connection: Connection) -> None:
        """Notes a connection that has to authenticate. If there are too many, closes the oldest of them."""
        waiting, most = self._unauthenticated, self._config.ottla_connections_unauthenticated_max
        waiting[connection] = 0
        if len(waiting) > most:
            waiting = self._unauthenticated = {one: ticks for one, ticks in waiting.items() if not one.info.is_authenticated}
        if len(waiting) <= most:
            return
        late = next(iter(waiting))
        log.warning("closing %s: too many connections authenticate at a time", late.info.identity, extra=late.facts())
        late.channel.close()

    def watch_answers(self, note: Callable[[AnswerQueue, list[Part]], object] | None) -> None:
        """Calls `note` with the answers of each write to a client from now on; with None no longer."""
        self._limits.on_answers = note

    def recheck(self) -> None:
        """Closes connections whose user or delegation token no longer exists."""
        for connection in list(self.connections):
            authentication = connection.info.authentication
            if authentication is not None and authentication.is_valid is not None and not authentication.is_valid():
                text = "closing %s: %s may not log in any more"
                log.warning(text, connection.info.identity, ascii(connection.info.principal), extra=connection.facts())
                connection.channel.close()

    def _host_max(self, host: str) -> int:
        overrides = self._config.max_connections_per_ip_overrides
        return per_host(overrides).get(host, self._config.max_connections_per_ip) if overrides else self._config.max_connections_per_ip

    def _share_memory(self) -> None:
        config = self._config
        share = max(config.ottla_memory_max_bytes // 2 // max(len(self.connections), 1), QUEUED_BYTES_LEAST)
        self._limits.queued_bytes_max = min(share, config.ottla_connection_memory_max_bytes)


def _certified(certificate: bytes, map_subject: Mapper) -> str | None:
    """Returns the principal of a verified client certificate. Returns None if its subject cannot be read or no mapping rule matches it."""
    from ottla.security.distinguished_name import CertificateError, subject_of

    try:
        name = map_subject(subject_of(certificate))
    except CertificateError:
        return None
    return None if not name else join_principal("User", name)


def request_bytes_max(config: BrokerConfig) -> int:
    """Returns the memory limit of requests that are being received, in bytes."""
    half = config.ottla_memory_max_bytes // 2
    return min(half, config.queued_max_request_bytes) if config.queued_max_request_bytes > 0 else half
