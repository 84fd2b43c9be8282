"""The bytes of a text in which people write bytes: digits with or without something between them, a dump, a literal of C or Python.

A dump is known by its offsets, which must fit what stands beside them: those of xxd, `hexdump -C`, hexdump (words of two bytes, the lower
one first) and `od -A x -t x1` are read, with `*` for rows that repeat the one before. Left out: dumps in octal or decimal numbers.
"""

from __future__ import annotations

import ast
import re

_ROW = re.compile(r"\s*(?:0x)?([0-9a-fA-F]{4,16})(:?)(\s.*|)$")
_PYTHON = re.compile(r"""b?(?P<quote>['"])(?P<inside>.*)(?P=quote)$""", re.DOTALL)
_WORDS_OFFSET_DIGITS = 7
_HEX = re.compile("[0-9a-fA-F]+")


def from_digits(text: str) -> bytes | None:
    """The bytes, or None if it is none of these forms."""
    lines = [line for line in text.splitlines() if line.strip()]
    data = _from_dump(lines)
    if data is None:
        data = _from_literal(text.strip())
    if data is not None:
        return data
    if len(lines) > 1 and all((row := _ROW.match(line)) and row[2] for line in lines):
        return None  # a dump whose offsets do not fit: something is missing
    start, end = text.find("{"), text.rfind("}")
    digits = re.sub(r"0x|\\x|[\s:,;\"']", "", text[start + 1 : end] if 0 <= start < end else text)
    return bytes.fromhex(digits) if digits and len(digits) % 2 == 0 and _HEX.fullmatch(digits) else None


def _from_literal(text: str) -> bytes | None:
    """`b"..."` of Python, also when there is more in it than `\\x..`."""
    found = _PYTHON.match(text)
    if found is None or not (text[0] == "b" or "\\" in found["inside"]):
        return None
    try:
        data = ast.literal_eval(text if text[0] == "b" else "b" + text)
    except (SyntaxError, ValueError):
        return None
    return data if isinstance(data, bytes) else None


def _from_dump(lines: list[str]) -> bytes | None:
    data, row, first, is_repeated = bytearray(), b"", -1, False
    for number, line in enumerate(lines):
        if line.strip() == "*" and data:
            is_repeated = True
            continue
        found = _ROW.match(line)
        if found is None:
            return None
        offset = int(found[1], 16)
        first = offset if first < 0 else first
        if is_repeated and row:
            data += row * max(-(-(offset - first - len(data)) // len(row)), 0)
            is_repeated = False
        if not found[3].strip():
            # The end, without bytes of its own; words may have brought one byte too many.
            is_end = number == len(lines) - 1 > 0 and 0 <= len(data) - (offset - first) <= 1
            return bytes(data[: offset - first]) if is_end else None
        bytes_of_row = _row_bytes(found[3], has_colon=bool(found[2]), is_words=len(found[1]) == _WORDS_OFFSET_DIGITS)
        if offset - first != len(data) or bytes_of_row is None:
            return None
        row = bytes_of_row
        data += row
    # One line alone might be digits that happen to have a blank in them; a colon or a column of text tells.
    return bytes(data) if data and (len(lines) > 1 or ":" in lines[0] or "|" in lines[0]) else None


def _row_bytes(text: str, *, has_colon: bool, is_words: bool) -> bytes | None:
    text = text.partition("|")[0].partition(">")[0]
    if has_colon:
        text = re.split(r"\s{2,}", text.strip(), maxsplit=1)[0]  # behind two blanks xxd shows the same as text
    groups = text.split()
    if not groups or any(len(group) % 2 or not _HEX.fullmatch(group) for group in groups):
        return None
    if is_words and not has_colon and all(len(group) == 4 for group in groups):
        return b"".join(bytes.fromhex(group)[::-1] for group in groups)
    return bytes.fromhex("".join(groups))
