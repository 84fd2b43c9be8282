"""Measures the steps of one replicated write in time, and draws one write on a time line: client, leader and both followers.

usage: python -m tools.bench.write_timeline [--writes 4000] [--svg FILE]

Three brokers run as processes that note the times of their socket callbacks, sends and writes (`path_times.py`). A client writes one record
at a time with acks=all to a topic with three replicas. Other work of the machine delays many writes, so the table has the medians of the
fastest half of the writes, and the picture shows the write at the tenth percentile.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from bisect import bisect_left
from collections.abc import Sequence
from html import escape
from operator import attrgetter
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

from tools.bench.path_times import RECEIVED, SENT, WRITTEN
from tools.bench.report import machine, number
from tools.bench.requests import produce_frame
from tools.bench.write_path import REPLICATED, created, running_brokers

BEGIN = attrgetter("begin")
WARM_UP = 500
LEADER_EVENTS = (RECEIVED, WRITTEN, SENT, SENT, RECEIVED, RECEIVED, SENT)
FOLLOWER_EVENTS = (RECEIVED, WRITTEN, SENT)
"""The events of a write in the order of their begins. Writes with other events are left out, such as the first one after a pause."""


class Event(NamedTuple):
    """A step of a broker, in nanoseconds."""

    kind: str
    begin: int
    end: int


class Write(NamedTuple):
    """One write. `begin` and `end` are the client's, in nanoseconds."""

    begin: int
    end: int
    leader: Sequence[Event]
    followers: Sequence[Sequence[Event]]

    def steps(self) -> dict[str, int]:
        """Returns the steps in nanoseconds. A callback includes the read of its socket."""
        produce, written, first, second, fetch, last_fetch, acknowledged = self.leader
        received, copied, asked = self.followers[0]
        return {
            "leader: reads, decodes and checks the request": written.begin - produce.begin,
            "leader: writes to the file": written.end - written.begin,
            "leader: reads for the first follower, and sends": first.end - written.end,
            "leader: reads for the second follower, and sends": second.end - first.end,
            "leader: ends the callback": produce.end - second.end,
            "leader: notes the first follower's next Fetch": fetch.end - fetch.begin,
            "leader: notes the second one's, and acknowledges": acknowledged.end - last_fetch.begin,
            "leader: lets the second Fetch wait": last_fetch.end - acknowledged.end,
            "follower: reads, decodes and checks the answer": copied.begin - received.begin,
            "follower: writes to the file": copied.end - copied.begin,
            "follower: sends its next Fetch": asked.end - copied.end,
            "follower: ends the callback": received.end - asked.end,
            "the client waits": self.end - self.begin,
        }


def events_between(events: Sequence[Event], begins: Sequence[int], begin: int, end: int) -> Sequence[Event]:
    return events[bisect_left(begins, begin) : bisect_left(begins, end)]


def measure(count: int) -> list[Write]:
    with running_brokers("tools.bench.path_times") as brokers:
        leader_id = created(brokers, REPLICATED, 3)
        client = brokers[leader_id].connect()
        for _ in range(WARM_UP):
            client.ask(produce_frame(REPLICATED, acks=-1))
        for broker in brokers.values():
            broker.begin()
        asked = []
        for _ in range(count):
            frame = produce_frame(REPLICATED, acks=-1)
            began = perf_counter_ns()
            client.ask(frame)
            asked.append((began, perf_counter_ns()))
        events = {broker_id: sorted((Event(*one) for one in broker.end()), key=BEGIN) for broker_id, broker in brokers.items()}
    begins = {broker_id: [event.begin for event in found] for broker_id, found in events.items()}
    writes = []
    for (begin, end), (following, _) in zip(asked, asked[1:], strict=False):
        found = {broker_id: events_between(events[broker_id], begins[broker_id], begin, following) for broker_id in events}
        leader = found.pop(leader_id)
        followers = sorted(found.values(), key=lambda one: one[0].begin if one else 0)
        if kinds(leader) == LEADER_EVENTS and all(kinds(one) == FOLLOWER_EVENTS for one in followers):
            writes.append(Write(begin, end, leader, followers))
    return sorted(writes, key=lambda write: write.end - write.begin)


def kinds(events: Sequence[Event]) -> tuple[str, ...]:
    return tuple(event.kind for event in events)


# The picture

