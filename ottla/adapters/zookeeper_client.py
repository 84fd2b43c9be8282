"""A client of ZooKeeper on top of kazoo that gives the guarantees of `ports.MetadataStore`: a request is sent at most once, and events are
reported in their order.

By default kazoo accepts requests without a connection and sends them on a later one. It reports answers and watches in two threads, so
their order is lost, and does not report whether a request was sent. Therefore:

- `hand_over` gives kazoo a request only while the connection that the caller names is up. A lock excludes a change of the connection's
  state meanwhile.
- The connection thread itself posts answers, watches and states, immediately and in order. Before `LinkState.DOWN` it posts the lost
  watches and then the failed requests.
- A multi notes when kazoo serializes it; a multi that fails before that was not sent.
- Bytes that are not ZooKeeper's protocol end the connection, but not the thread.
- If the connection thread ends before the client is stopped, the client reports that, because it would never have a session again.
- A SASL login (DIGEST-MD5) is done before the connection is reported as up. A refused login is logged once and tried again. kazoo's own
  login needs another package, and gives up when a server stops in the middle.

Kerberos and reconfiguration of the ensemble are not supported.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    KazooException,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, Connect, Transaction
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE

from ottla.base.immutable import immutable
from ottla.base.ports import WatchEvent
from ottla.security.digest_md5 import DigestLogin

log = logging.getLogger("ottla.zookeeper")

RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 0.5
ANSWER_SECONDS_MIN = 1.0
"""Initial timeout for the answer when a connection is opened, doubled after each failure. A server that is starting may accept a connection
and never answer on it; the client must try another server before the session expires."""

LOGIN_STEPS_MAX = 2
LOGIN_REFUSALS = (-115, -124)
"""Error codes of ZooKeeper for a refused login: AUTHFAILED and SESSIONCLOSEDREQUIRESASLAUTH."""

KAZOO_LOGGER = "ottla.zookeeper.kazoo"

EVENTS = {
    EventType.CREATED: WatchEvent.CREATED,
    EventType.CHANGED: WatchEvent.CHANGED,
    EventType.DELETED: WatchEvent.DELETED,
    EventType.CHILD: WatchEvent.CHILDREN,
    EventType.NONE: WatchEvent.LOST,
}

NOT_ANSWERED = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, AuthFailedError)
"""Errors that end a request without a usable answer: kazoo's own, and a server's for a session that it no longer has."""

GARBAGE = (RuntimeError, ValueError, TypeError, IndexError, MemoryError, struct.error, KazooException)
"""Exceptions of kazoo for bytes that are not ZooKeeper's protocol."""


class LinkState(Enum):
    """Changes of the connection."""

    UP = "up"
    DOWN = "down"
    EXPIRED = "expired"


@immutable(kw_only=True)
class ZooKeeperLink:
    """An open connection: its number among the connections of this client, its session, and the session timeout that the server granted."""

    number: int
    session_id: int
    timeout_ms: int
    asked_ms: int
    """When the connection was requested, by the monotonic clock."""


@immutable(kw_only=True)
class TlsFiles:
    """PEM files for the connection to ZooKeeper."""

    certificate: str | None = None
    password: str | None = None
    authorities: str | None = None
    is_host_checked: bool = True


OnLink = Callable[[LinkState, ZooKeeperLink | None], object]


class KazooAnswer:
    """Receives kazoo's answer to a request; `settle(value, error)` is called once, in the connection thread."""

    __slots__ = ("_settle",)

    def __init__(self, settle: Callable[[Any, BaseException | None], object]) -> None:
        self._settle: Callable[[Any, BaseException | None], object] | None = settle

    def set(self, value: Any = None) -> None:
        self._end(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._end(None, error)

    def _end(self, value: Any, error: BaseException | None) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(value, error)


class Multi(Transaction):
    """A transaction that records whether it was serialized for sending."""

    is_sent = False

    def serialize(self) -> Any:
        self.is_sent = True
        return super().serialize()


class _Handler(SequentialThreadingHandler):
    """kazoo's handler without worker threads: callbacks run immediately in the connection thread, where they only post."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float = ANSWER_SECONDS_MIN, **_: Any
    ) -> socket.socket:
        """Connects with a short timeout, so that an unreachable host does not use up the session timeout."""
        plain = socket.create_connection(address, min(timeout, ANSWER_SECONDS_MIN))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return plain
        try:
            return self._tls.wrap_socket(plain, server_hostname=hostname)
        except OSError:
            plain.close()
            raise


class _Connection(ConnectionHandler):
    """Records the granted session timeout, does the SASL login, and survives bytes that are not ZooKeeper's protocol."""

    granted_ms = 0
    asked_ms = 0
    patience_seconds = ANSWER_SECONDS_MIN

    def zk_loop(self) -> None:
        """Serves the connection until the client is stopped; reports any other end of the thread."""
        try:
            super().zk_loop()
        finally:
            if not self.client._stopped.is_set():
                self.client.on_thread_end(sys.exc_info()[1])

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        self.asked_ms = self.client.now_ms()
        patience_seconds, self.patience_seconds = self.patience_seconds, self.patience_seconds * 2
        answer = super()._invoke(min(timeout, patience_seconds), request, xid)
        self.patience_seconds = ANSWER_SECONDS_MIN
        self.granted_ms = answer[0].time_out
        if self.client.login is not None and self.granted_ms > 0:
            user, password = self.client.login
            self._log_in(user, password, timeout)
        return answer

    def _log_in(self, user: str, password: str, timeout: float) -> None:
        """Logs in by SASL. Raises `ConnectionDropped` on failure; the next connection tries again."""
        login = DigestLogin(user, password, os.urandom(18).hex())
        token = b""
        for number in range(1, LOGIN_STEPS_MAX + 1):
            try:
                token = login.answer(self._sasl(token, number, timeout))
            except ValueError as error:
                self.client.note_refusal(f"ZooKeeper's login as {user} failed: {error}")
                raise ConnectionDropped("the login failed") from None
            if login.is_complete:
                self.client.note_refusal("")
                return
        raise AssertionError("the last step completes or raises")

    def _sasl(self, token: bytes, number: int, timeout: float) -> bytes:
        self._submit(SASL(token), timeout, number)
        header, data, offset = self._read_header(timeout)
        if header.err:
            raise ValueError("name or password is wrong" if header.err in LOGIN_REFUSALS else f"error {header.err}")
        challenge: bytes | None = SASL.deserialize(data, offset)[0]
        if challenge is None:
            raise ValueError("it has no SASL")
        return challenge

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: Any) -> Any:
        try:
            return super()._connect_attempt(host, hostip, port, retry)
        except GARBAGE as error:
            log.error("%s:%d does not answer as ZooKeeper does: %s", host, port, error)
            self.client._session_callback(KeeperState.CONNECTING)
            return None


