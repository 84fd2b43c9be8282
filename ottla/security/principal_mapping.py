"""`ssl.principal.mapping.rules`: maps the subject of a certificate to the name of a principal (KIP-371).

Rules are tried in order. A rule is `RULE:pattern/replacement/`, optionally followed by `L` or `U` for lower or upper case, or `DEFAULT`,
which keeps the subject. A pattern must match the whole subject; `$1` in the replacement is its first group.

Patterns have the syntax of RE2, without back references and look-around. Clients choose the subjects, and the event loop matches them. RE2
needs time that is linear in the length of the subject; Python's `re` took 6 s for a certificate of 321 names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(,|$)", re.S)
_PIECE = re.compile(r"\\(.)|\$(\d+)|([^\\$]+|.)", re.S)
"""An escaped character, a group, or other text of a replacement."""

NamePrincipal = Callable[[str], str | None]


class MappingError(ValueError):
    """The rules cannot be parsed. The message is one sentence."""


def parse_rules(text: str) -> NamePrincipal:
    """Returns a function that applies the rules; it returns None if no rule matches, and the subject if there are no rules. Raises
    `MappingError`."""
    rules: list[tuple[Any, list[str | int], str]] = []
    text, at = text.strip(), 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise MappingError(f"ssl.principal.mapping.rules cannot be read from character {at + 1} on")
        default, pattern, replacement, case, _ = found.groups()
        compiled = None if default else _compile(pattern)
        rules.append((compiled, _pieces(replacement or "", pattern, 0 if compiled is None else compiled.groups), case or ""))
        at = found.end()

    def map_subject(subject: str) -> str | None:
        for pattern, pieces, case in rules:
            if pattern is None:
                return subject
            match = pattern.fullmatch(subject)
            if match is not None:
                name = "".join(piece if isinstance(piece, str) else match[piece] or "" for piece in pieces)
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        return None

    return map_subject if rules else lambda subject: subject


def _compile(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise MappingError(f"ssl.principal.mapping.rules: {pattern}: {said} (the language is RE2's)") from None


def _pieces(replacement: str, pattern: str, groups: int) -> list[str | int]:
    """Splits a replacement into texts and group numbers. As in Java, `$12` is group 12, or group 1 and a 2 if there is no group 12. Raises
    `MappingError` for a group that the pattern does not have."""
    pieces: list[str | int] = []
    for escaped, digits, plain in _PIECE.findall(replacement):
        if not digits:
            pieces.append(escaped or plain)
            continue
        number, used = int(digits[0]), 1
        while used < len(digits) and number * 10 + int(digits[used]) <= groups:
            number, used = number * 10 + int(digits[used]), used + 1
        if number > groups:
            raise MappingError(f"ssl.principal.mapping.rules: {replacement} names a group that {pattern} does not have")
        pieces += [number, digits[used:]]
    return pieces
