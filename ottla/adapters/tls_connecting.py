"""Does the TLS handshake of a connection to another broker: it succeeds, fails, or is ended because it takes too long."""

from __future__ import annotations

from collections.abc import Callable

from ottla.adapters.network import Connected, ConnectFailed
from ottla.adapters.tls_channel import TlsChannel

HANDSHAKE_SECONDS_MAX = 10.0


class TlsConnecting:
    """Receives the events of the channel during the handshake. Calls once either `connected` with the channel, or `failed` with the reason.
    """

    def __init__(self, channel: TlsChannel, connected: Connected, failed: ConnectFailed) -> None:
        self._channel = channel
        self._connected = connected
        self._failed = failed
        self._is_over = False

    def begin(self, over: Callable[[], object]) -> None:
        """Starts the handshake. `over` is called when it ends, before `connected` or `failed`."""
        self._over = over
        self._channel.on_secured = lambda _certificate: self._secured()
        self._channel.on_failed = self._refused
        self._channel.open(self)
        self._channel.begin()

    def give_up(self) -> None:
        """Fails the attempt because the handshake took too long."""
        self._refused("no TLS handshake in time")
        self._channel.close()

    def _secured(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._over()
            self._connected(self._channel)

    def _refused(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._over()
            self._failed(f"no TLS: {reason}")

    # `ports.Receiver` during the handshake

    def buffer(self) -> memoryview:
        raise AssertionError("nothing is received before the handshake is complete")

    def received(self, count: int) -> None:
        raise AssertionError(f"{count} bytes before the handshake is complete")

    def drained(self) -> None:
        """Does nothing: only messages of the handshake were queued."""

    def closed(self) -> None:
        self._refused("the other side closed the connection")
