"""Cells and rows that the tables and JSON of all kinds of groups share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def coordinator_text(address: object, broker_id: int) -> str:
    """`host:port (1)`; the broker's id alone when its address is unknown."""
    return f"{address} ({broker_id})" if address else str(broker_id)


def without_group(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the group's name, for use inside the group's own object."""
    return [{key: value for key, value in row.items() if key != "group"} for row in rows]
