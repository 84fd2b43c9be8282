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
from functools import partial
from typing import Protocol

from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.loop.procedure import Answer, Procedure, Runner, pause
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
        self._work = Runner()
        self._moves = Runner()

    def begin(self) -> None:
        config, member = self._config, self._member
        others = [broker_id for broker_id in member.metadata.brokers if broker_id != config.this_broker_id]
        if not config.controlled_shutdown_enable or not others or not member.is_registered:
            self._done()
            return
        log.info("handing over to brokers %s", ", ".join(map(str, sorted(others))))
        self._work.start(self._hand_over())

    def _hand_over(self) -> Procedure[None]:
        config, moved, left = self._config, Answer[None](), Answer[None]()
        self._moves.start(self._move_leaders(moved))
        if not (yield from moved.wait(self._timers, config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms)):
            led = sum(1 for _ in self._led_partitions())
            log.warning("the time to hand over is up; %d partitions are still led by this broker", led)
        self._moves.cancel()
        self._member.leave(left)
        yield from left.wait(self._timers, LEAVING_MS_MAX)  # Without an answer, the end of the session removes the registration.
        self._done()

    def _move_leaders(self, moved: Answer[None]) -> Procedure[None]:
        """Repeats ControlledShutdown until other brokers lead. A controller then waits until the brokers have answered its messages about
        the new leaders (`ANNOUNCED_MS_MAX`)."""
        pause_ms, announced = RETRY_FIRST_MS, Answer[None]()
        while True:
            ask = partial(self._controller.controlled_shutdown, self._config.this_broker_id, self._member.broker_epoch())
            error, remaining = yield ask
            if error is ErrorCode.NONE and not remaining and not self._leads_with_others():
                break
            yield from pause(self._timers, pause_ms)
            pause_ms = min(2 * pause_ms, RETRY_MAX_MS)
        self._member.controller.call_when_announced(announced)
        yield from announced.wait(self._timers, ANNOUNCED_MS_MAX)
        moved()

    def _leads_with_others(self) -> bool:
        """Whether this broker leads a partition with a replica on another live broker. It leads all other partitions until it stops."""
        live = self._member.metadata.brokers
        own = self._config.this_broker_id
        return any(any(replica in live and replica != own for replica in partition.state.replicas) for partition in self._led_partitions())
