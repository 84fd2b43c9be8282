"""Explains record batches and messages of the protocol byte by byte. Messages are explained by their declarations (`wire/schema.py`).

Records of a compressed batch have positions in the decompressed bytes. If the CRC of a batch is wrong, its records are shown as bytes. The
compiled decoders do not record positions. This module is therefore a second, slower decoder, and a test compares the values of both.
Malformed bytes raise `WireError`; the reader keeps the spans before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.analysis.spans import SpanReader, as_moment
from ottla.base.counted import counted
from ottla.base.errors import ErrorCode, WireError
from ottla.wire.apis import API_NAMES
from ottla.wire.batch_header import (
    BATCH_LENGTH_MIN,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    read_batch_header,
    record_section,
)
from ottla.wire.compression import CODEC_NAMES
from ottla.wire.primitives import read_uvarint
from ottla.wire.schema import FIXED, Field, Message, Struct, is_flexible

CONTROL_KINDS = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}


def codec_name(attributes: int) -> str:
    codec = attributes & CODEC_MASK
    return CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}"


def attribute_words(attributes: int) -> str:
    """Describes the attribute bits of a batch in words."""
    words = [codec_name(attributes), "LogAppendTime" if attributes & TIMESTAMP_TYPE_BIT else "CreateTime"]
    bits = ((TRANSACTIONAL_BIT, "transactional"), (CONTROL_BIT, "control"), (DELETE_HORIZON_BIT, "delete horizon"))
    return ", ".join(words + [word for bit, word in bits if attributes & bit])


def walk_batches(reader: SpanReader, end: int) -> None:
    """Explains all complete batches before `end`. An incomplete batch at the end, as in fetch responses, is a single span."""
    while reader.position < end:
        size = None
        if end - reader.position >= BATCH_OVERHEAD:
            size = read_batch_header(reader.data, reader.position).size_bytes
        if size is None or size > end - reader.position:
            reader.octets("incomplete batch", end - reader.position, "the reader asks for it again from its first offset")
            return
        walk_batch(reader)


def walk_batch(reader: SpanReader) -> None:
    start = reader.position
    size = read_batch_header(reader.data, start).size_bytes
    if size > len(reader.data) - start:
        raise WireError(f"the batch at {reader.base + start} has {size} bytes, {len(reader.data) - start} are left")
    is_valid = check_crc(reader.data, start, size)
    with reader.inside("batch", f"{size} bytes" + ("" if is_valid else ", its CRC is wrong")):
        header = _walk_header(reader, is_valid)
        if header.magic != MAGIC:
            raise WireError(f"the batch at {reader.base + start} has magic {header.magic}, only {MAGIC} can be read")
        if not is_valid:
            # If the CRC is wrong, the bytes may be damaged, so they are shown without an explanation.
            reader.octets("records", start + size - reader.position, "not explained: the CRC is wrong")
        elif header.codec:
            batch = reader.data[start : start + size]
            packed = start + size - reader.position
            section = record_section(batch, header)
            reader.octets("records", packed, f"{codec_name(header.attributes)}: {packed} bytes packed, {len(section)} unpacked")
            unpacked = reader.unpacked(section)
            _walk_records(unpacked, header)
            if unpacked.left:
                raise WireError(f"the batch at {reader.base + start} has {unpacked.left} unpacked bytes after its last record")
        else:
            _walk_records(reader, header)
            if reader.position != start + size:
                begin, end, last = (reader.base + place for place in (start, start + size, reader.position))
                raise WireError(f"the batch at {begin} ends at {end}, its records at {last}")


def _walk_header(reader: SpanReader, is_valid: bool) -> BatchHeader:
    start = reader.position
    header = read_batch_header(reader.data, start)
    reader.fixed("base_offset", "q", "offset of the first record")
    reader.fixed("batch_length", "i", f"bytes that follow; {LOG_OVERHEAD} with the two fields so far, at least {BATCH_LENGTH_MIN}")
    reader.fixed("partition_leader_epoch", "i")
    reader.fixed("magic", "b")
    reader.fixed("crc", "I", "CRC-32C of the bytes that follow: " + ("right" if is_valid else "WRONG"))
    reader.fixed("attributes", "h", attribute_words)
    reader.fixed("last_offset_delta", "i", f"last offset {header.last_offset}")
    reader.fixed("base_timestamp", "q", as_moment)
    reader.fixed("max_timestamp", "q", as_moment)
    reader.fixed("producer_id", "q", "" if header.producer_id >= 0 else "not idempotent")
    reader.fixed("producer_epoch", "h")
    reader.fixed("base_sequence", "i", "" if header.base_sequence < 0 else f"last sequence {header.last_sequence}")
    reader.fixed("record_count", "i")
    return header


def _walk_records(reader: SpanReader, header: BatchHeader) -> None:
    if header.record_count > reader.left:
        raise WireError(f"a batch of {counted(header.record_count, 'record')} in {reader.left} bytes")
    for _ in range(header.record_count):
        with reader.inside("record"):
            _walk_record(reader, header)


def _walk_record(reader: SpanReader, header: BatchHeader) -> None:
    length = reader.varint("length", "bytes that follow")
    end = reader.position + length
    if length < 0 or end > len(reader.data):
        raise WireError(f"the record at {reader.base + reader.position} is longer than its batch")
    reader.fixed("attributes", "b", "no bit is defined yet")
    base_timestamp = header.base_timestamp
    if header.attributes & TIMESTAMP_TYPE_BIT:
        reader.varlong("timestamp_delta", "the batch's max_timestamp counts instead")
    else:
        reader.varlong("timestamp_delta", lambda delta: as_moment(base_timestamp + delta))
    reader.varint("offset_delta", lambda delta: f"offset {header.base_offset + delta}")
    if header.is_control:
        _walk_control(reader)
    else:
        _walk_octets(reader, "key")
        _walk_octets(reader, "value")
    count = reader.varint("header_count")
    for _ in range(count):
        with reader.inside("header"):
            _walk_octets(reader, "header_key")
            _walk_octets(reader, "header_value")
    if reader.position != end:
        raise WireError(f"the record says it ends at {reader.base + end}, its fields end at {reader.base + reader.position}")


def _walk_octets(reader: SpanReader, name: str) -> None:
    length = reader.varint(f"{name}_length", lambda found: "null" if found < 0 else "")
    if length >= 0:
        reader.octets(name, length)


def _walk_control(reader: SpanReader) -> None:
    key_end = reader.varint("key_length") + reader.position
    reader.fixed("control_version", "h")
    kind = reader.fixed("control_type", "h", lambda found: CONTROL_KINDS.get(found, "unknown"))
    if key_end > reader.position:
        reader.octets("rest_of_key", key_end - reader.position)
    value_end = reader.varint("value_length") + reader.position
    if kind in (0, 1) and value_end - reader.position >= 6:
        reader.fixed("end_marker_version", "h")
        reader.fixed("coordinator_epoch", "i")
    if value_end > reader.position:
        reader.octets("rest_of_value", value_end - reader.position)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return "unknown error"


_WORDS: dict[str, Callable[[int], str]] = {
    "error_code": _error_name,
    "partition_error_code": _error_name,
    "api_key": lambda key: API_NAMES.get(key, "unknown"),
    "acks": lambda acks: {-1: "all in-sync replicas", 0: "no answer", 1: "the leader alone"}.get(acks, ""),
    "isolation_level": lambda level: {0: "read_uncommitted", 1: "read_committed"}.get(level, ""),
    "key_type": lambda kind: {0: "group", 1: "transaction", 2: "share group"}.get(kind, ""),
    "replica_id": lambda replica: "a consumer" if replica == -1 else "a broker" if replica >= 0 else "",
    "leader_epoch": lambda epoch: "unknown" if epoch == -1 else "",
    "producer_id": lambda producer: "none" if producer == -1 else "",
    "resource_type": lambda kind: {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}.get(kind, ""),
}
_MOMENT_NAMES = ("log_append_time_ms", "commit_timestamp", "expire_timestamp")


def note_of(name: str, kind: str, value: Any) -> str:
    """Returns the meaning of a code, or a timestamp as a date. Returns an empty text for other fields."""
    if name in _WORDS and isinstance(value, int):
        return _WORDS[name](value)
    if name == "timestamp" and value in (-1, -2, -3):
        return {-1: "latest", -2: "earliest", -3: "max timestamp"}[value]
    if kind == "i64" and ("timestamp" in name or name in _MOMENT_NAMES):
        return as_moment(value)
    return ""


def walk_message(reader: SpanReader, cls: type[Message], version: int) -> None:
    """Explains a whole message of a version. Raises `WireError`."""
    _Walker(reader, version, is_flexible(cls, version)).struct(cls)


class _Walker:
    """Reads one message into the spans of `reader`."""

    def __init__(self, reader: SpanReader, version: int, is_flexible: bool) -> None:
        self.reader = reader
        self.version = version
        self.is_flexible = is_flexible

    def struct(self, cls: type[Struct]) -> None:
        tagged: dict[int, Field] = {}
        for field in cls.__fields__:
            if field.is_tagged(self.version):
                assert field.tag is not None
                tagged[field.tag] = field
            elif field.is_in(self.version):
                self.field(field, field.name, self.is_flexible and not field.classic)
        if self.is_flexible:
            self.tags(tagged)

    def tags(self, tagged: dict[int, Field]) -> None:
        """Reads the tagged fields at the end of a struct of a flexible version."""
        reader = self.reader
        count = reader.uvarint("tagged_fields", "how many follow")
        if count > reader.left:
            raise WireError(f"{count} tagged fields in {reader.left} bytes")
        for _ in range(count):
            tag = reader.uvarint("tag", lambda found: tagged[found].name if found in tagged else "unknown, skipped")
            size = reader.uvarint("tag_size", "bytes that follow")
            field = tagged.get(tag)
            reader.depth += 1
            end = reader.position + size
            if field is None or size > reader.left:
                reader.octets("unknown_tag", size)
            else:
                self.field(field, field.name, True)
            reader.depth -= 1
            if reader.position != end:
                raise WireError(f"tag {tag} says it ends at {reader.base + end}, its field ends at {reader.base + reader.position}")

    def field(self, field: Field, name: str, is_compact: bool) -> None:
        if field.kind in FIXED:
            kind = field.kind
            self.reader.fixed(name, FIXED[kind], lambda value: note_of(name, kind, value))
        elif field.kind == "nested":
            self.nested(field, name)
        elif field.kind == "array":
            self.array(field, name, is_compact)
        else:
            self.blob(field, name, is_compact)

    def nested(self, field: Field, name: str) -> None:
        if field.is_nullable(self.version):
            presence = self.reader.fixed(f"{name}_presence", "b", lambda found: "null" if found < 0 else "present")
            if presence < 0 or (presence == 0 and field.is_tagged(self.version)):
                return
        with self.reader.inside(name):
            self.struct(field.struct)

    def length(self, kind: str, name: str, is_compact: bool) -> int:
        """Reads the length of a string or bytes, or the count of an array. Returns -1 for null."""
        if is_compact:
            found = self.reader.variable(name, read_uvarint, lambda value: f"compact: {value - 1}" if value else "compact: null")
            return found - 1
        length: int = self.reader.fixed(name, "h" if kind == "string" else "i", lambda value: "null" if value == -1 else "")
        if length < -1:
            raise WireError(f"{name} is {length}")
        return length

    def check_null(self, field: Field, name: str) -> None:
        if not field.is_nullable(self.version):
            raise WireError(f"{name} may not be null")

    def blob(self, field: Field, name: str, is_compact: bool) -> None:
        reader = self.reader
        length = self.length(field.kind, f"{name}_length", is_compact)
        if length < 0:
            self.check_null(field, name)
            return
        if field.kind == "records" and length:
            if length > reader.left:
                raise WireError(f"{name} at {reader.base + reader.position} claims {length} bytes, {reader.left} are left")
            with reader.inside(name):
                walk_batches(reader, reader.position + length)
            return
        reader.octets(name, length)

    def array(self, field: Field, name: str, is_compact: bool) -> None:
        reader = self.reader
        count = self.length("array", f"{name}_count", is_compact)
        if count > reader.left:
            raise WireError(f"{name} at {reader.base + reader.position} claims {count} elements in {reader.left} bytes")
        if count < 0:
            self.check_null(field, name)
        element = field.element
        reader.depth += 1
        for number in range(max(0, count)):
            if element.kind == "nested":
                with reader.inside(f"{name}[{number}]"):
                    self.struct(element.struct)
            else:
                self.field(element, f"{name}[{number}]", is_compact)
        reader.depth -= 1
