"""The text of one scrape: lines gathered by family, in Prometheus' text format 0.0.4.

Collectors append finished lines, because a scrape needs only lines, and intermediate objects cost the loop time. The lines of a family must
follow its header, so they are gathered by family and joined once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.server.monitoring.metric_families import DIALECTS, FAMILIES, UNTYPED, Family, alias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Page:
    """Gathers the lines of one scrape. `lines[name]` takes lines that end in a newline, `blocks[name]` encoded blocks of lines. `pushed`
    has the lines of metrics that clients push."""

    __slots__ = ("_pushed", "blocks", "lines")

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {name: [] for name in FAMILIES}
        self.blocks: dict[str, list[bytes]] = {name: [] for name in FAMILIES}
        self._pushed: dict[str, tuple[str, list[str]]] = {}

    def put(self, name: str, value: float, labels: str = "") -> None:
        """Adds one sample. `labels` is a text from `labels_text`."""
        self.lines[name].append(f"{name}{labels} {value}\n")

    def pushed(self, name: str, kind: str) -> list[str]:
        """Returns the lines of a metric that clients push. The metric is untyped if it was asked for with another kind before."""
        known, lines = self._pushed.get(name, (kind, []))
        self._pushed[name] = (kind if kind == known else UNTYPED, lines)
        return lines

    def encode(self, dialects: Sequence[str] = ()) -> bytes:
        parts: list[bytes] = []
        for name, lines in self.lines.items():
            family = FAMILIES[name]
            parts.append((family.header + "".join(lines)).encode())
            parts += self.blocks[name]
            if family.per_second and lines:
                parts += ["".join(_translated(family, dialect, lines)).encode() for dialect in dialects]
        for name, (kind, lines) in self._pushed.items():
            parts.append((Family(name, kind, "Pushed by clients.").header + "".join(lines)).encode())
        return b"".join(parts)


def _translated(family: Family, dialect: str, lines: Sequence[str]) -> list[str]:
    """Returns the same samples with their name in another dialect. Counters are single lines, never blocks."""
    name = alias(family, dialect)
    # Without `_total` a strict reader would not take the family for a counter.
    kind = family.kind if DIALECTS[dialect] else UNTYPED
    header = family._replace(name=name, kind=kind).header
    return [header, *(name + line[len(family.name) :] for line in lines)]
