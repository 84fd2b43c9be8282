"""Keeps this broker registered in the metadata store. When the session has expired, registers the broker again under a new broker epoch.

A disconnected session may still be alive, so the broker keeps its epoch. The registration ends with an expired session, so anything that
other brokers have noted about its epoch is no longer valid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial

from ottla.base.loop.procedure import Procedure, Runner
from ottla.base.loop.store_retries import RETRY_MS_MAX, StoreRetries
from ottla.base.ports import MetadataStore, SessionEvent
from ottla.cluster.registration import Registrar, RegistrationRefused

log = logging.getLogger("ottla.cluster")

NO_EPOCH = -1
REFUSED_RETRY_MS = 1_000
"""Pause after the first refusal, in milliseconds. Each further refusal doubles it, up to `RETRY_MS_MAX`."""


class SessionState(Enum):
    NEW = "new"
    REGISTERED = "registered"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    LEFT = "left"


class BrokerSession:
    """Registers the broker in each session. Calls `on_registered` after each registration, and `on_expired(broker epoch)` when a
    registration has ended."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        retries: StoreRetries,
        registrar: Registrar,
        on_registered: Callable[[], object],
        on_expired: Callable[[int], object],
    ) -> None:
        self.state = SessionState.NEW
        self.broker_epoch = NO_EPOCH
        self.cluster_id = ""
        self._retries = retries
        self._registrar = registrar
        self._on_registered = on_registered
        self._on_expired = on_expired
        self._registering = Runner()
        store.listen(self._on_event)

    def begin(self, refused: Callable[[str], object]) -> None:
        """Registers for the first time. Calls `refused` with the reason if that is impossible."""
        self._registering.start(self._register_first(refused))

    def _register_first(self, refused: Callable[[str], object]) -> Procedure[None]:
        try:
            registered = yield from self._registrar.register()
        except RegistrationRefused as refusal:
            refused(str(refusal))
            return
        self._register_done(*registered)

    def leave(self) -> None:
        """Ends registering, because the broker stops."""
        self.state = SessionState.LEFT
        self._registering.cancel()

    def register_again(self) -> None:
        """Registers under a new epoch in the same session, because the controller has marked the registration as dead."""
        if self.state not in (SessionState.REGISTERED, SessionState.SUSPENDED):
            return
        log.warning("the controller has declared this broker dead; it registers again")
        former, self.broker_epoch = self.broker_epoch, NO_EPOCH
        self.state = SessionState.EXPIRED
        self._on_expired(former)
        self._registering.start(self._withdraw_and_register())

    def _withdraw_and_register(self) -> Procedure[None]:
        yield from self._registrar.withdraw()
        yield from self._register()

    def _register_done(self, broker_epoch: int, cluster_id: str) -> None:
        self.state = SessionState.REGISTERED
        self.broker_epoch, self.cluster_id = broker_epoch, cluster_id
        self._on_registered()

    def _on_event(self, event: SessionEvent) -> None:
        if self.state is SessionState.LEFT:
            return
        if event is SessionEvent.SUSPENDED and self.state is SessionState.REGISTERED:
            self.state = SessionState.SUSPENDED
        elif event is SessionEvent.CONNECTED and self.state is SessionState.SUSPENDED:
            self.state = SessionState.REGISTERED
        elif event is SessionEvent.EXPIRED:
            self._expire()
        elif event is SessionEvent.NEW_SESSION:
            self._registering.start(self._register())

    def _expire(self) -> None:
        former, self.broker_epoch = self.broker_epoch, NO_EPOCH
        self.state = SessionState.EXPIRED
        if former != NO_EPOCH:
            log.warning("the session with the metadata store has expired; the broker registers again")
            self._on_expired(former)

    def _register(self) -> Procedure[None]:
        """Registers. Retries after a refusal with growing pauses and one log line each, because the other broker with this id may stop.
        Until then this broker leads nothing.
        """
        pause_ms = REFUSED_RETRY_MS
        while True:
            try:
                registered = yield from self._registrar.register()
                break
            except RegistrationRefused as refusal:
                text = "%s; this broker leads nothing until it is registered, and tries again in %d s"
                log.error(text, refusal, pause_ms // 1000)
            yield partial(self._retries.again, pause_ms=pause_ms)
            pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
        self._register_done(*registered)
