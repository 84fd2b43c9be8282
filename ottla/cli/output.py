"""Writes to standard output and standard error. Text for a terminal is escaped, because names and records from others must not control it.

Escapes replace control characters (ESC moves the cursor, clears the screen, renames the window, hides text), C1 controls, characters that
change the direction of writing, and invisible characters. The two zero-width joiners are not escaped, because scripts and emoji need them.
Newlines and tabs are not escaped, except in the cells of tables. Text for a file or a pipe is written unchanged, because programs need the
bytes. Cells of tables are the exception: their line ends and tabs are always escaped. Ottla's colours are added after the text was escaped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Marks, embeddings, overrides and isolates of writing direction, and the separators of lines and paragraphs."""

INVISIBLE = (0x00AD, 0x034F, 0x180E, 0x200B, *range(0x2060, 0x2066), 0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB)
TAGS = range(0xE0000, 0xE0080)
"""Zero-width tag characters. They make different names look the same."""

_CELL_ENDS = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_ESCAPES |= {code: f"\\u{code:04x}" for code in (*DIRECTIONS, *INVISIBLE)}
_ESCAPES |= {code: f"\\U{code:08x}" for code in TAGS}


def one_line(text: str) -> str:
    """Returns the text with escapes for line ends and tabs, which would add rows or columns to a table."""
    return text if text.isprintable() else text.translate(_CELL_ENDS)


def shown(text: str) -> str:
    """Returns the text with escapes for everything that could control a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_ESCAPES)


def shown_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Returns records with escapes for everything that could control a terminal, and for bytes that are not UTF-8."""
    return shown(str(data, "utf-8", "backslashreplace")).encode()


def bytes_writer(stream: TextIO) -> Callable[[bytes | bytearray | memoryview], object]:
    """Returns a function that writes records to the stream: with escapes on a terminal, otherwise unchanged."""
    write = stream.buffer.write
    return (lambda data: write(shown_bytes(data))) if stream.isatty() else write


_RESET = "\x1b[0m"


def wants_colour(stream: TextIO, *, is_forbidden: bool = False) -> bool:
    """Returns whether to use colour: on a terminal other than TERM=dumb, or with FORCE_COLOR, but never with NO_COLOR."""
    if is_forbidden or os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "") not in ("", "0") or (os.environ.get("TERM") != "dumb" and stream.isatty())


def write(text: str, colour: str = "") -> None:
    """Writes to stdout. Escapes the text on a terminal, because it may contain names from others; `colour` is not escaped."""
    _write(sys.stdout, text, colour)


def write_error(text: str, colour: str = "") -> None:
    """Writes to stderr. Flushes stdout first, so that the texts keep their order if both streams are the same pipe or file."""
    sys.stdout.flush()
    _write(sys.stderr, text, colour)


def _write(stream: TextIO, text: str, colour: str) -> None:
    shown_text = shown(text) if stream.isatty() else text
    stream.write(f"{colour}{shown_text}{_RESET}" if colour else shown_text)
