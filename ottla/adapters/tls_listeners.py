"""The TLS of all listeners, and of connections to other brokers: contexts made from the settings, and made anew when those change or
SIGHUP asks for it.

What cannot be renewed stays as it is, with one line in the log: a listener never goes on half secured. Connections that are open keep what
they have.
"""

from __future__ import annotations

import logging
import ssl
from asyncio import AbstractEventLoop

from ottla.adapters.network import Connected, Failed, Secure, SocketChannel
from ottla.adapters.threads import LoopThreads
from ottla.adapters.tls_channel import TlsChannel, TlsLoop
from ottla.adapters.tls_connecting import HANDSHAKE_SECONDS_MAX, TlsConnecting
from ottla.adapters.tls_context import broker_context, server_context
from ottla.base.config import BrokerConfig
from ottla.base.ports import AddressError

log = logging.getLogger("ottla.tls")


class TlsListeners:
    """See the module. Handshakes have threads of their own, so that many of them hold up no fsync."""

    def __init__(self, loop: AbstractEventLoop, config: BrokerConfig) -> None:
        self._loop = loop
        self._config = config
        self._threads = LoopThreads(loop)
        self._shared = TlsLoop(self._threads.run, loop.call_soon)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._between_brokers = "" if config.is_single_broker else config.inter_broker_listener
        self._to_brokers: ssl.SSLContext | None = None
        config.on_change(lambda names: self.renew() if any("ssl." in name for name in names) else None)

    def secure_of(self, listener: str) -> Secure:
        """Raises `AddressError` with one line."""
        self._make(listener)

        def secure(channel: SocketChannel) -> TlsChannel:
            return TlsChannel(channel, self._contexts[listener], self._shared)

        return secure

    def connect(self, plain: SocketChannel, host: str, connected: Connected, failed: Failed) -> None:
        """Completes a handshake with another broker, then calls one of the two."""
        assert self._to_brokers is not None, "the listener for brokers was bound"
        channel = TlsChannel(plain, self._to_brokers, self._shared, to_host=host)
        connecting = TlsConnecting(channel, connected, failed)
        timer = self._loop.call_later(HANDSHAKE_SECONDS_MAX, connecting.give_up)
        connecting.begin(timer.cancel)

    def _make(self, listener: str) -> None:
        options = self._config.of_listeners.tls(listener)
        context = server_context(options)
        if listener == self._between_brokers:
            self._to_brokers = broker_context(options)
        self._contexts[listener] = context

    def renew(self) -> None:
        """Reads keys and certificates again, for connections that come from now on."""
        for listener in self._contexts:
            try:
                self._make(listener)
            except AddressError as error:
                log.error("TLS stays as it was: %s", error)
            else:
                log.info("TLS of listener %s is renewed", listener)

    def close(self) -> None:
        self._threads.close()
