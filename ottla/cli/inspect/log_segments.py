"""Dumps the batches and records of a segment: the lines of Kafka's tool, and with `--hex` each byte with its meaning."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ottla.base.errors import WireError
from ottla.cli.command import Refused
from ottla.cli.inspect.log_decoders import camel, decode_control, decode_record
from ottla.cli.inspect.log_dump import Dump, Options
from ottla.cli.inspect.span_batches import CONTROL_KINDS, codec_name, walk_batch
from ottla.cli.inspect.spans import SpanReader, shown_value
from ottla.wire.batch_header import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC, BatchHeader, Buffer, check_crc, legacy_magic, read_batch_header
from ottla.wire.records import Record, iter_records


def base_offset_of(path: str) -> int:
    """Returns the base offset in the name of a segment's file."""
    return int(os.path.basename(path).partition(".")[0])


def batches_of(data: Buffer, path: str, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields complete batches with their positions. Ends at an incomplete batch, or if only zeros follow.

    Raises `Refused` for bytes that are no batch of magic 2.
    """
    end = len(data)
    while end - position >= BATCH_OVERHEAD:
        if legacy_magic(data, position) is not None:
            raise Refused(
                f"{path} has a message set of before Kafka 0.11 at {position}, which this program does not read", "CORRUPT_MESSAGE"
            )
        try:
            header = read_batch_header(data, position)
        except WireError as error:
            if not any(memoryview(data)[position:]):
                return  # a power failure or preallocation may leave zeros
            raise _no_segment(path, position, str(error)) from None
        if header.magic != MAGIC:
            raise _no_segment(path, position, f"a batch of magic {header.magic}, only {MAGIC} is known")
        following = position + LOG_OVERHEAD + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def _no_segment(path: str, position: int, reason: str) -> Refused:
    if position == 0:
        return Refused(f"{path} is not a log segment: {reason}", "CORRUPT_MESSAGE")
    return Refused(f"{path} is damaged at {position}: {reason}", "CORRUPT_MESSAGE")


def dump_segment(dump: Dump, path: str, data: Buffer) -> None:
    options = dump.options
    dump.fact("base_offset", base_offset_of(path), f"Log starting offset: {base_offset_of(path)}")
    shown = memoryview(data)[: options.bytes_max] if options.bytes_max is not None else data
    valid = 0
    last_offset = None
    for position, header in batches_of(shown, path):
        valid = position + header.size_bytes
        if last_offset is not None and header.base_offset <= last_offset:
            dump.mismatch("Non-consecutive offsets in ", os.path.abspath(path), f"{last_offset} is followed by {header.base_offset}")
        last_offset = header.last_offset
        _dump_batch(dump, path, shown, position, header)
    if valid == 0 and len(data) and options.bytes_max is None:
        raise _no_segment(path, 0, f"its {len(data)} bytes hold no whole batch")
    if valid < len(data) and options.bytes_max is None:
        dump.fact("trailing_bytes", len(data) - valid, f"Found {len(data) - valid} invalid bytes at the end of {os.path.basename(path)}")


def _dump_batch(dump: Dump, path: str, data: Buffer, position: int, header: BatchHeader) -> None:
    options = dump.options
    is_valid = check_crc(data, position, header.size_bytes)
    batch = _batch_object(header, position, is_valid)
    line = _batch_line(batch)
    records: list[str] = []
    if options.is_deep and is_valid and not (options.is_hex and not dump.output.is_structured):
        batch["records"] = []
        for record in iter_records(memoryview(data)[position : position + header.size_bytes]):
            text, value = _record(record, header, options)
            batch["records"].append(value)
            records.append(text)
    dump.entry("\n".join([line, *records]), batch)
    if options.is_hex:
        reader = SpanReader(data, position)
        try:
            walk_batch(reader)
        except WireError as error:
            raise Refused(f"{path} is damaged: {error}", "CORRUPT_MESSAGE") from None
        finally:
            dump.spans(reader)


def _batch_object(header: BatchHeader, position: int, is_valid: bool) -> dict[str, Any]:
    return {
        **{_SHORT.get(name, name): getattr(header, name) for name in _FROM_HEADER},
        "position": position,
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "max_timestamp": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "codec": codec_name(header.attributes),
        "crc": header.crc,
        "is_valid": is_valid,
    }


_FROM_HEADER = (
    "base_offset", "last_offset", "record_count", "base_sequence", "last_sequence", "producer_id", "producer_epoch",
    "partition_leader_epoch", "is_transactional", "is_control", "delete_horizon_ms",
)  # fmt: skip
_SHORT = {"record_count": "count"}


def _batch_line(batch: dict[str, Any]) -> str:
    """Formats a batch exactly as Kafka's tool does, because scripts parse this line."""
    words = {"max_timestamp": batch["timestamp_type"], "codec": "compresscodec", "is_valid": "isvalid"}
    shown = {**batch, "delete_horizon_ms": optional_long(batch["delete_horizon_ms"])}
    del shown["timestamp_type"]
    return " ".join(f"{words.get(name, camel(name))}: {shown_value(value)}" for name, value in shown.items())


def optional_long(value: int | None) -> str:
    """Formats a number or None as Java prints an OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _record(record: Record, header: BatchHeader, options: Options) -> tuple[str, dict[str, Any]]:
    """Returns a record as a line and as an object."""
    sequence = -1 if header.base_sequence < 0 else (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    value: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "header_keys": [key for key, _ in record.headers],
    }
    words = []
    if not options.is_bare:
        kind = "LogAppendTime" if header.timestamp_type else "CreateTime"
        words.append(f"offset: {record.offset} {kind}: {record.timestamp} keySize: {value['key_size']} valueSize: {value['value_size']}")
        words.append(f"sequence: {sequence} headerKeys: [{','.join(value['header_keys'])}]")
    if header.is_control:
        if options.is_bare:
            return "", value
        words += _control_words(record, value)
    elif options.is_printing:
        key, payload = decode_record(record, options.decoder)
        value["key"], value["value"] = key, payload
        value["headers"] = [[name, None if found is None else found.decode("utf-8", "replace")] for name, found in record.headers]
        words += [f"{name}: {found}" for name, found in (("key", key), ("payload", payload)) if found is not None]
    return "| " + " ".join(words) if words else "", value


def _control_words(record: Record, value: dict[str, Any]) -> list[str]:
    kind = int.from_bytes((record.key or b"")[2:4], "big", signed=True) if len(record.key or b"") >= 4 else -1
    name = CONTROL_KINDS.get(kind, "UNKNOWN")
    if kind not in (0, 1):
        value["control_type"] = name
        known = decode_control(kind, record.value or b"")
        return [f"controlType: {name}({kind})" if known is None else f"{known[0]}: {known[1]}"]
    epoch = int.from_bytes((record.value or b"")[2:6], "big", signed=True)
    value["end_transaction_marker"], value["coordinator_epoch"] = name, epoch
    return [f"endTxnMarker: {name} coordinatorEpoch: {epoch}"]
