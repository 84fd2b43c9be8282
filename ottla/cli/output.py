"""Writes to standard output and standard error. Escapes text for terminals, and colours it on request."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from ottla.cli.terminal import shown

_RESET = "\x1b[0m"


def wants_colour(stream: TextIO, *, is_forbidden: bool = False) -> bool:
    """Returns whether to use colour: on a terminal other than TERM=dumb, or with FORCE_COLOR, but never with NO_COLOR."""
    if is_forbidden or os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "") not in ("", "0") or (os.environ.get("TERM") != "dumb" and stream.isatty())


def write(text: str, colour: str = "") -> None:
    """Writes to stdout. Escapes the text on a terminal, because it may contain names from others; `colour` is written as it is."""
    _write(sys.stdout, text, colour)


def write_error(text: str, colour: str = "") -> None:
    """Writes to stderr, as `write` does to stdout."""
    _write(sys.stderr, text, colour)


def _write(stream: TextIO, text: str, colour: str) -> None:
    shown_text = shown(text) if stream.isatty() else text
    stream.write(f"{colour}{shown_text}{_RESET}" if colour else shown_text)
