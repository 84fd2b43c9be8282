"""Dumps the files of a log: batches and records of segments, both indexes, and the small files (`NAMED`).

Segments have the lines of Kafka's tool, and with `--hex` each byte with its meaning. Indexes are checked, or compared with their segment.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from ottla.analysis.span_messages import CONTROL_KINDS, codec_name, walk_batch
from ottla.analysis.spans import SpanReader, as_moment, shown_value
from ottla.base.counted import counted
from ottla.base.errors import WireError
from ottla.cli.command import Refused
from ottla.cli.inspect.log_decoders import camel, decode_control, decode_record
from ottla.cli.inspect.log_dump import Dump, Options, map_file
from ottla.storage import small_files
from ottla.storage.aborted import ENTRY_BYTES, decode_aborted
from ottla.storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from ottla.storage.producer_snapshot import ProducerRow, decode_snapshot
from ottla.wire.batch_header import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC, BatchHeader, Buffer, check_crc, legacy_magic, read_batch_header
from ottla.wire.records import Record, iter_records


def base_offset_of(path: str) -> int:
    """Returns the base offset in the name of a segment's file."""
    return int(os.path.basename(path).partition(".")[0])


def batches_of(data: Buffer, path: str, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields complete batches with their positions. Ends at an incomplete batch, or if only zeros follow. Raises `Refused` for bytes that
    are no batch of magic 2."""
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


_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


def dump_offset_index(dump: Dump, path: str, data: Buffer) -> None:
    base = base_offset_of(path)
    entries = _entries(data, _OFFSET_ENTRY)
    if not entries:
        dump.line(f"{path} is empty.")
        return
    if dump.options.is_checking:
        if len(data) % OFFSET_ENTRY_BYTES or entries[-1][0] <= 0:
            raise Refused(f"{path} is corrupt: {len(data)} bytes, last offset {base + entries[-1][0]}", "CORRUPT_FILE")
        dump.fact("is_sane", True, f"{path} passed sanity check.")
        return
    segment = _segment_beside(dump, path)
    for number, (relative, position) in enumerate(entries):
        offset = base + relative
        batch = None if segment is None else _batch_at(segment, position, path)
        if segment is not None and (batch is None or batch.last_offset != offset):
            found = "nothing" if batch is None else str(batch.last_offset)
            dump.mismatch("Mismatches in :", os.path.abspath(path), f"Index offset: {offset}, log offset: {found}")
        if not dump.options.is_verifying:
            dump.entry(f"offset: {offset} position: {position}", {"offset": offset, "position": position})
            if dump.options.is_hex:
                reader = SpanReader(data, number * OFFSET_ENTRY_BYTES)
                reader.fixed("relative_offset", "i", f"offset {offset}, the last one of the batch at the position")
                reader.fixed("position", "i", "of a batch in the segment")
                dump.spans(reader)


def _entries(data: Buffer, form: Struct) -> list[tuple[int, int]]:
    """Returns the entries of an index, without the zeros at the end of a preallocated file. The first entry may be zero."""
    entries: list[tuple[int, int]] = []
    for first, second in form.iter_unpack(data[: len(data) - len(data) % form.size]):
        if entries and not first and not second:
            break
        entries.append((first, second))
    return entries


def dump_time_index(dump: Dump, path: str, data: Buffer) -> None:
    base = base_offset_of(path)
    entries = _entries(data, _TIME_ENTRY)
    if dump.options.is_checking:
        if len(data) % TIME_ENTRY_BYTES or (entries and entries[-1][0] < entries[0][0]):
            raise Refused(f"{path} is corrupt: {len(data)} bytes, or its timestamps go back", "CORRUPT_FILE")
        dump.fact("is_sane", True, f"{path} passed sanity check.")
        return
    segment = _segment_beside(dump, path)
    positions = _positions_beside(path)
    last = -1
    for number, (timestamp, relative) in enumerate(entries):
        offset = base + relative
        if segment is not None:
            _compare_time(dump, path, segment, positions, (timestamp, offset))
        if last >= timestamp and number:
            line = f"Index timestamp: {timestamp}, Previously indexed timestamp: {last}"
            dump.mismatch("Found out of order timestamp in :", os.path.abspath(path), line)
        last = timestamp
        if not dump.options.is_verifying:
            dump.entry(f"timestamp: {timestamp} offset: {offset}", {"timestamp": timestamp, "offset": offset})
            if dump.options.is_hex:
                reader = SpanReader(data, number * TIME_ENTRY_BYTES)
                reader.fixed("timestamp", "q", as_moment)
                reader.fixed("relative_offset", "i", f"offset {offset}")
                dump.spans(reader)


def _compare_time(dump: Dump, path: str, segment: Buffer, positions: list[tuple[int, int]], entry: tuple[int, int]) -> None:
    timestamp, offset = entry
    index = bisect_right(positions, offset, key=lambda entry: entry[0])
    start = positions[index - 1][1] if index else 0
    batch = next((header for _, header in batches_of(segment, path, start) if header.last_offset >= offset), None)
    if batch is None or batch.max_timestamp != timestamp:
        found = -1 if batch is None else batch.max_timestamp
        line = f"Index timestamp: {timestamp}, log timestamp: {found}"
        dump.mismatch("Found timestamp mismatch in :", os.path.abspath(path), line)


def _segment_beside(dump: Dump, path: str) -> Buffer | None:
    """Returns the segment of an index. Without the segment, prints a note and returns None; with --verify-index-only raises `Refused`."""
    beside = path.rpartition(".")[0] + ".log"
    try:
        return map_file(beside)
    except OSError as error:
        message = f"cannot compare {path} with {beside}: {(error.strerror or str(error)).lower()}"
        if dump.options.is_verifying:
            raise Refused(message, "NO_SUCH_FILE") from None
        dump.output.note(message)
        return None


def _positions_beside(path: str) -> list[tuple[int, int]]:
    """Returns the offset index beside a time index as (offset, position); an empty list if it is missing. With these positions the segment
    is not read from its beginning for each entry of the time index.
    """
    try:
        with open(path.rpartition(".")[0] + ".index", "rb") as file:
            entries = _entries(file.read(), _OFFSET_ENTRY)
    except OSError:
        return []
    return [(base_offset_of(path) + relative, position) for relative, position in entries]


def _batch_at(segment: Buffer, position: int, path: str) -> BatchHeader | None:
    if not 0 <= position < len(segment):
        return None
    try:
        return next((header for _, header in batches_of(segment, path, position)), None)
    except Refused:
        return None


_ABORTED_VERSION = Struct(">h")


def dump_aborted(dump: Dump, path: str, data: Buffer) -> None:
    for number, found in enumerate(decode_aborted(bytes(data), path)):
        (version,) = _ABORTED_VERSION.unpack_from(data, number * ENTRY_BYTES)
        text = (
            f"version: {version} producerId: {found.producer_id} firstOffset: {found.first_offset} "
            f"lastOffset: {found.last_offset} lastStableOffset: {found.last_stable_offset}"
        )
        dump.entry(text, {"version": version, **found._asdict()})
        if dump.options.is_hex:
            reader = SpanReader(data, number * ENTRY_BYTES)
            reader.fixed("version", "h")
            reader.fixed("producer_id", "q")
            reader.fixed("first_offset", "q", "of the transaction in this partition")
            reader.fixed("last_offset", "q", "the abort marker's")
            reader.fixed("last_stable_offset", "q", "at the moment of the abort")
            dump.spans(reader)


def dump_producers(dump: Dump, path: str, data: Buffer) -> None:
    rows, completed = decode_snapshot(bytes(data), path)
    for row in rows:
        dump.entry(_producer_line(row), _producer_object(row))
    if completed:
        text = f"{counted(len(completed), 'marker')} above the high watermark"
        dump.fact("completed_transactions", [list(found) for found in completed], text)
    if dump.options.is_hex:
        reader = SpanReader(data)
        try:
            _walk_snapshot(reader)
        except WireError as error:
            raise Refused(f"{path} is damaged: {error}", "CORRUPT_FILE") from None
        finally:
            dump.spans(reader)


def _producer_line(row: ProducerRow) -> str:
    first = None if row.transaction_first_offset < 0 else row.transaction_first_offset
    text = (
        f"producerId: {row.producer_id} producerEpoch: {row.epoch} coordinatorEpoch: {row.coordinator_epoch} "
        f"currentTxnFirstOffset: {optional_long(first)} lastTimestamp: {row.last_timestamp} "
    )
    if not row.batches:
        return text
    batch = row.batches[-1]
    return (
        f"{text}firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} lastOffset: {batch.last_offset} "
        f"offsetDelta: {batch.last_offset - batch.base_offset} timestamp: {row.last_timestamp}"
    )


def _producer_object(row: ProducerRow) -> dict[str, object]:
    return {
        "producer_id": row.producer_id,
        "producer_epoch": row.epoch,
        "coordinator_epoch": row.coordinator_epoch,
        "current_transaction_first_offset": None if row.transaction_first_offset < 0 else row.transaction_first_offset,
        "last_timestamp": row.last_timestamp,
        "batches": [batch._asdict() for batch in row.batches],
    }


def _walk_snapshot(reader: SpanReader) -> None:
    reader.fixed("version", "h")
    reader.fixed("crc", "I", "CRC-32C of the bytes that follow")
    count = reader.fixed("producer_count", "i")
    for _ in range(count):
        with reader.inside("producer"):
            reader.fixed("producer_id", "q")
            reader.fixed("producer_epoch", "h")
            reader.fixed("last_sequence", "i")
            reader.fixed("last_offset", "q")
            reader.fixed("offset_delta", "i", "last offset minus first offset of the last batch")
            reader.fixed("timestamp", "q", as_moment)
            reader.fixed("coordinator_epoch", "i")
            reader.fixed("current_transaction_first_offset", "q", lambda offset: "no open transaction" if offset < 0 else "")
    if reader.left:
        reader.octets("our_part", reader.left, "the batches before the last one, which Kafka's reader ignores")


def _dump_checkpoint(names: tuple[str, ...]) -> Callable[[Dump, str, Buffer], None]:
    """Returns a function that dumps a checkpoint file: a version, a count, and `count` lines with the fields `names`."""

    def dump_file(dump: Dump, path: str, data: Buffer) -> None:
        lines = _text_lines(path, data)
        if len(lines) < 2 or not lines[0].strip().isdecimal() or not lines[1].strip().isdecimal():
            raise Refused(f"{path} is damaged: it does not open with a version and a count", "CORRUPT_FILE")
        entries = [line.split() for line in lines[2:] if line.strip()]
        if len(entries) != int(lines[1]):
            raise Refused(f"{path} is damaged: it has {len(entries)} of {lines[1].strip()} entries", "CORRUPT_FILE")
        for fields in entries:
            if len(fields) != len(names) or not all(field.removeprefix("-").isdecimal() for field in fields[-2:]):
                raise Refused(f"{path} is damaged: {' '.join(fields)[:80]!r} is not {' '.join(names)}", "CORRUPT_FILE")
            value = {name: field if name == "topic" else int(field) for name, field in zip(names, fields, strict=True)}
            dump.entry(" ".join(f"{name}: {found}" for name, found in value.items()), value)
        _show_hex(dump, data, ("version", "count"))

    return dump_file


def _dump_properties(separator: str) -> Callable[[Dump, str, Buffer], None]:
    def dump_file(dump: Dump, path: str, data: Buffer) -> None:
        for line in _text_lines(path, data):
            if not line.strip() or line.startswith("#"):
                continue
            key, found, value = line.partition(separator)
            if not found:
                raise Refused(f"{path} is damaged: no {separator!r} in {line[:80]!r}", "CORRUPT_FILE")
            dump.entry(f"{key.strip()}: {value.strip()}", {key.strip(): value.strip()})
        _show_hex(dump, data)

    return dump_file


def _text_lines(path: str, data: Buffer) -> list[str]:
    try:
        return bytes(data).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise Refused(f"{path} is damaged: it is not text", "CORRUPT_FILE") from None


def _show_hex(dump: Dump, data: Buffer, names: tuple[str, ...] = ()) -> None:
    """With `--hex`, shows each line of a text file as a field. `names` are the names of the first lines."""
    if not dump.options.is_hex:
        return
    reader = SpanReader(data)
    position = 0
    for number, line in enumerate(bytes(data).splitlines(keepends=True)):
        text = line.decode("utf-8").rstrip("\r\n")
        reader.add(position, position + len(line), names[number] if number < len(names) else "line", text)
        position += len(line)
    dump.spans(reader)


_OFFSETS = _dump_checkpoint(("topic", "partition", "offset"))

NAMED: dict[str, Callable[[Dump, str, Buffer], None]] = {
    small_files.RECOVERY_POINT_FILE: _OFFSETS,
    small_files.HIGH_WATERMARK_FILE: _OFFSETS,
    small_files.LOG_START_FILE: _OFFSETS,
    small_files.CLEANER_OFFSET_FILE: _OFFSETS,
    small_files.LEADER_EPOCH_FILE: _dump_checkpoint(("epoch", "start_offset")),
    small_files.PARTITION_METADATA_FILE: _dump_properties(":"),
    small_files.META_PROPERTIES_FILE: _dump_properties("="),
}
