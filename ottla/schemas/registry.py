"""Client of a schema registry's HTTP API: gets a schema by id, gets the latest schema of a subject, or stores a schema. With a registry
each value of a record begins with a header: a zero byte, four bytes of schema id, and for Protobuf the message's path in the schema. The
schema of an id is requested once. A schema that refers to other schemas of the registry is refused.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import urllib.parse
from collections.abc import Sequence
from typing import Any

from ottla.base.errors import WireError
from ottla.schemas.errors import Misfit, RegistryAwayError, RegistryError, SchemaUsageError
from ottla.schemas.formats import Decoder, Format, Schema, make_schema
from ottla.wire.primitives import read_varint, varint

MAGIC = 0
HEADER = struct.Struct(">bI")
REGISTRY_SECONDS_MAX = 10.0
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Registry:
    """A schema registry at an address, which may contain user and password. All methods raise `RegistryError`. Methods that
    return or use a schema raise SchemaUsageError if its text is not valid."""

    def __init__(self, url: str) -> None:
        if not _is_address(url):
            raise SchemaUsageError(f"{url.rpartition('@')[2]!r} is not http://HOST:PORT or https://HOST:PORT", "registry")
        self._url = url.rstrip("/")
        self._schemas: dict[int, Schema] = {}
        self._decoders: dict[tuple[int, tuple[int, ...]], Decoder] = {}

    def decode(self, data: bytes) -> Any:
        """Decodes a value by the schema that its header names. Raises `Misfit` without a header, or if the value does not fit."""
        if not is_framed(data):
            raise Misfit("it has no header with the id of a schema")
        number = HEADER.unpack_from(data)[1]
        found = self.schema(number)
        path, start = message_path(data) if found.has_path else ((), HEADER.size)
        decoder = self._decoders.get((number, path))
        if decoder is None:
            decoder = self._decoders[number, path] = found.decoder(None, path)
        return decoder(data[start:])

    def schema(self, number: int) -> Format:
        """Returns the schema with this id, parsed. Requests the schema only once."""
        return self.schema_text(number).format()

    def schema_text(self, number: int) -> Schema:
        """Returns the schema with this id, not parsed. Requests the schema only once."""
        found = self._schemas.get(number)
        if found is None:
            where = f"{self._url}/schemas/ids/{number}"
            found = self._schemas[number] = _schema_in(request_json(where), where)
        return found

    def has_requested(self, number: int) -> bool:
        """Returns whether the schema with this id was already requested."""
        return number in self._schemas

    def latest(self, subject: str) -> tuple[int, Schema]:
        """Requests the newest version of a subject. Returns its id and schema."""
        where = f"{self._url}/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest"
        answer = request_json(where)
        number = _id_of(answer, where)
        self._schemas[number] = _schema_in(answer, where)
        return number, self._schemas[number]

    def register(self, subject: str, text: str, kind: str) -> int:
        """Stores a schema as a version of a subject, unless the subject has it already. Returns the schema's id."""
        where = f"{self._url}/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        return _id_of(request_json(where, {"schema": text, "schemaType": kind}), where)


def _is_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises ValueError unless it is a valid port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"[\s\x00-\x1f\x7f]", url)


def _id_of(answer: dict[str, Any], where: str) -> int:
    number = answer.get("id")
    if not isinstance(number, int) or not 0 <= number < 1 << 32:
        raise RegistryError(f"{_without_login(where)} answers without the id of a schema")
    return number


def _schema_in(answer: dict[str, Any], url: str) -> Schema:
    where = _without_login(url)
    text, kind = answer.get("schema"), str(answer.get("schemaType", "AVRO")).upper()
    if not isinstance(text, str) or answer.get("references"):
        raise RegistryError(f"{where}: a schema that refers to others is not offered" if text else f"{where} has no schema")
    if kind not in ("AVRO", "JSON", "PROTOBUF"):
        raise RegistryError(f"{where} has a schema of type {kind}; known are AVRO, JSON, PROTOBUF")
    return make_schema(kind, text, where)


def request_json(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Sends a GET, or a POST if there is a body. Returns the JSON object of the answer. Raises `RegistryError`. Returns an empty
    object for JSON of another type."""
    import http.client
    import urllib.error
    import urllib.request

    parts = urllib.parse.urlsplit(url)
    plain = _without_login(url)
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(plain, data, {"Accept": f"{MEDIA_TYPE}, application/json", "Content-Type": MEDIA_TYPE})
    if parts.username is not None:
        login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=REGISTRY_SECONDS_MAX) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise RegistryError(f"{plain} answers {error.code} {_reason(error.read(), error.reason)}", error.code) from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        raise RegistryAwayError(f"no schema registry at {plain}: {(getattr(cause, 'strerror', None) or str(cause)).lower()}") from None
    except ValueError:
        raise RegistryError(f"{plain} does not answer with JSON") from None
    return found if isinstance(found, dict) else {}


def _reason(body: bytes, otherwise: str) -> str:
    """Returns the message in the registry's error. If the error has no message, returns `otherwise`, which is the reason of the HTTP
    status."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return otherwise


def _without_login(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def is_framed(data: bytes) -> bool:
    """Returns whether a value begins with a header: a zero byte and at least four more bytes."""
    return len(data) >= HEADER.size and data[0] == MAGIC


def header(number: int, path: Sequence[int] = ()) -> bytes:
    """Returns the header of a value: the id of its schema, and for Protobuf the message's path."""
    if not path:
        return HEADER.pack(MAGIC, number)
    return HEADER.pack(MAGIC, number) + (b"\0" if tuple(path) == (0,) else b"".join(map(varint, (len(path), *path))))


def message_path(data: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the path of the message that the header of a Protobuf value names, and the position after the header. Raises `Misfit`."""
    try:
        count, position = read_varint(data, HEADER.size)
        if count == 0:
            return (0,), position
        path = []
        for _ in range(count):
            place, position = read_varint(data, position)
            path.append(place)
    except WireError:
        raise Misfit("its header is cut short") from None
    return tuple(path), position
