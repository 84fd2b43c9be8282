"""`ssl.principal.mapping.rules`: from the subject of a certificate to the name of a principal (KIP-371).

Rules are tried in order: `RULE:pattern/replacement/` with an `L` or `U` behind it for small or capital letters, or `DEFAULT`, the subject
as it is. A pattern has to match the whole subject; `$1` in the replacement is its first group.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(,|$)", re.S)
_GROUP = re.compile(r"\$(\d)")

Mapper = Callable[[str], str | None]


class MappingError(ValueError):
    """Rules that cannot be read, in one sentence."""


def parse_rules(text: str) -> Mapper:
    """The function of the rules: None where no rule matches. Raises `MappingError`."""
    rules: list[tuple[re.Pattern[str] | None, str, str]] = []
    at = 0
    while at < len(text.strip()):
        found = _RULE.match(text, at)
        if found is None:
            raise MappingError(f"ssl.principal.mapping.rules cannot be read from character {at + 1} on")
        default, pattern, replacement, case, _ = found.groups()
        try:
            compiled = None if default else re.compile(pattern)
            written = _GROUP.sub(r"\\\1", (replacement or "").replace("\\/", "/"))
            if compiled is not None and any(int(number) > compiled.groups for number in _GROUP.findall(replacement)):
                raise MappingError(f"ssl.principal.mapping.rules: {replacement} names a group that {pattern} does not have")
            rules.append((compiled, written, case or ""))
        except re.error as error:
            raise MappingError(f"ssl.principal.mapping.rules: {pattern}: {error}") from None
        at = found.end()

    def map_subject(subject: str) -> str | None:
        for pattern, replacement, case in rules:
            if pattern is None:
                return subject
            match = pattern.fullmatch(subject)
            if match is not None:
                name = match.expand(replacement)
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        return None

    return map_subject if rules else lambda subject: subject
