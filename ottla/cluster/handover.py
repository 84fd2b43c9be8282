"""The first step of a stop in a cluster: other brokers take over the leadership of this broker's partitions, and it unregisters, while its
listeners still serve.

This broker repeats ControlledShutdown until it leads no partition that has a replica on another live broker. A repeated request finds
replicas that have become in sync meanwhile, and informs a new controller. Then the broker unregisters; if it is the controller, the same
write removes `/controller`. After `controlled.shutdown.max.retries` times `controlled.shutdown.retry.backoff.ms` it unregisters in any
case, and the controller elects other leaders where it can.

Without other brokers, without a registration, or with `controlled.shutdown.enable=false`, there is no handover.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.ports import Timers
from ottla.cluster.member import ClusterMember
from ottla.replication.partition import Partition

log = logging.getLogger("ottla")

RETRY_FIRST_MS = 10
RETRY_MAX_MS = 500
ANNOUNCED_MS_MAX = 1_000
"""Maximum wait of a stopping controller for other brokers to answer its last messages, in milliseconds. The next controller repeats them.
"""

LEAVING_MS_MAX = 2_000
"""Maximum wait for the metadata store's answer to the broker's deregistration, in milliseconds."""


class HandsOver(Protocol):
    """The part of `controller.api.Controller` that is used here."""

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Callable[[ErrorCode, list[tuple[str, int]]], None]) -> None: ...


class Handover:
    """The handover of one stopping broker. Calls `done` once."""

    def __init__(
        self,
        controller: HandsOver,
        member: ClusterMember,
        led_partitions: Callable[[], Iterable[Partition]],
        *,
        config: BrokerConfig,
        timers: Timers,
        done: Callable[[], object],
    ) -> None:
        """`led_partitions` returns the partitions that this broker leads now."""
        self._controller = controller
        self._member = member
        self._led_partitions = led_partitions
        self._config = config
        self._timers = timers
        self._done = done
        self._pause_ms = RETRY_FIRST_MS
        self._is_asking = False
        self._is_over = False
        self._has_left = False

    def begin(self) -> None:
        config, member = self._config, self._member
        others = [broker_id for broker_id in member.metadata.brokers if broker_id != config.this_broker_id]
        if not config.controlled_shutdown_enable or not others or not member.is_registered:
            self._done()
            return
        log.info("handing over to brokers %s", ", ".join(map(str, sorted(others))))
        time_ms = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms
        self._deadline = self._timers.call_later(time_ms, self._give_up)
        self._ask()

    def _ask(self) -> None:
        if self._is_over:
            return
        self._is_asking = True
        self._controller.controlled_shutdown(self._config.this_broker_id, self._member.broker_epoch(), self._on_answer)

    def _on_answer(self, error: ErrorCode, remaining: list[tuple[str, int]]) -> None:
        if self._is_over or not self._is_asking:
            return
        self._is_asking = False
        if error is ErrorCode.NONE and not remaining and not self._leads_with_others():
            self._announced()
            return
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, RETRY_MAX_MS)
        self._timers.call_later(pause_ms, self._ask)

    def _leads_with_others(self) -> bool:
        """Whether this broker leads a partition with a replica on another live broker. It leads all other partitions until it stops."""
        live = self._member.metadata.brokers
        own = self._config.this_broker_id
        return any(any(replica in live and replica != own for replica in partition.state.replicas) for partition in self._led_partitions())

    def _announced(self) -> None:
        """Unregisters. A controller first waits until the brokers have answered its messages about the new leaders (`ANNOUNCED_MS_MAX`)."""
        waiting = self._timers.call_later(ANNOUNCED_MS_MAX, self._leave)

        def announced() -> None:
            waiting.cancel()
            self._leave()

        self._member.controller.call_when_announced(announced)

    def _give_up(self) -> None:
        led = sum(1 for _ in self._led_partitions())
        log.warning("the time to hand over is up; %d partitions are still led by this broker", led)
        self._leave()

    def _leave(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._deadline.cancel()
            self._waiting = self._timers.call_later(LEAVING_MS_MAX, self._left)
            self._member.leave(self._left)

    def _left(self) -> None:
        """Called when the metadata store has answered, or not in time: then the end of the session removes the registration."""
        if not self._has_left:
            self._has_left = True
            self._waiting.cancel()
            self._done()
