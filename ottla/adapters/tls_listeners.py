"""The TLS of all listeners: contexts made from the settings, and made anew when those change or SIGHUP asks for it.

What cannot be renewed stays as it is, with one line in the log: a listener never goes on half secured. Connections that are open keep what
they have.
"""

from __future__ import annotations

import logging
import ssl
from asyncio import AbstractEventLoop

from ottla.adapters.network import Secure, SocketChannel
from ottla.adapters.threads import LoopThreads
from ottla.adapters.tls_channel import TlsChannel
from ottla.adapters.tls_context import server_context
from ottla.base.config import BrokerConfig
from ottla.base.ports import AddressError

log = logging.getLogger("ottla.tls")


class TlsListeners:
    """See the module. Handshakes have threads of their own, so that many of them hold up no fsync."""

    def __init__(self, loop: AbstractEventLoop, config: BrokerConfig) -> None:
        self._loop = loop
        self._config = config
        self._threads = LoopThreads(loop)
        self._contexts: dict[str, ssl.SSLContext] = {}
        config.on_change(lambda names: self.renew() if any("ssl." in name for name in names) else None)

    def secure_of(self, listener: str) -> Secure:
        """Raises `AddressError` with one line."""
        self._contexts[listener] = server_context(self._config.of_listeners.tls(listener))

        def secure(channel: SocketChannel) -> TlsChannel:
            return TlsChannel(channel, self._contexts[listener], self._threads.run, self._loop.call_soon)

        return secure

    def renew(self) -> None:
        """Reads keys and certificates again, for connections that come from now on."""
        for listener in self._contexts:
            try:
                self._contexts[listener] = server_context(self._config.of_listeners.tls(listener))
            except AddressError as error:
                log.error("TLS stays as it was: %s", error)
            else:
                log.info("TLS of listener %s is renewed", listener)

    def close(self) -> None:
        self._threads.close()
