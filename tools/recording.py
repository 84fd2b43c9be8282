"""Draws a terminal recording: an animated SVG, made from a transcript of commands and their output.

The transcript is docs/assets/recording.txt; a test runs its commands again and compares. `make rewrite` updates both. Commands appear
letter by letter and their output line by line, at invented times. Before its time a line is dim, so that the recording is never empty. A
viewer without animations shows everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from textwrap import wrap
from typing import NamedTuple

COLUMNS = 96
CHARACTER_PX, LINE_PX, MARGIN_PX, BAR_PX = 8.4, 19, 16, 30
SECONDS_A_CHARACTER, SECONDS_A_LINE, SECONDS_A_COMMAND = 0.03, 0.12, 0.7
STYLE = """
text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; white-space: pre; fill: #b8c4ce }
.command { fill: #ffffff } .prompt { fill: #7ee787 } .good { fill: #7ee787 }
g { animation: appear 0.01s linear backwards }
@keyframes appear { from { opacity: 0.35 } }
@media (prefers-reduced-motion: reduce) { g { animation: none } }
"""


class Line(NamedTuple):
    """A line of the screen: a typed command, or a line of output."""

    text: str
    is_command: bool
    at_seconds: float


def screen(transcript: str) -> list[Line]:
    """Returns the lines of a terminal with COLUMNS columns, and the times at which they appear."""
    lines: list[Line] = []
    now = 0.3
    for line in transcript.splitlines():
        is_command = line.startswith("$ ")
        now += SECONDS_A_COMMAND if is_command else SECONDS_A_LINE
        for part in wrap(line, COLUMNS, drop_whitespace=False, break_on_hyphens=False) or [""]:
            lines.append(Line(part, is_command, now))
        if is_command:
            now += len(line) * SECONDS_A_CHARACTER
    return lines


def svg(transcript: str) -> str:
    lines = screen(transcript)
    width = int(COLUMNS * CHARACTER_PX + 2 * MARGIN_PX)
    height = BAR_PX + len(lines) * LINE_PX + 2 * MARGIN_PX
    drawn = "\n".join(_drawn(lines))
    dots = "".join(f'<circle cx="{x}" cy="16" r="6" fill="{fill}"/>' for x, fill in ((20, "#ff5f56"), (40, "#ffbd2e"), (60, "#27c93f")))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
        f"<title>A terminal: a broker is started, records are written and read, a test passes, exactly-once is checked</title>\n"
        f"<style>{STYLE}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>{dots}\n{drawn}\n</svg>\n'
    )


def _drawn(lines: Iterable[Line]) -> Iterable[str]:
    for number, line in enumerate(lines):
        y = BAR_PX + MARGIN_PX + (number + 1) * LINE_PX - 6
        yield f'<g style="animation-delay: {line.at_seconds:.2f}s"><text x="{MARGIN_PX}" y="{y}">{_marked(line)}</text></g>'


def _marked(line: Line) -> str:
    text = escape(line.text)
    if line.is_command:
        prompt, _, rest = text.partition("$ ")
        if prompt:
            return f'<tspan class="command">{text}</tspan>'
        return f'<tspan class="prompt">$ </tspan><tspan class="command">{rest}</tspan>'
    for word in ("READY", " pass ", "1 passed"):
        text = text.replace(word, f'<tspan class="good">{word}</tspan>')
    return text
