"""Regular expressions that clients send and that match whole names: of topics (KIP-848), transactional ids (KIP-1152) and clients
(KIP-714).

The language is RE2's (https://github.com/google/re2/wiki/Syntax), which Kafka's RE2J reads as well: no back references and no look-around,
so that a match takes time linear in the name. Python's `re` cannot be used: a pattern such as `(a+)+$` would block the event loop for
years. The library is loaded with the first pattern, not at the start.

A pattern is refused if its length, the memory of its program and states, or the number of its instructions is above a limit, so that
matching a topic's name takes at most a millisecond. The limit on instructions is lower for patterns with repetitions, because most of their
instructions can be active at once.
"""

from __future__ import annotations

from typing import Any

PATTERN_LENGTH_MAX = 512
MEMORY_BYTES_MAX = 256 << 10
INSTRUCTIONS_MAX = 600
INSTRUCTIONS_WITH_REPETITION_MAX = 350

_REPETITIONS = frozenset("*+?{")


class PatternError(ValueError):
    """The text is not a regular expression of RE2, or is above a limit."""


class NamePattern:
    """One compiled pattern."""

    __slots__ = ("_of_ascii", "_of_unicode", "_text", "size")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise PatternError(f"longer than {PATTERN_LENGTH_MAX} characters")
        self._text = text
        # Compiled for single bytes, `.` is one instruction; for UTF-8 it is many. Names of topics are ASCII.
        self._of_ascii = _compile(text, is_ascii=text.isascii())
        self._of_unicode: Any = None if text.isascii() else self._of_ascii
        most = INSTRUCTIONS_MAX if _REPETITIONS.isdisjoint(text) else INSTRUCTIONS_WITH_REPETITION_MAX
        if self._of_ascii.programsize > most:
            raise PatternError("too many repetitions or characters")
        self.size: int = self._of_ascii.programsize
        """Number of instructions. A match takes at most that many steps for each letter of a name."""

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. For a name that is not ASCII it may raise `PatternError`, unless `compile_for_unicode` was
        called before."""
        if name.isascii():
            return self._of_ascii.fullmatch(name) is not None
        self.compile_for_unicode()
        return self._of_unicode.fullmatch(name) is not None

    def compile_for_unicode(self) -> None:
        """Compiles the pattern also for names that are not ASCII. Raises `PatternError` if the program for such names is too large."""
        if self._of_unicode is None:
            self._of_unicode = _compile(self._text, is_ascii=False)


def _compile(text: str, *, is_ascii: bool) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    if is_ascii:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(text.encode("latin-1") if is_ascii else text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
    finally:
        re2.purge()  # The library's cache would keep every pattern.
