"""Dumps the small files of a log: aborted transactions, producer snapshots, checkpoints, partition.metadata and meta.properties."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from ottla.base.counted import counted
from ottla.base.errors import WireError
from ottla.cli.command import Refused
from ottla.cli.inspect.log_dump import Dump
from ottla.cli.inspect.log_segments import optional_long
from ottla.cli.inspect.spans import SpanReader, as_moment
from ottla.storage import small_files
from ottla.storage.aborted import ENTRY_BYTES, decode_aborted
from ottla.storage.producer_snapshot import ProducerRow, decode_snapshot
from ottla.wire.batch_header import Buffer

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
        if len(lines) < 2 or not lines[0].strip().isdigit() or not lines[1].strip().isdigit():
            raise Refused(f"{path} is damaged: it does not open with a version and a count", "CORRUPT_FILE")
        entries = [line.split() for line in lines[2:] if line.strip()]
        if len(entries) != int(lines[1]):
            raise Refused(f"{path} is damaged: it has {len(entries)} of {lines[1].strip()} entries", "CORRUPT_FILE")
        for fields in entries:
            if len(fields) != len(names) or not all(field.lstrip("-").isdigit() for field in fields[-2:]):
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
