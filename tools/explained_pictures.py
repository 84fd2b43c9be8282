"""Draws the pictures of the pages "Kafka explained" as SVG, from the data that `tools/explained.py` has recorded.

A picture is 480 units wide and its text at least 12 units high, so that it can be read in a window of 400 pixels; it grows to 680 pixels in
a wide one.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from math import hypot
from typing import NamedTuple

WIDTH, WIDTH_PX = 480, 680
BLUE, ORANGE, GREEN, RED, GREY, PALE, INK = "#2b6cb0", "#dd7a14", "#2f855a", "#c53030", "#718096", "#e2e8f0", "#1a202c"
COLOURS = (BLUE, ORANGE, GREEN)
LEFT, RIGHT = 58, WIDTH - 10
"""Where the axis of time begins and ends."""
SILENCE_SECONDS = 0.15
"""Looks at a leader are 20 ms apart, and a look fails while there is none."""
CHARACTER = 7.0
"""Width of a character of small text, at most."""
TOLERANCE = 0.4
"""Points of a line that are nearer than this to the line without them are omitted."""

Point = tuple[float, float]


class Picture:
    def __init__(self, title: str, height: float) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH_PX}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<style>text{{font:13px system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif;fill:{INK}}}.s{{font-size:12px}}'
            f".m{{text-anchor:middle}}.e{{text-anchor:end}}</style>",
            f'<rect width="{WIDTH}" height="{height:g}" rx="6" fill="#fff"/>',
        ]

    def text(self, x: float, y: float, text: str, *, fill: str = "", kind: str = "") -> None:
        style = f' class="{kind}"' * bool(kind) + f' style="fill:{fill}"' * bool(fill)
        self._parts.append(f'<text x="{_short(x)}" y="{_short(y)}"{style}>{escape(text)}</text>')

    def label(self, x: float, y: float, text: str, *, fill: str = "") -> None:
        """Writes behind a line at `x`, or before it if there is no space behind it."""
        is_late = x + CHARACTER * len(text) > WIDTH
        self.text(x + (-4 if is_late else 4), y, text, fill=fill, kind="s e" if is_late else "s")

    def box(self, x: float, y: float, width: float, height: float, fill: str, *, opacity: float = 1) -> None:
        shown = f' opacity="{opacity:g}"' if opacity < 1 else ""
        place = f'x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"'
        self._parts.append(f'<rect {place} fill="{fill}"{shown}/>')

    def line(self, points: Sequence[Point], stroke: str, *, width: float = 1.5, dashes: str = "") -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        drawn = " ".join(f"{_short(x)},{_short(y)}" for x, y in thinned(points))
        self._parts.append(f'<polyline points="{drawn}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{dashed}/>')

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def thinned(points: Sequence[Point]) -> list[Point]:
    """Returns the points that a line needs (Ramer, Douglas, Peucker)."""
    kept = {0, len(points) - 1}
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        far = [(_distance(point, points[first], points[last]), number) for number, point in enumerate(points[first + 1 : last], first + 1)]
        distance, number = max(far, default=(0.0, 0))
        if distance > TOLERANCE:
            kept.add(number)
            spans += [(first, number), (number, last)]
    return [points[number] for number in sorted(kept)]


def _distance(point: Point, first: Point, last: Point) -> float:
    """Returns the distance of a point from the line through two others, or from them if they are one point."""
    (x, y), (x0, y0), (x1, y1) = point, first, last
    length = hypot(x1 - x0, y1 - y0)
    return abs((x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0)) / length if length else hypot(x - x0, y - y0)


def _axis(picture: Picture, y: float, seconds: float) -> None:
    """Draws the seconds below a picture."""
    step = 2 if seconds > 8 else 1
    for second in range(0, int(seconds) + 1, step):
        picture.text(LEFT + (RIGHT - LEFT) * second / seconds, y, f"{second} s", kind="s m" if second else "s")


# The path of a record


def draw_record(copies: Sequence[tuple[str, bytes]]) -> str:
    """Returns the bytes of one batch in several places, as squares. Bytes that differ from the first copy are orange."""
    per_row, size, gap = 27, 16, 20
    _, original = copies[0]
    rows = -(-len(original) // per_row)
    picture = Picture("The bytes of a batch in the request, in the file and in the answer", 12 + len(copies) * (rows * size + gap + 14))
    y = 20.0
    for name, batch in copies:
        picture.text(12, y, name)
        for number, byte in enumerate(batch):
            x, top = 12 + number % per_row * (size + 0.9), y + 8 + number // per_row * size
            differs = byte != original[number]
            picture.box(x, top, size, size - 1, ORANGE if differs else BLUE if number >= HEADER_BYTES else "#a3bfdb")
        y += rows * size + gap + 14
    return picture.svg()


HEADER_BYTES = 61


# Replicas


class ReplicaRun(NamedTuple):
    """Times are seconds since the start. `ends` has the log end of each broker, `high_watermark` the end for readers, `states` the leader
    and the in-sync replicas at each change (leader -1: none), `faults` what was done."""

    ends: dict[int, list[Point]]
    high_watermark: list[Point]
    states: list[tuple[float, int, tuple[int, ...]]]
    faults: list[tuple[float, str]]
    seconds: float


def draw_replicas(run: ReplicaRun) -> str:
    top, bottom, bar = 88.0, 330.0, 24
    picture = Picture("Log ends, high watermark and in-sync replicas over time", bottom + 3 * bar + 52)
    largest = max(end for points in run.ends.values() for _, end in points) or 1

    def x(moment: float) -> float:
        return LEFT + (RIGHT - LEFT) * moment / run.seconds

    def y(offset: float) -> float:
        return bottom - (bottom - top) * offset / largest

    for name, colour, place in (*((f"end of broker {number}", COLOURS[number - 1], number - 1) for number in run.ends), ("", "", 0)):
        if name:
            picture.box(12 + place * 155, 12, 14, 10, colour)
            picture.text(31 + place * 155, 21, name)
    picture.line([(12, 37), (26, 37)], INK, width=2.5, dashes="4 3")
    picture.text(31, 41, "high watermark: readers get the records below it")
    for offset in range(0, int(largest) + 1, 400):
        picture.line([(LEFT, y(offset)), (RIGHT, y(offset))], PALE, width=1)
        picture.text(LEFT - 6, y(offset) + 4, f"{offset}", kind="s e")
    for number, points in run.ends.items():
        picture.line([(x(moment), y(end)) for moment, end in points], COLOURS[number - 1], width=3 if number == 1 else 2)
    picture.line([(x(moment), y(end)) for moment, end in held(run.high_watermark)], INK, width=2.5, dashes="4 3")
    _draw_in_sync(picture, run, bottom + 14, bar)
    for place, (moment, what) in enumerate(run.faults):
        picture.line([(x(moment), top - 24 + place % 2 * 16), (x(moment), bottom + 14 + 3 * bar)], RED, width=1, dashes="3 3")
        picture.label(x(moment), top - 14 + place % 2 * 16, what, fill=RED)
    _axis(picture, bottom + 3 * bar + 44, run.seconds)
    return picture.svg()


def held(points: Sequence[Point]) -> list[Point]:
    """Adds a point before each point that follows a gap, so that the line is horizontal while no broker answers."""
    found = list(points[:1])
    for (before, value), (moment, new) in pairwise(points):
        found += [(moment, value), (moment, new)] if moment - before > SILENCE_SECONDS else [(moment, new)]
    return found


def _draw_in_sync(picture: Picture, run: ReplicaRun, top: float, bar: float) -> None:
    scale = (RIGHT - LEFT) / run.seconds
    ends = [*(moment for moment, _, _ in run.states[1:]), run.seconds]
    for number in run.ends:
        y = top + (number - 1) * bar
        picture.text(LEFT - 6, y + 15, f"broker {number}", kind="s e")
        picture.box(LEFT, y, RIGHT - LEFT, bar - 4, PALE)
        for (moment, leader, in_sync), end in zip(run.states, ends, strict=True):
            if number in in_sync:
                opacity = 1 if number == leader else 0.45
                picture.box(LEFT + moment * scale, y, (end - moment) * scale, bar - 4, COLOURS[number - 1], opacity=opacity)
    picture.text(LEFT, top + 3 * bar + 12, "in sync: coloured; leader: dark", kind="s")


# A transaction


MARKERS = ("COMMIT", "ABORT")


class TransactionStep(NamedTuple):
    """The log after a step: the transactional id and the value, or COMMIT or ABORT, of each offset, and the last stable offset."""

    title: str
    entries: list[tuple[str, str]]
    last_stable_offset: int

    @property
    def marker_count(self) -> int:
        return sum(what in MARKERS for _, what in self.entries)


def draw_transactions(steps: Sequence[TransactionStep]) -> str:
    size, row = 46, 74
    picture = Picture("A partition after each step of three transactions, with the last stable offset", 44 + row * len(steps))
    names = sorted({name for step in steps for name, _ in step.entries})
    fills = dict(zip(names, ("#a3bfdb", "#f3c491", "#a9d5bb", "#d6c3e8"), strict=False))
    for place, name in enumerate(names):
        picture.box(12 + place * 108, 10, 14, 12, fills[name])
        picture.text(31 + place * 108, 21, name)
    y = 50.0
    for step in steps:
        picture.text(12, y, step.title)
        for offset, (name, what) in enumerate(step.entries):
            x = 12 + offset * (size + 4)
            picture.box(x, y + 8, size, 30, fills[name])
            if what in MARKERS:
                corners = [(x, y + 8), (x + size, y + 8), (x + size, y + 38), (x, y + 38), (x, y + 8)]
                picture.line(corners, GREEN if what == "COMMIT" else RED, width=2.5)
            picture.text(x + size / 2, y + 28, what.lower(), kind="s m")
        x = 10 + step.last_stable_offset * (size + 4)
        picture.box(x - 2, y + 4, 4, 38, INK)
        picture.label(x, y + 51, f"last stable offset {step.last_stable_offset}")
        y += row
    return picture.svg()


# A rebalance


class GroupRun(NamedTuple):
    """Who read which partition: (member, partition, from, until), in seconds. `events` has what happened."""

    protocol: str
    owned: list[tuple[str, int, float, float]]
    events: list[tuple[float, str]]
    seconds: float


def draw_groups(runs: Sequence[GroupRun], partitions: int = 6) -> str:
    row, head = 20, 62
    height = head + partitions * row + 34
    picture = Picture("Which member reads each partition over time, by both protocols", 30 + height * len(runs))
    members = sorted({member for run in runs for member, _, _, _ in run.owned})
    for place, member in enumerate(members):
        picture.box(12 + place * 90, 10, 14, 12, COLOURS[place])
        picture.text(31 + place * 90, 21, member)
    top = 30.0
    for run in runs:
        scale = (RIGHT - LEFT) / run.seconds
        picture.text(12, top + 20, run.protocol)
        for partition in range(partitions):
            y = top + head + partition * row
            picture.text(LEFT - 6, y + 13, f"{partition}", kind="s e")
            picture.box(LEFT, y, RIGHT - LEFT, row - 3, PALE)
        for member, partition, begin, end in run.owned:
            y = top + head + partition * row
            picture.box(LEFT + begin * scale, y, max(0.5, (end - begin) * scale), row - 3, COLOURS[members.index(member)])
        for place, (moment, what) in enumerate(run.events):
            x = LEFT + moment * scale
            picture.line([(x, top + head - 24 + place % 2 * 14), (x, top + head + partitions * row)], RED, width=1, dashes="3 3")
            picture.label(x, top + head - 20 + place % 2 * 14, what, fill=RED)
        _axis(picture, top + head + partitions * row + 16, run.seconds)
        top += height
    return picture.svg()
