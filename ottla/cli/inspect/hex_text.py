"""Reads bytes from text: hexadecimal digits with or without separators, a hex dump, or a literal of C or Python.

Text is a dump if each line begins with an offset: the offset of the first line plus the number of bytes between. Supported are dumps of
xxd, `hexdump -C`, hexdump (little-endian words of two bytes) and od (octal or decimal offsets, octal words or bytes), with `*` for repeated
rows. Dumps of signed or decimal numbers are not supported.
"""

from __future__ import annotations

import ast
import re

_ROW = re.compile(r"\s*(?:0x)?([0-9a-fA-F]{4,16})(:?)(\s.*|)$")
_PYTHON = re.compile(r"""b?(?P<quote>['"])(?P<inside>.*)(?P=quote)$""", re.DOTALL)
_WORDS_OFFSET_DIGITS = 7
_HEX = re.compile("[0-9a-fA-F]+")
_OCTAL = re.compile("[0-7]{3}|[0-7]{6}")
OFFSET_BASES = (16, 8, 10)


def from_digits(text: str) -> bytes | None:
    """Returns the bytes that a text describes; None if the text has none of the forms above."""
    lines = [line for line in text.splitlines() if line.strip()]
    for data in (*(_from_dump(lines, base) for base in OFFSET_BASES), _from_literal(text.strip())):
        if data is not None:
            return data
    if len(lines) > 1 and all((row := _ROW.match(line)) and (row[2] or len(row[1]) % 2) for line in lines):
        return None  # a dump with wrong offsets lacks bytes
    start, end = text.find("{"), text.rfind("}")
    digits = re.sub(r"0x|\\x|[\s:,;\"']", "", text[start + 1 : end] if 0 <= start < end else text)
    return bytes.fromhex(digits) if digits and len(digits) % 2 == 0 and _HEX.fullmatch(digits) else None


def _from_literal(text: str) -> bytes | None:
    """Evaluates a Python literal `b"..."`, or a C literal: a quoted text with a backslash. All escapes of Python are valid in both. Returns
    None for other text."""
    found = _PYTHON.match(text)
    if found is None or not (text[0] == "b" or "\\" in found["inside"]):
        return None
    try:
        data = ast.literal_eval(text if text[0] == "b" else "b" + text)
    except (SyntaxError, ValueError):
        return None
    return data if isinstance(data, bytes) else None


def _from_dump(lines: list[str], base: int) -> bytes | None:
    data, row, first, is_repeated = bytearray(), b"", -1, False
    for number, line in enumerate(lines):
        if line.strip() == "*" and data:
            is_repeated = True
            continue
        found = _ROW.match(line)
        if found is None:
            return None
        try:
            offset = int(found[1], base)
        except ValueError:
            return None
        first = offset if first < 0 else first
        if is_repeated and row:
            data += row * max(-(-(offset - first - len(data)) // len(row)), 0)
            is_repeated = False
        if not found[3].strip():
            # The last line of a dump may have only the total size. If the size is odd, the last word of two bytes has one byte too many.
            is_end = number == len(lines) - 1 > 0 and 0 <= len(data) - (offset - first) <= 1
            return bytes(data[: offset - first]) if is_end else None
        bytes_of_row = _row_bytes(found[3], has_colon=bool(found[2]), is_words=len(found[1]) == _WORDS_OFFSET_DIGITS)
        if offset - first != len(data) or bytes_of_row is None:
            return None
        row = bytes_of_row
        data += row
    # A single line without a colon or a text column is not a dump but plain digits with a blank.
    return bytes(data) if data and (len(lines) > 1 or ":" in lines[0] or "|" in lines[0]) else None


def _row_bytes(text: str, *, has_colon: bool, is_words: bool) -> bytes | None:
    text = text.partition("|")[0].partition(">")[0]
    if has_colon:
        text = re.split(r"\s{2,}", text.strip(), maxsplit=1)[0]  # xxd repeats the bytes as text after two blanks
    groups = text.split()
    if groups and not has_colon and all(_OCTAL.fullmatch(group) for group in groups) and len({*map(len, groups)}) == 1:
        size = len(groups[0]) // 3  # od prints octal bytes (3 digits) or words of two bytes (6 digits)
        numbers = [int(group, 8) for group in groups]
        return b"".join(number.to_bytes(size, "little") for number in numbers) if max(numbers) < 256**size else None
    if not groups or any(len(group) % 2 or not _HEX.fullmatch(group) for group in groups):
        return None
    if is_words and not has_colon and all(len(group) == 4 for group in groups):
        return b"".join(bytes.fromhex(group)[::-1] for group in groups)
    return bytes.fromhex("".join(groups))
