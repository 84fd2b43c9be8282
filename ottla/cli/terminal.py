"""What is shown on a terminal: names and records of others must not steer it.

Control characters (ESC moves the cursor, clears the screen, renames the window), those of C1, and characters that turn the direction of
writing are shown as escapes. Line ends and tabs stay, but not in the cells of tables, and so do the colours that our own output has. What
goes into a file or a pipe is not changed, cells excepted: programs want the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TextIO

DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Marks, embeddings, overrides and isolates of direction; line and paragraph separators."""

_CELL_ENDS = {ord("\n"): "\\n", ord("\t"): "\\t"}
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_ESCAPES |= {code: f"\\u{code:04x}" for code in DIRECTIONS}
_COLOURS = re.compile("(\x1b\\[[0-9;]*m)")


def one_line(text: str) -> str:
    """The text without line ends and tabs, which are shown as escapes: a name with one would be a row, or a column, of a table."""
    return text if text.isprintable() else text.translate(_CELL_ENDS)


def shown(text: str) -> str:
    """The text as it may go to a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_ESCAPES)


def shown_with_colours(text: str) -> str:
    """As `shown`, for our own output, in which sequences for colours may stand."""
    if "\x1b" not in text:
        return shown(text)
    return "".join(part if number % 2 else shown(part) for number, part in enumerate(_COLOURS.split(text)))


def shown_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Records as they may go to a terminal; bytes that are not UTF-8 are shown as escapes, too."""
    return shown(str(data, "utf-8", "backslashreplace")).encode()


def bytes_writer(stream: TextIO) -> Callable[[bytes | bytearray | memoryview], object]:
    """Writes records on stdout: as they are, or as they may go to a terminal if it is one."""
    write = stream.buffer.write
    return (lambda data: write(shown_bytes(data))) if stream.isatty() else write
