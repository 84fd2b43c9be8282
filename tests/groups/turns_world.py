"""A coordinator whose long work runs one step each time that the test calls `step`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ottla.machine.host import HostState, MachineHost
from tests.scenarios.groups_world import World


class TurnsWorld(World):
    """See the module. Tests of share groups combine it with another base class."""

    def __init__(self) -> None:
        self.waiting: deque[Iterator[object]] = deque()
        super().__init__()

    def _new_host(self) -> MachineHost:
        host = super()._new_host()
        host.machine.shard.run = lambda decide: host.run(decide) if host.state is HostState.ACTIVE else None
        host.machine.shard.later = self.waiting.append
        return host

    def step(self) -> bool:
        """Runs one step of the first waiting work. Returns whether there is more to do."""
        if self.waiting and next(self.waiting[0], self) is self:
            self.waiting.popleft()
        return bool(self.waiting)

    def finish(self) -> None:
        while self.step():
            pass
