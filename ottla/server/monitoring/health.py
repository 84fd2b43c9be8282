"""Answers the probes of the HTTP port: whether the broker is alive, has started, and is ready to serve.

Alive means that the event loop answers. It depends on nothing else, because a broker that cannot serve for a while must not be killed.
Ready means that clients should connect: the broker has opened its replicas, its session with the metadata store is alive, a log directory
is online, and no coordinator is loading. Each reason why it is not ready is one sentence. Started means that it was ready at a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Check = Callable[[], str]
"""Returns the reason why the broker is not ready, or an empty string."""


class Health:
    """The checks of one broker, by the name under which a failed one is reported."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = dict(checks)
        self._has_been_ready = False

    def reasons(self) -> dict[str, str]:
        """Returns the reasons why the broker is not ready, by the names of the checks. The result is empty if the broker is ready."""
        reasons = {name: reason for name, check in self._checks.items() if (reason := check())}
        if not reasons:
            self._has_been_ready = True
        return reasons

    def has_started(self) -> bool:
        return self._has_been_ready or not self.reasons()
