"""Makes text safe for a terminal: names and records of others must not steer it.

Escapes replace control characters (ESC moves the cursor, clears the screen, renames the window, hides text), C1 controls, characters that
change the direction of writing, and invisible characters. The two joiners of no width stay, since scripts and emoji need them. Line ends
and tabs stay, but not in the cells of tables. Text for a file or a pipe is not changed, except in cells: programs want the bytes. Our own
colours are put round text that is already safe (`output.write`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Marks, embeddings, overrides and isolates of direction; line and paragraph separators."""

INVISIBLE = (0x00AD, 0x034F, 0x180E, 0x200B, *range(0x2060, 0x2066), 0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB)
TAGS = range(0xE0000, 0xE0080)
"""Characters of no width: with them a name looks like another one."""

_CELL_ENDS = {ord("\n"): "\\n", ord("\t"): "\\t"}
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_ESCAPES |= {code: f"\\u{code:04x}" for code in (*DIRECTIONS, *INVISIBLE)}
_ESCAPES |= {code: f"\\U{code:08x}" for code in TAGS}


def one_line(text: str) -> str:
    """The text without line ends and tabs, which are shown as escapes: a name with one would be a row, or a column, of a table."""
    return text if text.isprintable() else text.translate(_CELL_ENDS)


def shown(text: str) -> str:
    """The text as it may go to a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_ESCAPES)


def shown_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Records as they may go to a terminal; bytes that are not UTF-8 are shown as escapes, too."""
    return shown(str(data, "utf-8", "backslashreplace")).encode()


def bytes_writer(stream: TextIO) -> Callable[[bytes | bytearray | memoryview], object]:
    """Writes records on stdout: as they are, or as they may go to a terminal if it is one."""
    write = stream.buffer.write
    return (lambda data: write(shown_bytes(data))) if stream.isatty() else write
