"""Standard output and standard error. Text is made safe for terminals, and coloured where that is wanted."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from ottla.cli.terminal import shown

_RESET = "\x1b[0m"


def wants_colour(stream: TextIO, *, is_forbidden: bool = False) -> bool:
    """Colour only for a terminal that can show it, or where FORCE_COLOR asks for it, and never against NO_COLOR."""
    if is_forbidden or os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "") not in ("", "0") or (os.environ.get("TERM") != "dumb" and stream.isatty())


def write(text: str, colour: str = "") -> None:
    """On stdout; `colour` is one of ours, the text may be of others."""
    _write(sys.stdout, text, colour)


def write_error(text: str, colour: str = "") -> None:
    """The same on stderr."""
    _write(sys.stderr, text, colour)


def _write(stream: TextIO, text: str, colour: str) -> None:
    shown_text = shown(text) if stream.isatty() else text
    stream.write(f"{colour}{shown_text}{_RESET}" if colour else shown_text)
