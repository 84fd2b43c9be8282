"""The network between the brokers of a cluster and their clients: links can be cut in one direction or both, and processes die or pause.
Bytes that are sent over a cut link arrive after the link is repaired, unless the connection is reset before. When a process dies, its
connections are closed. When a machine loses its power, its connections stay open until the machine has started again and something is sent
to it.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.ports import REFUSED, Channel, Part, Slice
from tests.fakes.timers import ManualTimers
from tests.sim.cluster_machine import ProcessTimers
from tests.sim.network import Host, SimNetwork, Wire

CALM = (0.0005, 0.002, (200, 2_000), 0.02, (10, 80), (1, 3))
STORM = (0.01, 0.02, (200, 5_000), 0.15, (12, 200), (1, 12))
"""How likely is the loss of a connection, and how likely a late frame, and how late; how likely a slow one, how slow; the usual delay."""
CONNECT_MS = 1_000
"""After so long a connection to a machine that does not answer fails."""
PATIENCE_MS = (400, 3_000)
"""For so long a connection over a link that is cut keeps what was sent."""


class ClusterWire(Wire):
    """One end of a connection between two hosts."""

    def __init__(self, network: ClusterNetwork, own_host: str, peer_host: str, life: ProcessTimers | None) -> None:
        super().__init__(network, peer_host, life)
        self.own_host = own_host
        self._outbox: deque[Callable[[], None]] = deque()
        self._is_stuck = False

    @property
    def _cluster(self) -> ClusterNetwork:
        network = self._network
        assert isinstance(network, ClusterNetwork)
        return network

    def send(self, parts: Sequence[Part]) -> None:
        if not self.is_open:
            return
        data = b"".join(part.read_piece(0, len(part)) if isinstance(part, Slice) else bytes(part) for part in parts)
        self.bytes_sent += len(data)
        self._cluster.note_sent(data)
        if self._cluster.happens(self._cluster.weather[0]):
            self._at_arrival(self.reset)
        else:
            self._at_arrival(lambda: self.peer.arrive(data))

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            timers: Any = self._life if self._life is not None else self._cluster.timers
            timers.call_soon(self._read)

    def arrive(self, data: bytes) -> None:
        self._in_process(lambda: Wire.arrive(self, data))

    def end(self) -> None:
        is_open, self._is_closed = self.is_open, True
        if is_open and self._receiver is not None:
            receiver = self._receiver
            self._in_process(receiver.closed)

    def reset(self) -> None:
        timers = self._cluster.timers
        timers.call_soon(self.peer.end)
        timers.call_soon(self.end)

    def _in_process(self, function: Callable[[], None]) -> None:
        if isinstance(self._life, ProcessTimers):
            self._life.run(function)
        else:
            function()

    # Delivery

    def _at_arrival(self, function: Callable[[], None]) -> None:
        now_ms = self._cluster.timers.clock.monotonic_ms()
        self._last_arrival_ms = max(self._last_arrival_ms, now_ms + self._cluster.delay_ms())
        self._outbox.append(function)
        self._cluster.timers.call_later(self._last_arrival_ms - now_ms, self.deliver)

    def deliver(self) -> None:
        """Delivers the next item in order, unless the link is cut."""
        if self._is_stuck or not self._outbox:
            return
        if self._cluster.is_cut(self.own_host, self.peer_host):
            self._is_stuck = True
            self._cluster.note_stuck(self)
            return
        if isinstance(self.peer._life, ProcessTimers) and self.peer._life.is_over:
            self._outbox.clear()
            if self._cluster.is_listening(self.peer_host):
                self.end()  # the machine has started again and does not know this connection
            return
        self._outbox.popleft()()

    def unstick(self) -> None:
        """Called when the link is repaired: delivers what waits, or gives up this connection."""
        if self._is_stuck:
            self._is_stuck = False
            for _ in range(len(self._outbox)):
                self._cluster.timers.call_later(self._cluster.delay_ms(), self.deliver)

    def give_up(self) -> None:
        if self._is_stuck:
            self._is_stuck = False
            self._outbox.clear()
            self.reset()


class ClusterHost(Host):
    """`ports.Network` of one process."""

    def __init__(self, network: ClusterNetwork, name: str, life: ProcessTimers) -> None:
        super().__init__(network, name, life)
        self._cluster = network
        self._process = life

    def connect(self, host: str, port: int, connected: Callable[[Channel], None], failed: Callable[[str], None]) -> None:
        network, life = self._cluster, self._process

        def arrive() -> None:
            wire = network.join(host, self._name, life)
            if wire is not None:
                life.call_later(network.delay_ms(), lambda: connected(wire))
            elif network.is_answering(host, self._name):
                life.call_later(network.delay_ms(), lambda: failed(REFUSED))
            else:
                life.call_later(CONNECT_MS, lambda: failed("timed out"))

        network.timers.call_later(network.delay_ms(), arrive)

    def accept(self, connected: Callable[[Channel], None]) -> None:
        super().accept(lambda channel: self._process.run(lambda: connected(channel)))


class ClusterNetwork(SimNetwork):
    """All connections of a cluster."""

    def __init__(self, chance: random.Random, timers: ManualTimers) -> None:
        super().__init__(chance, timers)
        self.weather = CALM
        self.digest = 0
        self.dark: dict[str, None] = {}
        """Machines without power."""
        self._cuts: dict[tuple[str, str], None] = {}
        self._stuck: dict[ClusterWire, None] = {}
        self._wires: dict[ClusterWire, None] = {}

    def note_sent(self, data: bytes) -> None:
        """Adds sent bytes to the trace of the run."""
        self.digest = zlib.crc32(data, self.digest)

    # Links

    def cut(self, sender: str, receiver: str) -> None:
        self._cuts[sender, receiver] = None

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cuts

    def mend(self, links: Sequence[tuple[str, str]] | None = None) -> None:
        """Repairs these links, or all links."""
        for link in list(self._cuts) if links is None else links:
            self._cuts.pop(link, None)
        for wire in list(self._stuck):
            if not self.is_cut(wire.own_host, wire.peer_host):
                del self._stuck[wire]
                wire.unstick()

    def note_stuck(self, wire: ClusterWire) -> None:
        self._stuck[wire] = None
        self.timers.call_later(self._chance.randint(*PATIENCE_MS), lambda: self._give_up(wire))

    def _give_up(self, wire: ClusterWire) -> None:
        if self._stuck.pop(wire, 0) is None:
            wire.give_up()

    # Processes and machines

    def is_answering(self, host: str, peer_host: str) -> bool:
        """Whether a machine answers another one, even if only that no process listens there."""
        return host not in self.dark and not self.is_cut(host, peer_host) and not self.is_cut(peer_host, host)

    def is_listening(self, host: str) -> bool:
        found = self.listening.get(host)
        return found is not None and not found[0].is_over

    def process_died(self, life: ProcessTimers, *, is_silent: bool) -> None:
        """Closes the process's connections at their other ends, unless the whole machine has lost its power."""
        for wire in [wire for wire in self._wires if wire._life is life]:
            del self._wires[wire]
            if not is_silent:
                self.timers.call_later(self.delay_ms(), wire.peer.end)

    def join(self, host: str, peer_host: str, life: Any) -> Wire | None:
        listener: Any = self.listening.get(host)
        if listener is None or listener[0].is_over or self.is_cut(host, peer_host) or self.is_cut(peer_host, host):
            return None
        near, far = ClusterWire(self, peer_host, host, life), ClusterWire(self, host, peer_host, listener[0])
        self._link(near, far)
        self._keep(near, far)
        listener[1](far)
        return near

    def _keep(self, *wires: ClusterWire) -> None:
        if len(self._wires) > 200:
            self._wires = {wire: None for wire in self._wires if wire.is_open}
        self._wires.update(dict.fromkeys(wires))

    def delay_ms(self, slow: float | None = None) -> int:
        _, late, late_ms, likely_slow, slow_ms, usual_ms = self.weather
        return self._chance.randint(*(late_ms if self.happens(late) else slow_ms if self.happens(likely_slow) else usual_ms))


