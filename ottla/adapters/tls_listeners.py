"""Provides TLS for all listeners and for connections to other brokers. It makes the TLS contexts from the settings, and again after a
change or a SIGHUP.

After the start, files are read and keys are decrypted in a thread. If that fails for a listener, it keeps its old context and one line is
logged. Open connections keep their context. A change that a client requests is examined before it is stored
(`handlers/configs/tls_changes.py`): the examination makes the contexts, and the change installs them. A certificate that expires soon is
logged at the start, after each renewal and once a day.
"""

from __future__ import annotations

import logging
import ssl
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.adapters.network import Connected, ConnectFailed, Secure, SocketChannel
from ottla.adapters.threads import LoopThreads
from ottla.adapters.tls_channel import TlsChannel, TlsLoop
from ottla.adapters.tls_connecting import HANDSHAKE_SECONDS_MAX, TlsConnecting
from ottla.adapters.tls_context import broker_context, certificate_end, check_own_handshake, end_warning, server_context
from ottla.base.config import BrokerConfig
from ottla.base.ports import AddressError
from ottla.base.settings.security import TlsOptions

log = logging.getLogger("ottla.tls")


class Contexts(NamedTuple):
    """Contexts made from a listener's options."""

    options: TlsOptions
    for_clients: ssl.SSLContext
    to_brokers: ssl.SSLContext | None
    """For connections to other brokers; None if brokers do not use this listener."""
    until: datetime
    """End of validity of the certificate."""


LOOK_SECONDS = 24 * 60 * 60


class TlsListeners:
    """See the module. Handshakes have their own threads, so that many handshakes do not delay an fsync."""

    def __init__(self, loop: AbstractEventLoop, config: BrokerConfig) -> None:
        self._loop = loop
        self._config = config
        self._threads = LoopThreads(loop)
        self._shared = TlsLoop(self._threads.run, loop.call_soon)
        self._contexts: dict[str, Contexts] = {}
        self._kept: Mapping[str, Contexts] = {}
        self._renewals = 0
        self._look: TimerHandle | None = None
        self._between_brokers = "" if config.is_single_broker else config.inter_broker_listener
        config.on_change(lambda names: self.renew() if any("ssl." in name for name in names) else None)

    def secure_of(self, listener: str) -> Secure:
        """Makes the contexts of a listener; returns the function that wraps its channels in TLS. Raises `AddressError` with one line."""
        self._contexts[listener] = self._make(listener, self._config.of_listeners.tls(listener))
        self._warn(listener)
        if self._look is None:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_at_ends)

        def secure(channel: SocketChannel) -> TlsChannel:
            return TlsChannel(channel, self._contexts[listener].for_clients, self._shared)

        return secure

    def connect(self, plain: SocketChannel, host: str, connected: Connected, failed: ConnectFailed) -> None:
        """Does a handshake with another broker, then calls `connected` or `failed`."""
        context = self._contexts[self._between_brokers].to_brokers
        assert context is not None, "the listener for brokers was bound"
        channel = TlsChannel(plain, context, self._shared, to_host=host)
        connecting = TlsConnecting(channel, connected, failed)
        timer = self._loop.call_later(HANDSHAKE_SECONDS_MAX, connecting.give_up)
        connecting.begin(timer.cancel)

    def _make(self, listener: str, options: TlsOptions) -> Contexts:
        to_brokers = broker_context(options) if listener == self._between_brokers else None
        return Contexts(options, server_context(options), to_brokers, certificate_end(options))

    # Changes

    def examine(self, wanted: Mapping[str, TlsOptions]) -> tuple[str | None, Mapping[str, Contexts]]:
        """Returns (None, the contexts) if the listeners can use these options, else (the reason, nothing). Called in a thread. Other
        brokers must be able to connect too: this broker must trust the authority of its own certificate."""
        made = {}
        try:
            for listener, options in wanted.items():
                contexts = made[listener] = self._make(listener, options)
                if contexts.to_brokers is not None:
                    check_own_handshake(options.listener, contexts.for_clients, contexts.to_brokers)
        except AddressError as error:
            return str(error), {}
        return None, made

    def has(self, wanted: Mapping[str, TlsOptions]) -> bool:
        return all(self._config.of_listeners.tls(listener) == options for listener, options in wanted.items())

    def keep(self, examined: Mapping[str, Contexts]) -> None:
        """Keeps contexts of `examine`, so that the next `renew` with the same options does not read the files again."""
        self._kept = examined

    def renew(self) -> None:
        """Reads keys and certificates again, for later connections."""
        self._renewals += 1
        renewal = self._renewals
        wanted = {listener: self._config.of_listeners.tls(listener) for listener in self._contexts}
        made: dict[str, Contexts | str] = {name: kept for name, kept in self._kept.items() if wanted.get(name) == kept.options}
        self._install(made)
        rest = {listener: options for listener, options in wanted.items() if listener not in made}
        if rest:
            self._threads.run(lambda: self._made_again(rest), lambda found: self._install(found) if renewal == self._renewals else None)

    def _made_again(self, wanted: Mapping[str, TlsOptions]) -> dict[str, Contexts | str]:
        """Returns by listener the new contexts, or why they could not be made. Called in a thread."""
        made: dict[str, Contexts | str] = {}
        for listener, options in wanted.items():
            try:
                made[listener] = self._make(listener, options)
            except AddressError as error:
                made[listener] = str(error)
        return made

    def _install(self, made: Mapping[str, Contexts | str]) -> None:
        for listener, contexts in made.items():
            if isinstance(contexts, str):
                log.error("TLS stays as it was: %s", contexts)
            else:
                self._contexts[listener] = contexts
                log.info("TLS of listener %s is renewed", listener)
                self._warn(listener)

    # Certificates that end

    def ends(self) -> dict[str, float]:
        """Returns by listener when its certificate expires, in seconds since 1970."""
        return {listener: contexts.until.timestamp() for listener, contexts in self._contexts.items()}

    def _look_at_ends(self) -> None:
        for listener in self._contexts:
            self._warn(listener)
        self._look = self._loop.call_later(LOOK_SECONDS, self._look_at_ends)

    def _warn(self, listener: str) -> None:
        warning = end_warning(self._contexts[listener].until, datetime.now(UTC))
        if warning:
            log.warning("listener %s: %s", listener, warning)

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        self._threads.close()
