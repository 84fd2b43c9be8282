"""The session of one simulated broker with the model of ZooKeeper, and its connection. Requests reach the server even if the process that
sent them pauses or dies; answers and watches are delivered when it runs again. A cut connection is silent at first (nothing arrives), then
the client notices. The server expires a session if nothing arrived from its client for the session timeout, whether the client knows it or
not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.ports import Clock, StoreNode, StoreResult, Watch, WatchEvent
from tests.fakes.memory_store import Lease, MemoryStore, Request, Thunk
from tests.sim.cluster_machine import ProcessTimers

SESSION_MS = 1_500
NOTICED_MS = (0, 500)
BACK_MS = (1, 300)


class ClusterStore(MemoryStore):
    """`ports.MetadataStore` of one process."""

    def __init__(self, world: Any, broker_id: int, clock: Clock, process: ProcessTimers) -> None:
        self.broker_id = broker_id
        self._world = world
        self._chance = world.chance
        self._process = process
        self.is_booting = False
        """Reads are answered at once: a process reads the cluster's id before it does anything else."""
        self._is_silent = False
        self._is_away = False
        self._cuts = 0
        self._swallowed: list[Watch] = []
        self._slow_ms = 0
        super().__init__(model=world.model, timers=world.timers, delay_ms=world.store_delay_ms, lease=Lease(clock, SESSION_MS))

    # The connection

    def cut(self, *, is_noticed: bool = True) -> None:
        """Cuts the network between this broker and ZooKeeper. The client notices some time later, or only after it is connected again."""
        if self._is_away:
            return
        self._is_away = True
        self._is_silent = self._is_connected and not self._is_over
        self._cuts += 1
        self._expire_unless_back(self._cuts)
        cuts = self._cuts
        if is_noticed:
            self._process.call_later(self._chance.randint(*NOTICED_MS), lambda: self._notice(cuts))

    def mend(self) -> None:
        """Repairs the network; the client connects again soon."""
        if not self._is_away:
            return
        self._is_away = False
        cuts = self._cuts
        self._process.call_later(self._chance.randint(*BACK_MS), lambda: self._come_back(cuts))

    def fall_silent(self) -> None:
        """Called when the process pauses or dies: the server gets no more requests from it."""
        self._cuts += 1
        self._expire_unless_back(self._cuts)

    def wake(self) -> None:
        """Called when the process runs again: it soon notices that its session has expired, or keeps its session."""
        self._cuts += 1
        cuts = self._cuts
        if self._is_away:
            self._expire_unless_back(cuts)
        elif self._is_over:
            self._renew_later()
        else:
            self._process.call_later(self._chance.randint(0, 60), lambda: self._look(cuts))

    def _look(self, cuts: int) -> None:
        is_lost = self._is_silent or not self._is_connected or self._session not in self.model.sessions
        if cuts == self._cuts and is_lost and not self._is_over:
            self._come_back(cuts)

    def _notice(self, cuts: int) -> None:
        if cuts == self._cuts and self._is_silent:
            self._lose()

    def _lose(self) -> None:
        swallowed, self._swallowed = self._swallowed, []
        self._is_silent = False
        self.disconnect(is_applied=self._chance.random() < 0.5)
        for watch in swallowed:
            self._answer(lambda watch=watch: watch(WatchEvent.LOST))  # type: ignore[misc]

    def _come_back(self, cuts: int) -> None:
        if cuts != self._cuts or self._is_away:
            return
        self._cuts += 1
        if self._is_connected and not self._is_over:
            self._lose()
        if not self._is_over:
            self.reconnect()
        self._renew_later()

    def expire_now(self) -> None:
        """Makes the server expire the session although its client is connected."""
        if not self._is_away and not self._is_over and not self._is_silent:
            self.expire()
            self._renew_later()

    def _renew_later(self) -> None:
        cuts = self._cuts
        if self._is_over:
            self._process.call_later(self._chance.randint(*BACK_MS), lambda: self._renew(cuts))

    def _renew(self, cuts: int) -> None:
        if cuts == self._cuts and not self._is_away and self._is_over:
            self.renew()

    def _expire_unless_back(self, cuts: int) -> None:
        session = self._session

        def expire() -> None:
            if cuts == self._cuts:
                self.model.end(session)

        self._world.timers.call_later(SESSION_MS + self._chance.randint(0, 200), expire)

    # Delivery of requests and answers

    def slow_down(self, ms: int) -> None:
        """Delays answers and watches by this time from now on."""
        self._slow_ms = ms

    def get(self, path: str, done: Callable[[StoreResult, StoreNode | None], object], *, watch: Watch | None = None) -> None:
        if self.is_booting:
            node = self.model.tree.get(path)
            done(StoreResult.OK if node is not None else StoreResult.NO_NODE, node)
        else:
            super().get(path, done, watch=watch)

    def lose_an_answer(self) -> None:
        """Makes the outcome of the next write unknown."""
        self.fail_next(StoreResult.UNKNOWN, **self._chance.choice(({"is_applied": True}, {}, {"is_late": True})))

    def on_watch(self, watch: Watch, event: WatchEvent) -> None:
        if self._is_silent:
            self._swallowed.append(watch)
        else:
            super().on_watch(watch, event)

    def _keep_asking(self, every_ms: float) -> None:
        if self.is_connected():
            self._send(Request(lambda: lambda: None, lambda: None, is_write=False))
        self._process.call_later(every_ms, lambda: self._keep_asking(every_ms))

    def _send(self, request: Request) -> None:
        if self._is_silent:
            request.sent_ms = self._now_ms()
            self._under_way.append(request)
        else:
            super()._send(request)

    def _execute_next(self) -> None:
        if not self._is_silent:
            super()._execute_next()

    def _arrive(self, request: Request, answer: Thunk) -> None:
        if not self._is_silent:
            super()._arrive(request, answer)

    def _answer(self, thunk: Thunk) -> None:
        self._to_client.append(thunk)
        self._process.call_later(self._delay_ms() + self._slow_ms, self._deliver_next)


