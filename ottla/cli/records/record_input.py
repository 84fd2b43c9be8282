"""Parses a line of text as a record: Kafka's console reader properties, kcat's delimiter, or a layout such as `%k %v %h`.

Properties: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, headers.key.separator, null.marker,
ignore.error. A line is HEADERS <delimiter> KEY <separator> VALUE. A line without an expected separator is refused with its number. With
`ignore.error` the missing part is left out instead, and the rest of the line is the value.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.cli.command import Refused, UsageError

Headers = tuple[tuple[str, bytes | None], ...]

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}
_PARTS = {"k": "key", "v": "value (%v or %s)", "h": "headers"}
_TOKEN = re.compile(r"%([kvsh%])(?:(?<=[kvs])\{(hex|base64)\})?")


class Input(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


def is_on(properties: Mapping[str, str], name: str, default: bool = False) -> bool:
    return properties.get(name, "true" if default else "false").strip().lower() == "true"


def unescape(text: str) -> str:
    r"""Replaces the escapes `\t`, `\n`, `\r`, `\0`, `\\` and `\xNN`, which shells do not replace."""
    hexadecimal = re.sub(r"\\x([0-9a-fA-F]{2})", lambda found: chr(int(found.group(1), 16)), text)
    return re.sub(r"\\([tnr0\\])", lambda found: _ESCAPES[found.group(1)], hexadecimal)


class LineReader:
    """Parses lines by properties, a key delimiter or a layout. `key` and `headers` are for every record."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        key: bytes | None = None,
        key_delimiter: bytes | None = None,
        headers: Headers = (),
        is_empty_null: bool = False,
        layout: str | None = None,
    ) -> None:
        self._key = key
        self._headers = headers
        self._is_empty_null = is_empty_null
        self._parses_key = is_on(properties, "parse.key") or key_delimiter is not None
        self._parses_headers = is_on(properties, "parse.headers")
        self._key_separator = key_delimiter if key_delimiter is not None else properties.get("key.separator", "\t").encode()
        self._headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._header_key_separator = properties.get("headers.key.separator", ":").encode()
        marker = properties.get("null.marker")
        self._null_marker = marker.encode() if marker is not None else None
        self._ignores_errors = is_on(properties, "ignore.error")
        self._layout: re.Pattern[bytes] | None = None
        self._encodings: dict[str, str] = {}
        if layout is not None:
            self._layout, self._encodings = parse_layout(layout)
        self._number = 0

    @property
    def is_plain(self) -> bool:
        """Whether each line is only a value, unchanged."""
        parses = self._parses_key or self._parses_headers or self._layout is not None
        return not (parses or self._key is not None or self._headers or self._is_empty_null or self._null_marker is not None)

    def read(self, line: bytes) -> Input:
        """Parses the next line. Raises `Refused` with the line's number if it does not have the expected form."""
        self._number += 1
        if self._layout is not None:
            return self._by_layout(line)
        rest = line
        headers, key = self._headers, self._key
        if self._parses_headers:
            text, found, after = rest.partition(self._headers_delimiter)
            if found:
                headers = headers + self._read_headers(text)
                rest = after
            elif not self._ignores_errors:
                raise self._misfit("headers delimiter", line)
        if self._parses_key:
            text, found, after = rest.partition(self._key_separator)
            if found:
                key = self._nullable(text)
                rest = after
            elif not self._ignores_errors:
                raise self._misfit("key separator", line)
        return Input(key, self._value(rest), headers)

    def _value(self, text: bytes) -> bytes | None:
        return None if self._is_empty_null and not text else self._nullable(text)

    def _nullable(self, text: bytes) -> bytes | None:
        return None if self._null_marker is not None and text == self._null_marker else text

    def _read_headers(self, text: bytes) -> Headers:
        found: list[tuple[str, bytes | None]] = []
        if self._null_marker is not None and text == self._null_marker:
            return ()
        for part in text.split(self._headers_separator) if text else []:
            name, separator, value = part.partition(self._header_key_separator)
            if not separator and not self._ignores_errors:
                raise self._misfit("separator between a header's key and value", part)
            if self._null_marker is not None and name == self._null_marker:
                marker = name.decode("utf-8", "replace")
                message = f"line {self._number} has a header whose key is the null marker {marker!r}; a key cannot be null"
                raise Refused(message, "INVALID_RECORD")
            found.append((name.decode("utf-8", "surrogateescape"), self._nullable(value) if separator else None))
        return tuple(found)

    def _by_layout(self, line: bytes) -> Input:
        assert self._layout is not None
        match = self._layout.fullmatch(line)
        if match is None:
            if self._ignores_errors:
                return Input(self._key, self._value(line), self._headers)
            raise self._misfit("text of --format", line)
        parts = match.groupdict()
        for name, encoding in self._encodings.items():
            parts[name] = self._decoded(parts[name], encoding, line)
        headers = self._headers + (self._read_headers(parts["h"]) if parts.get("h") is not None else ())
        key = self._nullable(parts["k"]) if parts.get("k") is not None else self._key
        value = parts.get("v")
        return Input(key, self._value(value) if value is not None else None, headers)

    def _decoded(self, text: bytes, encoding: str, line: bytes) -> bytes:
        try:
            return bytes.fromhex(text.decode("ascii")) if encoding == "hex" else base64.b64decode(text, validate=True)
        except ValueError:
            raise self._misfit(f"text in {encoding}", line) from None

    def _misfit(self, what: str, text: bytes) -> Refused:
        return Refused(f"line {self._number} has no {what}: {text[:80].decode('utf-8', 'replace')!r}", "INVALID_RECORD")


def parse_layout(text: str) -> tuple[re.Pattern[bytes], dict[str, str]]:
    """Compiles a layout such as `%k;%v{hex}` to a regular expression. Also returns the encoding of each encoded part. Raises UsageError.
    Each part matches as little as possible, except a part at the end of the layout."""
    pattern = b""
    encodings: dict[str, str] = {}
    position = 0
    seen: set[str] = set()
    layout = unescape(text)
    tokens = list(_TOKEN.finditer(layout))
    for number, token in enumerate(tokens):
        pattern += re.escape(layout[position : token.start()].encode())
        position = token.end()
        letter = token.group(1)
        if letter == "%":
            pattern += b"%"
            continue
        name = "v" if letter == "s" else letter
        if name in seen:
            raise UsageError(f"--format {text!r} names the {_PARTS[name]} twice")
        seen.add(name)
        if token.group(2):
            encodings[name] = token.group(2)
        is_last = number == len(tokens) - 1 and position == len(layout)
        pattern += b"(?P<%b>.*%b)" % (name.encode(), b"" if is_last else b"?")
    if not seen:
        raise UsageError(f"--format {text!r} has none of %k, %v, %h")
    return re.compile(pattern + re.escape(layout[position:].encode()), re.DOTALL), encodings
