"""Measures how long a request may block the event loop: sends the largest bodies of every API and finds the longest turn. A turn is one
callback of the event loop: the requests of one read of a socket, a piece of a long request, or a timer. It prints a table of the worst
bodies, and a table with the worst body of every API. A turn is measured in CPU time of the loop's thread, so that other work of the machine
has no influence. Garbage collections within a turn are included. After each body, the check that the broker makes every ten seconds
(`server/garbage.py`) runs twice: once right after the body, and once as in an idle broker, which may run a full collection. The first check
is measured as a turn; the second has its own column. Each API has its own broker in its own process, so that no collection visits objects
of another API or the client.

usage: python -m tools.bench.turns [words in the API's name]
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from asyncio import events
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.handlers.served_apis import TABLE
from ottla.server.app import BrokerServer
from ottla.server.garbage import Garbage
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient
from tests.hostile.large_bodies import Body, large_bodies
from tests.server.conftest import config_for
from tools.bench.report import number

MIB = 1 << 20
WORST = 20
SETTLE_SECONDS = 0.05
SERVE = "--serve"


class Turns(NamedTuple):
    """The longest turn, the check of the garbage right after it, and the check in an idle broker, in ms."""

    longest_ms: float
    look_ms: float
    idle_look_ms: float


class Row(NamedTuple):
    """The result of one body. `longest_ms` is the longest time for which the loop was blocked, by a turn or by the check after it. `answer`
    has the time until the response in ms, and the size of the response in KiB.
    """

    longest_ms: float
    api: str
    body: str
    turns: Turns
    answer: str

    def __str__(self) -> str:
        return f"| {self.api}: {self.body} | {number(self.longest_ms)} | {number(self.turns.idle_look_ms)} | {self.answer} |"


class TurnMeter:
    """Measures the longest turn of the loop since the last `take`, in ms of CPU time."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._run = events.Handle._run

    def __enter__(self) -> TurnMeter:
        run = self._run

        def measured(handle: events.Handle) -> None:
            before = time.thread_time()
            run(handle)
            self.longest_ms = max(self.longest_ms, (time.thread_time() - before) * 1000)

        events.Handle._run = measured  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: object) -> None:
        events.Handle._run = self._run  # type: ignore[method-assign]

    def take(self) -> float:
        longest_ms, self.longest_ms = self.longest_ms, 0.0
        return longest_ms


def look(loop: asyncio.AbstractEventLoop, garbage: Garbage) -> None:
    """Runs a check of the garbage in a turn of the loop, and waits for it. Called in another thread."""
    looked = threading.Event()
    loop.call_soon_threadsafe(garbage.look)
    loop.call_soon_threadsafe(looked.set)
    looked.wait()


def serve(folder: str) -> None:
    """Runs the broker's process. It prints its port. Then, for each line of standard input, it prints the longest turn since the line
    before it and the times of two checks of the garbage, in ms.
    """
    loop = asyncio.SelectorEventLoop()
    asyncio.set_event_loop(loop)
    with TurnMeter() as meter:
        server = BrokerServer(loop, config_for(Path(folder) / "data", *SETTINGS))
        server.start()
        garbage = Garbage(server.config.ottla_memory_max_bytes)
        garbage.begin()
        server.begin_turns()

        def answer() -> None:
            print(server.node.endpoints[0].port, flush=True)
            for _ in sys.stdin:
                taken = [meter.take()]
                for _ in range(2):
                    look(loop, garbage)
                    taken.append(meter.take())
                print(*taken, flush=True)
            loop.call_soon_threadsafe(loop.stop)

        threading.Thread(target=answer, daemon=True).start()
        loop.run_forever()
        loop.run_until_complete(server.stop())
        garbage.end()


class MeasuredBroker:
    """A broker in a process of its own that measures its turns."""

    def __enter__(self) -> MeasuredBroker:
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-turns-")
        command = [sys.executable, "-m", "tools.bench.turns", SERVE, self._folder.name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._line())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def turns(self) -> Turns:
        """Returns the measurements since the last call."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Turns(*map(float, self._line().split()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def bodies(world: World, name: str) -> Iterator[Body]:
    api = next(api for api in TABLE.values() if api.name == name)
    for version in sorted({api.max_version, *([2] if name == "ListOffsets" else [])}):
        yield from large_bodies(world.request(api.key, version), version, MIB)


def measure(broker: MeasuredBroker, api: str) -> Iterator[Row]:
    with WireClient(broker.port, timeout=300) as client:
        for body in bodies(World(client), api):
            with WireClient(broker.port, timeout=300) as attacker:
                if body.request.API_KEY >= 10_000:
                    attacker.ask_for_extensions()
                frame = attacker.frame(body.request, body.version)
                broker.turns()
                began = time.perf_counter()
                try:
                    attacker.send(frame)
                    answer = attacker.receive()
                except OSError:
                    answer = None
                took_ms = (time.perf_counter() - began) * 1000
                time.sleep(SETTLE_SECONDS)
                size = "closed" if answer is None else number(len(answer) / 1024)
                turns = broker.turns()
                yield Row(max(turns.longest_ms, turns.look_ms), api, body.name, turns, f"{number(took_ms)} | {size}")


def main(argv: Sequence[str]) -> int:
    if argv[:1] == [SERVE]:
        serve(argv[1])
        return 0
    rows: list[Row] = []
    for api in sorted(api.name for api in TABLE.values() if " ".join(argv) in api.name):
        with MeasuredBroker() as broker:
            rows += measure(broker, api)
    rows.sort(reverse=True)
    print_rows(rows[:WORST])
    print(f"\n{len(rows)} bodies; {sum(row.longest_ms > 50 for row in rows)} hold the loop for more than 50 ms\n")
    worst: dict[str, Row] = {}
    for row in rows:
        worst.setdefault(row.api, row)
    print_rows([worst[api] for api in sorted(worst)])
    return 0


def print_rows(rows: Sequence[Row]) -> None:
    print("| body | longest turn, ms | walk when idle, ms | answered in, ms | answer, KiB |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print(row)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