class ZooKeeperClient(KazooClient):
    """A client that opens a new session after an expired one. `on_link` is called in the connection thread."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        digest: str | None,
        login: tuple[str, str] | None,
        tls: ssl.SSLContext | None,
        now_ms: Callable[[], int],
        on_link: OnLink,
        on_thread_end: Callable[[BaseException | None], object] = lambda error: None,
        on_refusal: Callable[[], object] = lambda: None,
    ) -> None:
        """`login` is user and password for SASL; `on_refusal` is called when a login fails for a new reason. `on_thread_end` is
        called in the connection thread when this thread ends by itself, with its exception or None."""
        self.lock = threading.RLock()
        self.login = login
        self.refusal = ""
        """The reason why the last login failed; empty if it succeeded."""
        self.now_ms = now_ms
        self.on_thread_end = on_thread_end
        self._on_link = on_link
        self._on_refusal = on_refusal
        self._links = 0
        self._is_up = False
        logger = logging.getLogger(KAZOO_LOGGER)
        logger.setLevel(logging.CRITICAL)  # the store logs what matters once; kazoo would log every attempt
        super().__init__(
            hosts,
            timeout=session_timeout_ms / 1000,
            handler=_Handler(tls),
            auth_data=[("digest", digest)] if digest else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RETRY_SECONDS, backoff=2, max_delay=RETRY_SECONDS_MAX,
                sleep_func=SequentialThreadingHandler.sleep_func,
            ),
            logger=logger,
        )  # fmt: skip
        self._connection = _Connection(self, self._conn_retry.copy(), logger=logger)
        self.add_listener(self._on_state)

    def note_refusal(self, reason: str) -> None:
        """Records the result of a login (empty: success). A new failure is logged and reported to `on_refusal`."""
        if reason == self.refusal:
            return
        self.refusal = reason
        if reason:
            log.error("%s", reason)
            self._on_refusal()

    def hand_over(self, request: Any, answer: KazooAnswer, link: int) -> bool:
        """Gives the request to the connection with this number. Returns False without effect if that connection is no longer up."""
        with self.lock:
            if not self._is_up or link != self._links:
                return False
            self._call(request, answer)
            return True

    def end(self, seconds_max: float) -> None:
        """Ends the session in a thread, and waits at most `seconds_max` for it, because the server may be unreachable."""
        thread = threading.Thread(target=self._end, name="ottla-zookeeper-end", daemon=True)
        thread.start()
        thread.join(seconds_max)

    def _end(self) -> None:
        try:
            self.stop()
            self.close()
        except (KazooException, OSError) as error:
            log.info("the session with ZooKeeper was left to expire: %s", error)

    def _session_callback(self, state: Any) -> None:
        with self.lock:
            if state not in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
                self._is_up = False
                self._reset_watchers()
            super()._session_callback(state)

    def _on_state(self, state: Any) -> None:
        if state == KazooState.CONNECTED:
            self._links += 1
            self._is_up = True
            connection = self._connection
            link = ZooKeeperLink(
                number=self._links, session_id=self._session_id, timeout_ms=connection.granted_ms, asked_ms=connection.asked_ms
            )  # fmt: skip
            self._on_link(LinkState.UP, link)
        elif state == KazooState.SUSPENDED:
            self._on_link(LinkState.DOWN, None)
        else:
            self._on_link(LinkState.EXPIRED, None)


def creator_acl(path: str, sensitive_paths: Sequence[str]) -> list[ACL]:
    """Returns the ACL of a node: its creator may do everything; others may read it unless it is below a sensitive path."""
    is_sensitive = any(f"{path}/".startswith(f"{root}/") for root in sensitive_paths)
    return [*CREATOR_ALL_ACL] if is_sensitive else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Returns the context for connections to ZooKeeper. Raises `OSError` for files that cannot be read or are not PEM."""
    context = ssl.create_default_context(cafile=files.authorities)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = files.is_host_checked
    if files.certificate is not None:
        context.load_cert_chain(files.certificate, password=files.password or "")
    return context
