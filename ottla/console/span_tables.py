"""Makes a table of explained bytes (`Span`): position, bytes, field, value and meaning of each."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.analysis.spans import BYTES_SHOWN, Span, place_of, shown_value
from ottla.console.model import Code, Table, columns

SPANS_MAX = 2_000
"""Fields in one page. A batch or frame with more is cut there; the JSON is cut as well."""
TITLES = columns(place="Position", bytes="Bytes", field="Field", value="Value", meaning="Meaning")


def span_table(key: str, title: str, spans: Sequence[Span], empty: str = "Nothing here.") -> Table:
    rows = [
        {
            "place": place_of(span),
            "bytes": Code(span.data[:BYTES_SHOWN].hex(" ") + (" .." if len(span.data) > BYTES_SHOWN else "")) if span.data else None,
            "field": Code("  " * span.depth + span.name),
            "value": None if span.value is None and not span.data else shown_value(span.value), "meaning": span.note,
        }
        for span in spans[:SPANS_MAX]
    ]  # fmt: skip
    return Table(key, title, TITLES, rows, empty)
