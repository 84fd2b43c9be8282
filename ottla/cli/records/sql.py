"""`ottla sql "select key, count(*) from orders group by 1"`: runs a query in DuckDB whose tables are topics. Needs the extra
`ottla[frame]`.

In the forms jsonl, csv and plain, rows are printed as they are computed. In the other forms the whole result is printed at once, at most
`TABLE_ROWS_MAX` rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.cli.command import Args, Refused, UsageError, command, merged_numbers, option
from ottla.cli.options import properties_of
from ottla.cli.render.ottla import Column, Output, Row
from ottla.client.addresses import DEFAULT_BOOTSTRAP

TABLE_ROWS_MAX = 10_000
"""Maximum number of rows in the forms table, json and yaml, whose rows are held in memory."""
_STREAMED = ("jsonl", "csv", "plain")


@command(
    "sql",
    "Ask about topics with SQL (DuckDB).",
    option("query", metavar="QUERY", help="a SELECT; its tables are topics"),
    option("--since", metavar="TIME", help="records from this time on: -1h, a date, milliseconds"),
    option("--until", metavar="TIME", help="records before this time"),
    option("--partitions", action="append", metavar="N,...", help="only these partitions"),
    option("--key-format", default="text", metavar="FORM", help="text (default) or bytes"),
    option("--value-format", default="text", metavar="FORM", help="text (default), bytes, json, avro or protobuf"),
    option("--schema", metavar="FILE", help="the schema of the values, a file or its text"),
    option("--registry", metavar="URL", help="a schema registry that has the schemas of values"),
    option("--message", metavar="NAME", help="the Protobuf message of the values (default: the first in the schema)"),
    option("--errors", default="fail", metavar="HOW", help="a value that does not fit: fail (default), or null"),
    option("--isolation", default="read_committed", metavar="LEVEL", help="read_committed (default) or read_uncommitted"),
    needs="READ TOPIC",
)
def _sql(args: Args, output: Output) -> int:
    from ottla.frames.errors import FrameUsageError, MissingPackageError
    from ottla.frames.frame import Frame, frame
    from ottla.frames.queries import COLUMNS, run_query

    properties = properties_of(args)
    partitions = merged_numbers(args.partitions, "--partitions is N,N,...") if args.partitions else None

    def open_frame(topic: str) -> Frame:
        return frame(
            topic,
            since=args.since,
            until=args.until,
            partitions=partitions,
            columns=COLUMNS,
            key_format=args.key_format,
            value_format=args.value_format,
            schema=args.schema,
            registry=args.registry,
            message=args.message,
            errors=args.errors,
            bootstrap=properties.get("bootstrap.servers", DEFAULT_BOOTSTRAP),
            config=properties,
            isolation=args.isolation,
            progress=False if output.is_quiet else None,
        )

    try:
        result = run_query(args.query, open_frame)
        _print(output, result.columns, result.rows)
    except FrameUsageError as error:
        raise UsageError(str(error)) from None
    except MissingPackageError as error:
        raise Refused(str(error), "MissingRequirementError") from None
    return 0


def _print(output: Output, names: Sequence[str], rows: Iterator[list[tuple[Any, ...]]]) -> None:
    kind = _row_class(names)
    if output.form not in _STREAMED:
        held: list[Row] = []
        for some in rows:
            held += _rows(kind, some)
            if len(held) > TABLE_ROWS_MAX:
                output.note(f"only the first {TABLE_ROWS_MAX:,} rows are shown; -o jsonl and -o csv print all")
                break
        output.rows("rows", kind, held[:TABLE_ROWS_MAX])
        return
    is_first = True
    for some in rows:
        output.rows("rows", kind, _rows(kind, some), has_heading=is_first)
        is_first = False
    if is_first:
        output.rows("rows", kind, [])


def _row_class(names: Sequence[str]) -> type[Row]:
    """Returns a class of rows with these columns. A column name that occurs twice gets a number, as in DuckDB's own tables: `a`, `a_1`."""
    keys: list[str] = []
    for name in names:
        number, key = 0, name
        while key in keys:
            number += 1
            key = f"{name}_{number}"
        keys.append(key)

    class ResultRow(Row):
        """A row of the answer."""

        columns = tuple(Column(key, key) for key in keys)

    return ResultRow


def _rows(kind: type[Row], rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    return [kind(*map(_shown, row)) for row in rows]


def _shown(value: Any) -> Any:
    r"""Returns bytes as text, also inside lists and structs. As in DuckDB, a byte that is not printable ASCII, and the backslash, become an
    escape such as `\xFF`. Unlike in DuckDB, quotes are unchanged. Other values are unchanged."""
    if isinstance(value, bytes):
        return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in value)
    if isinstance(value, dict):
        return {key: _shown(part) for key, part in value.items()}
    return [_shown(part) for part in value] if isinstance(value, list | tuple) else value
