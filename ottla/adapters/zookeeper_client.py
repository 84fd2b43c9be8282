"""kazoo, held to what the port promises: one request is one attempt, and all that comes back is posted in the order in which it came.

kazoo's connection thread does the talking. Left to itself it would accept requests while there is no connection and send them on a later
one, pass answers and watches to two threads that overtake each other, and keep to itself whether a request was sent. So:

- `hand_over` gives kazoo a request only while the connection is up that the caller knows, under the lock that its changes of state take.
- Answers, watches and states are posted by the connection thread itself, at once and in order: before `DOWN` the watches that are lost,
  then the requests that are.
- A write notes when its bytes are made for the socket: what fails before was not sent.
- Bytes that no ZooKeeper would send end the connection, not the thread.
- A thread that ends before the client is stopped is reported: without it there would never be a session again.
- A login by SASL (DIGEST-MD5) is done before the connection counts as up. One that is refused is logged once and tried again: kazoo would
  need another package for it, and would give up for good when a server stops in the middle.

Left out: Kerberos, reconfiguration of the ensemble.
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
"""How long a server is waited for, at first, when a connection is opened; doubled each time in vain. One that is starting may take a
connection and never answer on it, and must not cost the session.
"""

LOGIN_STEPS_MAX = 2
LOGIN_REFUSALS = (-115, -124)
"""AUTHFAILED, and SESSIONCLOSEDREQUIRESASLAUTH."""

KAZOO_LOGGER = "ottla.zookeeper.kazoo"

EVENTS = {
    EventType.CREATED: WatchEvent.CREATED,
    EventType.CHANGED: WatchEvent.CHANGED,
    EventType.DELETED: WatchEvent.DELETED,
    EventType.CHILD: WatchEvent.CHILDREN,
    EventType.NONE: WatchEvent.LOST,
}

NOT_ANSWERED = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, AuthFailedError)
"""What ends a request without an answer that counts: kazoo's own, and what a server says of a session that it no longer has."""

GARBAGE = (RuntimeError, ValueError, TypeError, IndexError, MemoryError, struct.error, KazooException)
"""What kazoo raises for bytes that no ZooKeeper would send."""


class LinkState(Enum):
    """What happened to the connection."""

    UP = "up"
    DOWN = "down"
    EXPIRED = "expired"


@immutable(kw_only=True)
class Link:
    """A connection that is up: its number among the connections of this client, its session, and what the server granted."""

    number: int
    session_id: int
    timeout_ms: int
    asked_ms: int
    """When the connection was asked for, by the monotonic clock."""


@immutable(kw_only=True)
class TlsFiles:
    """PEM files for the connection to ZooKeeper."""

    certificate: str | None = None
    password: str | None = None
    authorities: str | None = None
    is_host_checked: bool = True


OnLink = Callable[[LinkState, Link | None], object]


class Answer:
    """Where kazoo puts the answer to a request; `settle(value, error)` is called once, in the connection thread."""

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
    """A transaction that notes whether it was sent."""

    is_sent = False

    def serialize(self) -> Any:
        self.is_sent = True
        return super().serialize()


class _Handler(SequentialThreadingHandler):
    """No worker threads: callbacks run at once in the connection thread, where they only post."""

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
        """Connects within a short time: a host that is gone leaves time for the others."""
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
    """Notes what the server grants, and survives bytes that make no sense."""

    granted_ms = 0
    asked_ms = 0
    patience_seconds = ANSWER_SECONDS_MIN

    def zk_loop(self) -> None:
        """Talks to the servers until the client is stopped; reports any other end of this thread."""
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
        """Logs in by SASL. Raises `ConnectionDropped` where that fails; it is tried again on the next connection."""
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
    """One session after the other with the servers at `hosts`; `on_link` is called in the connection thread."""

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
        """`login`: user and password for SASL; `on_refusal` is called when it is refused. `on_thread_end` is called in the connection
        thread when that ends by itself, with the exception if there was one.
        """
        self.lock = threading.RLock()
        self.login = login
        self.refusal = ""
        """Why the last login failed, empty if it did not."""
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
        """How a login has ended; logged when that is news."""
        if reason == self.refusal:
            return
        self.refusal = reason
        if reason:
            log.error("%s", reason)
            self._on_refusal()

    def hand_over(self, request: Any, answer: Answer, link: int) -> bool:
        """Gives the request to the connection with this number; False, and nothing is done, if it is no longer up."""
        with self.lock:
            if not self._is_up or link != self._links:
                return False
            self._call(request, answer)
            return True

    def end(self, seconds_max: float) -> None:
        """Ends the session. In a thread, for no longer than this: a server that is away would be waited for."""
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
            link = Link(
                number=self._links, session_id=self._session_id, timeout_ms=connection.granted_ms, asked_ms=connection.asked_ms
            )  # fmt: skip
            self._on_link(LinkState.UP, link)
        elif state == KazooState.SUSPENDED:
            self._on_link(LinkState.DOWN, None)
        else:
            self._on_link(LinkState.EXPIRED, None)


def creator_acl(path: str, sensitive_paths: Sequence[str]) -> list[ACL]:
    """Who may do what with a node: who makes it, everything; others, read what is not below a sensitive path."""
    is_sensitive = any(f"{path}/".startswith(f"{root}/") for root in sensitive_paths)
    return [*CREATOR_ALL_ACL] if is_sensitive else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Raises `OSError` for files that cannot be read or are not PEM."""
    context = ssl.create_default_context(cafile=files.authorities)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = files.is_host_checked
    if files.certificate is not None:
        context.load_cert_chain(files.certificate, password=files.password or "")
    return context
