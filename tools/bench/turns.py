"""How long a request may hold the loop: every API with large bodies, in a broker in this process, and the longest turn that each took. A
table of the worst bodies, then one with the worst body of every API.

A turn is one call of the loop: the requests of one read of a socket, a piece of a long request, a timer. What counts is the processor time
of the loop's thread, so that other work of the machine does not. A garbage collection within a turn counts.

usage: python -m tools.bench.turns [words that the API's name contains]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from asyncio import events
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.requests.apis import TABLE
from ottla.server.app import BrokerServer
from ottla.server.garbage import Garbage
from tests.clients.conftest import SETTINGS
from tests.clients.sample_requests import World
from tests.clients.wire_client import WireClient
from tests.hostile.large_bodies import Body, large_bodies
from tests.server.conftest import config_for
from tools.bench.report import number

MIB = 1 << 20
WORST = 20
SETTLE_SECONDS = 0.05


class Row(NamedTuple):
    """What one body did: the longest turn in ms, then how long its answer took in ms, and the answer's size in KiB."""

    longest_ms: float
    api: str
    body: str
    answer: str

    def __str__(self) -> str:
        return f"| {self.api}: {self.body} | {number(self.longest_ms)} | {self.answer} |"


class TurnMeter:
    """The longest turn of the loop's thread since it was reset, in ms."""

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


def bodies(client: WireClient, word: str) -> Iterator[tuple[str, Body]]:
    world = World(client)
    for api in TABLE.values():
        if word in api.name:
            versions = sorted({api.max_version, *([2] if api.name == "ListOffsets" else [])})
            for version in versions:
                for body in large_bodies(world.request(api.key, version), version, MIB):
                    yield api.name, body


def measure(port: int, word: str, meter: TurnMeter) -> Iterator[Row]:
    with WireClient(port, timeout=300) as client:
        for api, body in bodies(client, word):
            with WireClient(port, timeout=300) as attacker:
                if body.request.API_KEY >= 10_000:
                    attacker.ask_for_extensions()
                frame = attacker.frame(body.request, body.version)
                meter.longest_ms = 0.0
                began = time.perf_counter()
                try:
                    attacker.send(frame)
                    answer = attacker.receive()
                except OSError:
                    answer = None
                took_ms = (time.perf_counter() - began) * 1000
                time.sleep(SETTLE_SECONDS)
                size = "closed" if answer is None else number(len(answer) / 1024)
                yield Row(meter.longest_ms, api, body.name, f"{number(took_ms)} | {size}")


def main(argv: Sequence[str]) -> int:
    loop = asyncio.SelectorEventLoop()
    asyncio.set_event_loop(loop)
    with tempfile.TemporaryDirectory(prefix="ottla-turns-") as folder, TurnMeter() as meter:
        server = BrokerServer(loop, config_for(Path(folder) / "data", *SETTINGS))
        server.start()
        garbage = Garbage()
        garbage.begin()
        server.begin_turns()
        port = server.node.endpoints[0].port
        rows = loop.run_until_complete(loop.run_in_executor(None, lambda: list(measure(port, " ".join(argv), meter))))
        loop.run_until_complete(server.stop())
        garbage.end()
    rows.sort(reverse=True)
    print_rows(rows[:WORST])
    print(f"\n{len(rows)} bodies; {sum(row.longest_ms > 50 for row in rows)} hold the loop for more than 50 ms\n")
    worst: dict[str, Row] = {}
    for row in rows:
        worst.setdefault(row.api, row)
    print_rows([worst[api] for api in sorted(worst)])
    return 0


def print_rows(rows: Sequence[Row]) -> None:
    print("| body | longest turn, ms | answered in, ms | answer, KiB |\n| --- | --- | --- | --- |")
    for row in rows:
        print(row)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
