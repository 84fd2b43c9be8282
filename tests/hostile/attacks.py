"""Runs attacks of one client on a broker, and measures their effect on an honest client and on the broker's memory. An `Attack` prepares
the broker (topics, groups), makes the bytes to send, and then sends them. `measure` runs it beside an honest client, which repeats small
requests on its own connection (it writes a record, reads it, commits its offset, asks for metadata). It returns an `Outcome`: the honest
client's longest wait and 99th percentile, and the largest memory of the broker and its worker processes (the kernel's high-water mark,
which is reset before). `broken_bounds` lists the memory limits that the attack exceeded.

To add an attack, write a function that takes a `Target`, with the decorator `@attack("name")`, in a module `attacks_<subject>.py` of this
folder, and add the subject to `SUBJECTS`. The part before `target.begin()` is preparation and is not measured. Numbers that decide the size
of the attack are passed through `target.part`, so that tests can send a small part of what the benchmark sends. The bytes are the same for
any Kafka broker, so an attack can also be run on Apache Kafka; if that makes no sense, `not_on_kafka` says why. Tests and the benchmark
assert the memory limits. Times are only figures in a table (`python -m tools.bench.attacks`), because the machine may do other work.
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
    """The effect of an attack on the honest client and the broker. Times are in ms, memory in bytes."""

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
    """Measures the largest memory that the worker processes of a process had together. Idle workers end, so they are sampled continuously;
    the kernel's high-water mark of each worker includes the time between two samples.
    """

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
            with contextlib.suppress(OSError):  # the broker has ended; the attack reports that
                self.peak_bytes = max(self.peak_bytes, sum(map(peak_of_worker, workers_of(self._pid))))
            if is_last:
                return


class Target:
    """The broker under attack with its topics and groups (`World`), and the connections of the attacker. `share` is the part of the
    attack's full size to send, from 0 to 1.
    """

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
        """Returns the part of a number for an attack of the size `share`."""
        return max(1, round(count * self.share))

    def numbers(self, count: int) -> range:
        """Returns the numbers from 0 up to `part` of a number."""
        return range(self.part(count))

    def connect(self) -> WireClient:
        client = WireClient(self.port, timeout=ANSWER_SECONDS_MAX, client_id="attacker")
        self._made.append(client)
        return client

    def connect_with_a_small_window(self) -> socket.socket:
        """Opens a connection with a small receive window, so that the kernel buffers few of the bytes that the client does not read."""
        peer = socket.socket()
        self._unread.append(peer)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", self.port))
        return peer

    def request(self, key: int, version: int, **fields: object) -> bytes:
        """Returns the frame of a request."""
        made: Request = load(key)[0](**fields)
        return self.client.frame(made, version)

    def begin(self) -> None:
        """Ends the preparation; everything from now on is measured."""
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
        """Continues the attack until the honest client has got this number of further answers."""
        self._honest.wait_for_answers(answers)

    def end(self) -> Outcome:
        """Ends the attack. Raises AssertionError if the honest client was not served."""
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
    """One attack. `settings` (`key=value`) are the broker settings that it needs; `not_on_kafka` is the reason why it is not run on Apache
    Kafka.
    """

    run: Run
    settings: tuple[str, ...] = ()
    not_on_kafka: str = ""


_attacks: dict[str, Attack] = {}


def attack(name: str, *settings: str, not_on_kafka: str = "") -> Callable[[Run], Run]:
    """Decorator: adds a function to the attacks."""

    def add(function: Run) -> Run:
        assert name not in _attacks, f"two attacks are called {name!r}"
        _attacks[name] = Attack(function, settings, not_on_kafka)
        return function

    return add


def corpus() -> dict[str, Attack]:
    """Returns all attacks by name."""
    for subject in SUBJECTS:
        importlib.import_module(f"tests.hostile.attacks_{subject}")
    return dict(_attacks)


def settings_of(attack: Attack, other_port: int) -> list[str]:
    """Returns the settings that a broker needs for this attack."""
    return [setting.replace(OTHER_PORT, str(other_port)) for setting in attack.settings]


def measure(port: int, pid: int, run: Run, other_port: int = 0, share: float = 1.0) -> Outcome:
    """Runs an attack, or the part `share` of it, on the broker. Raises AssertionError if the honest client was not served."""
    target = Target(port, pid, other_port, share)
    try:
        run(target)
        return target.end()
    finally:
        target.close()


def broken_bounds(outcome: Outcome, memory_max_bytes: int) -> list[str]:
    """Returns a sentence for each memory limit that an attack has exceeded, of a broker with this `ottla.memory.max.bytes`."""
    bounds = (("the broker", outcome.rss_peak_bytes, memory_max_bytes + ALLOWANCE_BYTES),
              ("its workers", outcome.workers_peak_bytes, WORKERS_BYTES_MAX))  # fmt: skip
    return [f"{who} took {used / MIB:.0f} MiB, {most / MIB:.0f} may be" for who, used, most in bounds if used > most]


def peak_of_worker(pid: int) -> int:
    """Returns the peak memory of a worker; 0 if it has ended."""
    try:
        return memory_bytes(pid, "VmHWM")
    except (OSError, AssertionError):
        return 0


def workers_of(pid: int) -> list[int]:
    """Returns the child processes of a process, whichever of its threads has started them."""
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def memory_bytes(pid: int, name: str) -> int:
    """Returns VmRSS (the current memory) or VmHWM (the largest memory since the reset) of a process."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def reset_peak(pid: int) -> None:
    """Sets VmHWM to the memory in use now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
