"""Tables in `--help` and docs/reference/cli.md, for commands whose arguments have a syntax of their own. Imported for help only."""

from __future__ import annotations

from typing import NamedTuple

WAYS_OF_WRITING = "\\n newline, \\t tab, \\r return, \\\\ backslash, \\xNN a byte"


class HelpTable(NamedTuple):
    """A title, and rows of a word and its meaning."""

    title: str
    rows: tuple[tuple[str, str], ...]


VERBS = HelpTable(
    "verbs of -f",
    (
        ("%s, %v", "the value"),
        ("%k", "the key"),
        ("%v{hex}, %k{base64}", "the value, the key, in hexadecimal digits or in base64"),
        ("%h", "the headers: name=value,name=value"),
        ("%t", "the topic"),
        ("%p", "the partition"),
        ("%o", "the offset"),
        ("%T", "the timestamp, in milliseconds since 1970"),
        ("%S, %K", "the size of the value, of the key, in bytes; -1 if there is none"),
        ("%R", "the size of the value as four bytes, before a binary value"),
        ("%%", "a percent sign"),
        ("otherwise", WAYS_OF_WRITING),
    ),
)
READ_VERBS = HelpTable(
    "verbs of --format",
    (
        ("%s, %v", "the value"),
        ("%k", "the key"),
        ("%v{hex}, %k{base64}", "the value, the key, in hexadecimal digits or in base64"),
        ("%h", "the headers: name:value,name:value"),
        ("%%", "a percent sign"),
        ("otherwise", f"text that has to stand there; {WAYS_OF_WRITING}"),
    ),
)
STARTS = HelpTable(
    "where -o begins and ends",
    (
        ("beginning, end", "the oldest record, the next one"),
        ("stored", "where the group stands (-g)"),
        ("N, -N", "offset N; N records before the end"),
        ("s@TIME, @TIME", "the first record at that time or later"),
        ("e@TIME", "and this is where it ends; may stand beside a start"),
        (":end", "everything that is there now"),
        ("A:B, A:, :B", "from offset A up to B, but without B"),
        ("A-B", "from offset A to B, both included"),
        ("@TIME:TIME, @:TIME", "between two times, without the second: @-1h:-1s leaves out what is younger than a second"),
        ("json, csv ...", "not a start but the form, as with --output"),
        ("TIME", "2026-01-31, 2026-01-31T12:00:00Z, milliseconds since 1970, -90s, -15m, -1h, -7d"),
    ),
)
WHERE = HelpTable(
    "expressions of --where",
    (
        ("key, value", "parsed if it is JSON, else text"),
        ("topic, partition, offset, timestamp, headers", "the record's other parts"),
        ("value.user.id, headers['x'], value[0]", "parts of a part; null if there is none"),
        ("== != < <= > >=", "comparison; false for what cannot be compared"),
        ("timestamp >= '2026-01-31'", "a text beside timestamp is a TIME as after -o @"),
        ("in, not in", "value.country in ['de', 'fr'], 'x' in value"),
        ("and, or, not, ( )", "joined conditions"),
        ("+ - * / %", "arithmetic"),
        ("'text', 10, 1.5, true, false, null", "constants"),
    ),
)

INPUTS = HelpTable(
    "forms of --input",
    (
        ("lines", "a value a line, or what -K, --format and the properties make of a line"),
        ("csv", 'a header row, then a JSON object a row: {"column":cell}; numbers, true, false are such, an empty cell is null'),
        ("", "what consume --output csv prints, known by its header row, gives the records back; an empty key or value is null"),
        ("json", "arrays, or values one after the other: a record each, with every digit of its numbers"),
        ("records", "what consume -J and --output json print, with keys, headers and timestamps"),
    ),
)

TABLES: dict[str, tuple[HelpTable, ...]] = {"consume": (VERBS, STARTS, WHERE), "produce": (READ_VERBS, INPUTS)}
