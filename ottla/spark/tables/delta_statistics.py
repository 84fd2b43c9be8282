"""Computes the statistics of a data file for Delta's log from the file's Parquet footer: the number of rows, and the nulls, minimum and
maximum of simple columns.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TEXT_MAX = 32
"""Maximum length of a text that is stored as the minimum or maximum of a column, in characters. A longer text is omitted, because Delta
would need a shortened maximum to be rounded up."""
COLUMNS_MAX = 32
"""Columns with statistics, the first ones of the table. Delta's own default."""
MILLISECOND = datetime.timedelta(milliseconds=1)


def statistics(footer: bytes) -> str:
    """Returns the statistics as the JSON of Delta's log."""
    found = pq.read_metadata(pa.BufferReader(footer))
    bounds: dict[str, list[tuple[Any, Any]]] = {}
    nulls: dict[str, int] = {}
    unbounded = set[str]()
    for group in range(found.num_row_groups):
        for number in range(min(found.num_columns, COLUMNS_MAX)):
            column = found.row_group(group).column(number)
            name, known = column.path_in_schema, column.statistics
            if "." in name or known is None:
                continue
            nulls[name] = nulls.get(name, 0) + known.null_count
            if known.has_min_max:
                bounds.setdefault(name, []).append((known.min, known.max))
            elif known.null_count < column.num_values:
                unbounded.add(name)
    bounded = {
        name: (_bound(min(low for low, _ in pairs)), _bound(max(high for _, high in pairs), is_upper=True))
        for name, pairs in bounds.items()
        if name not in unbounded
    }
    complete = {name: pair for name, pair in bounded.items() if None not in pair}
    return json.dumps(
        {
            "numRecords": found.num_rows,
            "minValues": {name: low for name, (low, _) in complete.items()},
            "maxValues": {name: high for name, (_, high) in complete.items()},
            "nullCount": nulls,
        }
    )


def _bound(bound: Any, *, is_upper: bool = False) -> Any:
    """Returns a minimum or maximum as a JSON value; None for an unsupported type, and for a long text. Floating-point numbers have no
    bounds, because Parquet ignores NaN in its bounds. A timestamp is rounded outwards to milliseconds.
    """
    if isinstance(bound, bool | bytes | float):
        return None
    if isinstance(bound, int):
        return bound
    if isinstance(bound, str):
        return bound if len(bound) <= TEXT_MAX else None
    if isinstance(bound, datetime.datetime):
        rest = datetime.timedelta(microseconds=bound.microsecond % 1000)
        rounded = bound - rest + (MILLISECOND if is_upper and rest else datetime.timedelta())
        return rounded.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if bound.tzinfo else "")
    if isinstance(bound, datetime.date):
        return bound.isoformat()
    return None
