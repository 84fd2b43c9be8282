"""Pasted bytes: the output of the usual programs, and literals."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.inspect.hex_text import from_digits

DUMPERS = (
    "od -A x -t x1", "od -A x -t x1z", "od", "od -b", "od -x", "od -t x1", "od -A d -t x1", "od -A d", "od -A x",
    "xxd", "xxd -p", "xxd -i", "hexdump -C", "hexdump",
)  # fmt: skip
"""Only od is everywhere; what the others print stands in the rows below too."""
LONG = bytes(range(40)) + bytes(64) + b"|12  34|\n\x00\xff*"


@pytest.mark.parametrize(
    "text",
    [
        "00 0a ff",
        "00:0A:FF",
        "0x00 0x0a 0xff",
        "0x00, 0x0a, 0xff",
        '"\\x00\\x0a\\xff"',
        r"b'\x00\n\xff'",
        '"\\x00\\n\\xff"',
        "unsigned char f[] = {\n  0x00, 0x0a,\n  0xff\n};\nunsigned int f_len = 3;\n",
        "00000000: 000a ff                                  ...",
        "00000000  00 0a ff                                          |...|",
        "00000000  00 0a ff                                          |...|\n00000003\n",
        "000000 00 0a ff\n000003\n",
        "0000000 0a00 00ff\n0000003\n",
        "0x0000:  000a ff",
        "0000000 005000 000377\n0000003\n",
        "0000000 000 012 377\n0000003\n",
    ],
)
def test_layouts_of_digits(text: str) -> None:
    assert from_digits(text) == b"\0\x0a\xff"


CUT = "0000000 000022\n0000020 000377\n0000021\n"


@pytest.mark.parametrize("text", ["", "0", "xyz", "00 0g", "b'x", "b'\\xz'", "0000: 00\n0005: 00\n", "*", "{}", CUT])
def test_what_is_no_digits(text: str) -> None:
    assert from_digits(text) is None


@pytest.mark.parametrize("command", [command for command in DUMPERS if which(command.split()[0]) is not None])
@pytest.mark.parametrize("data", [LONG, LONG[:-1], b"\x00\x12"])
def test_what_programs_print_is_read_back(command: str, data: bytes, tmp_path: Path) -> None:
    program, *options = command.split()
    file = tmp_path / "frame"
    file.write_bytes(data)
    found = subprocess.run([program, *options, str(file)], capture_output=True, text=True, check=True)
    assert from_digits(found.stdout) == data


@given(st.binary(min_size=1, max_size=80))
def test_python_writes_what_is_read(data: bytes) -> None:
    assert from_digits(repr(data)) == data
    assert from_digits(data.hex(" ")) == data


@given(st.text(max_size=200))
def test_any_text_is_bytes_or_nothing(text: str) -> None:
    assert isinstance(from_digits(text), bytes | None)
