"""Decodes records for the console's pages: by the schemas of files, or by the schemas that a registry has for values and keys with its
header. `optional.py` loads it.

A record that no schema decodes is shown as it is, with the reason. Many records of a page may have the same problem, so for `PAUSE_S` a
registry is not asked again for a schema that it has refused, and for none after it was not reached or has refused `REFUSALS_MAX` schemas.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from ottla.cli.command import Args, UsageError
from ottla.cli.schemas.record_schemas import as_command_errors, as_json
from ottla.console.records import Decoded, undecoded
from ottla.schemas.errors import Misfit, RegistryAwayError, SchemaError
from ottla.schemas.formats import Decoder, file_format
from ottla.schemas.registry import HEADER, Registry, is_framed
from ottla.wire.records import Record

PAUSE_S = 10.0
REFUSALS_MAX = 3
ALL = -1
"""The key of a pause for all schemas."""


class PageDecoder:
    """See the module. `files` has the decoder of the values of each topic with a file. Threads may share it."""

    def __init__(self, registry: Registry | None, files: Mapping[str, Decoder]) -> None:
        self._registry = registry
        self._files = files
        self._pauses: dict[int, tuple[float, str]] = {}
        """By the id of a schema, or `ALL`: the end of the pause, and its reason."""

    def __call__(self, topic: str, record: Record) -> Decoded:
        decode = self._files.get(topic)
        value, value_note = self._by_registry(record.value) if decode is None else _decoded(decode, record.value, "its file")
        key, key_note = self._by_registry(record.key)
        notes = [value_note, f"key: {key_note}" if key_note else ""]
        return undecoded(topic, record)._replace(record=record._replace(value=value, key=key), schema="; ".join(filter(None, notes)))

    def _by_registry(self, data: bytes | None) -> tuple[bytes | None, str]:
        """Returns bytes as JSON and the name of their schema; unchanged with the reason, or with an empty text without a header."""
        if self._registry is None or data is None or not is_framed(data):
            return data, ""
        number = HEADER.unpack_from(data)[1]
        if reason := self._pause(number):
            return data, reason
        try:
            return _decoded(self._registry.decode, data, f"schema {number}")
        except RegistryAwayError as error:
            reason, number = error.text, ALL
        except SchemaError as error:
            reason = error.text
            if len(self._pauses) >= REFUSALS_MAX:
                number = ALL
        self._pauses[number] = time.monotonic() + PAUSE_S, reason
        return data, reason

    def _pause(self, number: int) -> str:
        """Returns why the registry is not asked for a schema now, or an empty text."""
        assert self._registry is not None
        now = time.monotonic()
        self._pauses = {key: pause for key, pause in self._pauses.items() if pause[0] > now}
        if self._registry.has_requested(number):
            return ""
        return self._pauses.get(number, self._pauses.get(ALL, (0.0, "")))[1]


def _decoded(decode: Decoder, data: bytes | None, schema: str) -> tuple[bytes | None, str]:
    if data is None:
        return None, ""
    try:
        return as_json(decode(bytes(data))), f"by {schema}"
    except (Misfit, RecursionError) as error:
        return data, f"does not fit {schema}: {error}"


@as_command_errors()
def make_page_decoder(args: Args) -> PageDecoder:
    """Returns the decoder of the console's options. Raises UsageError for a file that is no schema."""
    files, messages = _pairs("--schema", "FILE", args.schema), _pairs("--message", "NAME", args.message)
    if unknown := sorted(messages.keys() - files.keys()):
        raise UsageError(f"--message goes with --schema {unknown[0]}=FILE")
    decoders = {topic: file_format(path).decoder(messages.get(topic)) for topic, path in files.items()}
    return PageDecoder(Registry(args.registry) if args.registry else None, decoders)


def _pairs(option: str, what: str, texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        topic, _, rest = text.partition("=")
        if not topic or not rest:
            raise UsageError(f"{option} {text!r} is not TOPIC={what}")
        if topic in found:
            raise UsageError(f"{option} names the topic {topic!r} twice")
        found[topic] = rest
    return found