WIDTH, LEFT, LANE, BAR = 960, 110, 74, 26
COLOURS = {RECEIVED: "#9ec5e8", WRITTEN: "#e8a33d", SENT: "#3f7d3f"}
NAMES = {RECEIVED: "Python and the read of the socket", WRITTEN: "write to the file", SENT: "send"}


class Picture:
    """The SVG of one write."""

    def __init__(self, write: Write) -> None:
        self._write = write
        last = max(write.end, *(event.end for events in (write.leader, *write.followers) for event in events))
        self._scale = (WIDTH - LEFT - 20) / (last - write.begin)
        self._parts: list[str] = []
        self._lanes = {"client": 0, "leader": 1, "follower 1": 2, "follower 2": 3}

    def draw(self) -> str:
        write = self._write
        height = LANE * len(self._lanes) + 70
        for name, lane in self._lanes.items():
            self._text(8, self._y(lane) + BAR - 8, name)
        self._axis(height - 44)
        self._bar("client", write.begin, write.end, "#d8d8d8")
        for name, events in (("leader", write.leader), *((f"follower {n}", one) for n, one in enumerate(write.followers, 1))):
            for event in events:
                self._bar(name, event.begin, event.end, COLOURS[event.kind])
        produce, _, first, second, fetch, last_fetch, acknowledged = write.leader
        self._arrow("client", write.begin, "leader", produce.begin)
        for number_, (sent, follower, answered) in enumerate(zip((first, second), write.followers, (fetch, last_fetch), strict=True), 1):
            self._arrow("leader", sent.begin, f"follower {number_}", follower[0].begin)
            self._arrow(f"follower {number_}", follower[2].begin, "leader", answered.begin)
        self._arrow("leader", acknowledged.begin, "client", write.end)
        at = LEFT
        for kind, name in NAMES.items():
            self._parts.append(f'<rect x="{at}" y="{height - 20}" width="12" height="12" fill="{COLOURS[kind]}"/>')
            self._text(at + 18, height - 10, name)
            at += 40 + 7 * len(name)
        style = "text{font:13px sans-serif;fill:#222}.arrow{stroke:#666;stroke-width:1.2}.axis{stroke:#bbb}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="One replicated write">'
            f'<style>{style}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(self._parts)}</svg>\n'
        )

    def _x(self, time_ns: int) -> float:
        return LEFT + (time_ns - self._write.begin) * self._scale

    def _y(self, lane: int) -> int:
        return 16 + lane * LANE

    def _bar(self, lane: str, begin: int, end: int, colour: str) -> None:
        x, y = self._x(begin), self._y(self._lanes[lane])
        self._parts.append(f'<rect x="{x:.1f}" y="{y}" width="{self._x(end) - x:.1f}" height="{BAR}" fill="{colour}"/>')

    def _arrow(self, source: str, begin: int, target: str, end: int) -> None:
        down = self._lanes[target] > self._lanes[source]
        y1, y2 = (self._y(self._lanes[lane]) for lane in (source, target))
        y1, y2 = (y1 + BAR, y2) if down else (y1, y2 + BAR)
        self._parts.append(f'<line class="arrow" x1="{self._x(begin):.1f}" y1="{y1}" x2="{self._x(end):.1f}" y2="{y2}"/>')

    def _axis(self, y: int) -> None:
        micros = round((WIDTH - LEFT - 20) / self._scale / 1000)
        step = next(step for step in (10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000) if micros / step <= 12)
        for at in range(0, micros + 1, step):
            x = self._x(self._write.begin + at * 1000)
            self._parts.append(f'<line class="axis" x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{y}"/>')
            self._text(x - 8, y + 14, f"{at} us" if at == 0 else str(at))

    def _text(self, x: float, y: float, words: str) -> None:
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>')


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=4000)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args(argv)
    writes = measure(args.writes)
    if not writes:
        print("bench: no write has the usual events", file=sys.stderr)
        return 1
    print(f"{machine()}; {len(writes)} of {args.writes} writes, medians of the fastest half\n")
    print("| step of a replicated write | us |\n| --- | --- |")
    fastest = [write.steps() for write in writes[: (len(writes) + 1) // 2]]
    for step in fastest[0]:
        print(f"| {step} | {number(statistics.median(steps[step] for steps in fastest) / 1000)} |")
    if args.svg is not None:
        args.svg.write_text(Picture(writes[len(writes) // 10]).draw())
    return 0


if __name__ == "__main__":
    sys.exit(main())
