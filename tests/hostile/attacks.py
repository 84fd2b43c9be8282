"""Attacks of one client on all others: what they send, and what an honest client beside them notices.

An `Attack` prepares the broker (topics, groups), makes its bytes beforehand and then sends them. `measure` runs it beside an honest client,
which does small things on a connection of its own all the time (it writes a record, reads it, commits its offset, asks for metadata), and
returns an `Outcome`: the longest time that the honest client waited, its 99th percentile, and the greatest memory that the broker and its
worker processes had (the kernel's own high-water mark, reset before). `broken_bounds` says which bounds of memory that breaks.

How to add one: a function that takes a `Target`, under `@attack("name")`, in a module `attacks_<subject>.py` of this folder, and its
subject in `SUBJECTS`. What it does before `target.begin()` is preparation and is not measured. The numbers that make it large go through
`target.part`, so that tests can send a small part of what the benchmark sends. The bytes are the same for any broker that speaks the
protocol, so each can be run on Apache Kafka as well; where that makes no sense `not_on_kafka` says why. Tests and the benchmark assert
the bounds of memory; times are figures of a table (`python -m tools.bench.attacks`), never assertions, because the machine may do other
work.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ottla.wire.framing import load
from ottla.wire.schema import Request
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient
from tests.hostile.honest import Honest

SUBJECTS = ("input", "requests", "growth", "floods", "groups", "transactions", "records", "logins", "wire", "staging", "telemetry")
ANSWER_SECONDS_MAX = 120
SAMPLE_SECONDS = 0.05
MIB = 1 << 20
ALLOWANCE_BYTES = 100 * MIB
"""What a broker may have more than `ottla.memory.max.bytes` while it is attacked, itself and all that was prepared included."""
WORKERS_BYTES_MAX = 256 * MIB
"""Of its worker processes together, whatever they are given. One looks into records, one compacts: each an interpreter with a codec, a
batch of `ottla.batch.decompressed.max.bytes` and what is made of it, and the keys of `log.cleaner.dedupe.buffer.size`."""
OTHER_PORT = "{port}"
"""In a setting: a free port, `Target.other_port`."""


@dataclass
class Outcome:
    """What an attack did to the others. Times in ms, memory in bytes."""

    waits_ms: list[float] = field(default_factory=list)
    attack_ms: float = 0.0
    rss_before_bytes: int = 0
    rss_peak_bytes: int = 0
    workers_peak_bytes: int = 0
    """Of the broker's worker processes together."""

    @property
    def growth_bytes(self) -> int:
        return self.rss_peak_bytes - self.rss_before_bytes

    @property
    def longest_ms(self) -> float:
        return max(self.waits_ms, default=0.0)

    @property
    def p99_ms(self) -> float:
        waits = sorted(self.waits_ms)
        return waits[min(len(waits) - 1, len(waits) * 99 // 100)] if waits else 0.0


class WorkerWatch:
    """The greatest memory that a process's worker processes had together. They end when they have nothing to do, so they are looked at
    all the time; what a worker had between two looks is in the kernel's high-water mark of it."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-watch")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            is_last = self._stop.wait(SAMPLE_SECONDS)
            with contextlib.suppress(OSError):  # the broker has ended, which the attack will notice
                self.peak_bytes = max(self.peak_bytes, sum(map(peak_of_worker, workers_of(self._pid))))
            if is_last:
                return


class Target:
    """The broker under attack, with a world in it, and the connections of the attacker. `share` is how much of its full size an attack
    has."""

    def __init__(self, port: int, pid: int, other_port: int = 0, share: float = 1.0) -> None:
        self.port = port
        self.pid = pid
        self.other_port = other_port
        self.share = share
        self.outcome = Outcome()
        self._watch = WorkerWatch(pid)
        self._made: list[WireClient] = []
        self._unread: list[socket.socket] = []
        self.client = self.connect()
        self.world = World(self.client)
        self._honest = Honest(port)
        self._began = 0.0

    def part(self, count: int) -> int:
        """How many of what a full attack has so many of."""
        return max(1, round(count * self.share))

    def numbers(self, count: int) -> range:
        """From 0 on, as many as that."""
        return range(self.part(count))

    def connect(self) -> WireClient:
        client = WireClient(self.port, timeout=ANSWER_SECONDS_MAX, client_id="attacker")
        self._made.append(client)
        return client

    def connect_with_a_small_window(self) -> socket.socket:
        """A connection on which little of what is never read waits in the kernel."""
        peer = socket.socket()
        self._unread.append(peer)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", self.port))
        return peer

    def request(self, key: int, version: int, **fields: object) -> bytes:
        """The frame of a request."""
        made: Request = load(key)[0](**fields)
        return self.client.frame(made, version)

    def begin(self) -> None:
        """The preparation is over: what comes now is measured."""
        self.outcome.rss_before_bytes = memory_bytes(self.pid, "VmRSS")
        reset_peak(self.pid)
        self._watch.start()
        self._honest.start().wait_for_answers(5)
        self._began = time.perf_counter()

    def send(self, *frames: bytes) -> list[bytes | None]:
        """Sends frames on one new connection, and reads meanwhile; returns an answer for each (None: closed)."""
        client = self.connect()

        def send() -> None:
            with contextlib.suppress(OSError):  # the broker has closed it
                client.send(b"".join(frames))

        sending = threading.Thread(target=send, name="attacker")
        sending.start()
        answers = [client.receive() for _ in frames]
        sending.join()
        return answers

    def hold(self, answers: int) -> None:
        """Keeps the attack up until the honest client has had so many further answers."""
        self._honest.wait_for_answers(answers)

    def end(self) -> Outcome:
        """The attack is over. Raises AssertionError if the honest client was not served."""
        outcome, honest = self.outcome, self._honest
        assert self._began, "an attack that never began"
        outcome.attack_ms = (time.perf_counter() - self._began) * 1000
        honest.stop()
        self._watch.stop()
        assert honest.failure is None, f"the honest client was not served: {honest.failure!r}"
        outcome.waits_ms = honest.waits_ms
        outcome.rss_peak_bytes = memory_bytes(self.pid, "VmHWM")
        outcome.workers_peak_bytes = self._watch.peak_bytes
        return outcome

    def close(self) -> None:
        self._honest.stop()
        self._watch.stop()
        for client in self._made:
            client.socket.close()
        for peer in self._unread:
            peer.close()


Run = Callable[[Target], None]


class Attack(NamedTuple):
    """One attack; `settings` (`key=value`) are those that it needs of the broker, `not_on_kafka` is why Kafka is not attacked like this."""

    run: Run
    settings: tuple[str, ...] = ()
    not_on_kafka: str = ""


_attacks: dict[str, Attack] = {}


def attack(name: str, *settings: str, not_on_kafka: str = "") -> Callable[[Run], Run]:
    """Adds a function to the corpus."""

    def add(function: Run) -> Run:
        assert name not in _attacks, f"two attacks are called {name!r}"
        _attacks[name] = Attack(function, settings, not_on_kafka)
        return function

    return add


def corpus() -> dict[str, Attack]:
    """Every attack by its name."""
    for subject in SUBJECTS:
        importlib.import_module(f"tests.hostile.attacks_{subject}")
    return dict(_attacks)


def settings_of(attack: Attack, other_port: int) -> list[str]:
    """What a broker needs to be attacked so."""
    return [setting.replace(OTHER_PORT, str(other_port)) for setting in attack.settings]


def measure(port: int, pid: int, run: Run, other_port: int = 0, share: float = 1.0) -> Outcome:
    """Runs an attack, or a share of it, on the broker; raises AssertionError if the honest client was not served."""
    target = Target(port, pid, other_port, share)
    try:
        run(target)
        return target.end()
    finally:
        target.close()


def broken_bounds(outcome: Outcome, memory_max_bytes: int) -> list[str]:
    """Which bounds an attack has broken, of a broker with this `ottla.memory.max.bytes`: a sentence for each."""
    bounds = (("the broker", outcome.rss_peak_bytes, memory_max_bytes + ALLOWANCE_BYTES),
              ("its workers", outcome.workers_peak_bytes, WORKERS_BYTES_MAX))  # fmt: skip
    return [f"{who} took {used / MIB:.0f} MiB, {most / MIB:.0f} may be" for who, used, most in bounds if used > most]


def peak_of_worker(pid: int) -> int:
    """0 when it has ended meanwhile."""
    try:
        return memory_bytes(pid, "VmHWM")
    except (OSError, AssertionError):
        return 0


def workers_of(pid: int) -> list[int]:
    """The child processes of a process, whichever of its threads has started them."""
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def memory_bytes(pid: int, name: str) -> int:
    """VmRSS (now) or VmHWM (greatest since the reset) of a process."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def reset_peak(pid: int) -> None:
    """Sets VmHWM to what is in use now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
