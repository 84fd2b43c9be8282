"""Delays requests for metadata until a controller has sent this broker the metadata.

A broker that has just started accepts connections, because the controller sends the metadata over a connection. Until then it would answer
UNKNOWN_TOPIC_OR_PARTITION for every topic, which admin clients do not retry. Apache Kafka's brokers with KRaft execute no request of a
client until they have caught up. Here only the APIs that show metadata wait (`awaits_metadata` in `handlers/served_apis.py`). The other
APIs answer with errors that make clients request metadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.base.loop.guarded import call_guarded
from ottla.base.ports import Timers
from ottla.handlers.context import Broker, Pending, RequestContext

WAIT_MS = 10_000
"""Maximum delay, in milliseconds. Then the request is executed with the known metadata: there may be no controller, and the client can ask
other brokers."""

Handle = Callable[[Broker, RequestContext, Any], Any]


class FirstMetadata:
    """Holds requests back until `arrived` is called."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_here = False

    def __len__(self) -> int:
        return len(self._waiting)

    def arrived(self) -> None:
        """Executes the delayed requests, each in a separate iteration of the event loop. Later requests are not delayed."""
        self._is_here = True
        self._next()

    def awaiting(self, handle: Handle) -> Handle:
        """Returns a handler that delays the request if necessary, and then calls `handle`."""
        if self._is_here:
            return handle

        def handle_or_wait(broker: Broker, request: RequestContext, body: Any) -> Any:
            return handle(broker, request, body) if self._is_here else self._wait(lambda: handle(broker, request, body))

        return handle_or_wait

    def _wait(self, execute: Callable[[], Any]) -> Pending:
        pending = Pending()
        later: list[Pending] = []

        def answer() -> None:
            deadline.cancel()
            call_guarded(respond, pending.fail)

        def respond() -> None:
            response = execute()
            if isinstance(response, Pending):
                later.append(response)
                response.then(pending.complete, pending.fail)
            else:
                pending.complete(response)

        def give_up() -> None:
            self._waiting.remove(answer)
            answer()

        def abandon() -> None:
            """Forgets the request, because the connection is closed."""
            if answer in self._waiting:
                self._waiting.remove(answer)
                deadline.cancel()
            for response in later:
                if response.abandon is not None:
                    response.abandon()

        deadline = self._timers.call_later(WAIT_MS, give_up)
        self._waiting.append(answer)
        pending.abandon = abandon
        return pending

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft()()
            self._timers.call_soon(self._next)
