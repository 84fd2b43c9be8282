"""Reads and writes the records of a batch.

Brokers decode records only for compaction, for coordinators and transaction markers, and to name records with a refused timestamp. The
loops run once per record: the decoding loop reads the most frequent sizes of varints inline, and the encoding loop takes small varints from
`_VARINTS`.

Invariants: memory is allocated for bytes that are there, never for a length or count that the data says; damaged bytes raise `WireError`
and nothing else. Header keys that are not UTF-8 are the same bytes after a read and a rewrite (surrogateescape), so compaction never
changes what a client stored. `batch_header.py` has the fields of the header, `record_validation.py` the checks of clients' batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple

from ottla.base.errors import WireError
from ottla.wire.batch_header import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    BATCH_LENGTH_MIN,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    CREATE_TIME,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON_BIT,
    HEADER,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    RECORDS_AT,
    SEQUENCE_MASK,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_crc,
    iter_batches,
    legacy_magic,
    read_batch_header,
    record_section,
    set_attributes,
    set_base_offset,
    set_leader_epoch,
    set_max_timestamp,
    stamp_crc,
)
from ottla.wire.compression import (
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_NAMES,
    CODEC_NONE,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    compress,
)
from ottla.wire.record_validation import read_zigzag

__all__ = [
    "ATTRIBUTES_AT",
    "BASE_OFFSET_AT",
    "BASE_SEQUENCE_AT",
    "BASE_TIMESTAMP_AT",
    "BATCH_LENGTH_AT",
    "BATCH_LENGTH_MIN",
    "BATCH_OVERHEAD",
    "BatchHeader",
    "Buffer",
    "CODEC_GZIP",
    "CODEC_LZ4",
    "CODEC_MASK",
    "CODEC_NAMES",
    "CODEC_NONE",
    "CODEC_SNAPPY",
    "CODEC_ZSTD",
    "CONTROL_ABORT",
    "CONTROL_BIT",
    "CONTROL_COMMIT",
    "CRC_AT",
    "CREATE_TIME",
    "ControlRecord",
    "DECOMPRESSED_BYTES_MAX",
    "DELETE_HORIZON_BIT",
    "HEADER",
    "Headers",
    "LAST_OFFSET_DELTA_AT",
    "LEADER_EPOCH_AT",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAGIC_AT",
    "MAX_TIMESTAMP_AT",
    "PRODUCER_EPOCH_AT",
    "PRODUCER_ID_AT",
    "RECORDS_AT",
    "RECORD_COUNT_AT",
    "Record",
    "Retained",
    "SEQUENCE_MASK",
    "TIMESTAMP_TYPE_BIT",
    "TRANSACTIONAL_BIT",
    "check_crc",
    "encode_batch",
    "encode_control_batch",
    "encode_varint",
    "iter_batches",
    "iter_records",
    "legacy_magic",
    "read_batch_header",
    "read_control_record",
    "read_records",
    "recompress_section",
    "record_section",
    "rewrite_batch",
    "rewrite_records",
    "set_attributes",
    "set_base_offset",
    "set_leader_epoch",
    "set_max_timestamp",
    "stamp_crc",
]

CONTROL_ABORT = 0
CONTROL_COMMIT = 1

Headers = tuple[tuple[str, bytes | None], ...]

_NO_TIMESTAMP = -1
_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
_HEADER_PLACE = bytes(BATCH_OVERHEAD)
_VARINTS_KEPT = 1 << 16
_PIECE_RECORDS = 1000
_new_tuple = tuple.__new__


class Record(NamedTuple):
    """One record with its offset in the log. `encode_batch` ignores the offset and gives new ones."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Retained(NamedTuple):
    """The records of a batch that compaction keeps: their number, the timestamp of the first record, and the largest timestamp."""

    records: int
    first_timestamp: int
    max_timestamp: int


class ControlRecord(NamedTuple):
    """A transaction marker: `CONTROL_ABORT` or `CONTROL_COMMIT` (or an unknown kind, with epoch -1)."""

    kind: int
    coordinator_epoch: int


def encode_varint(value: int) -> bytes:
    """Returns a signed number as a zigzag-encoded varint."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class _VarintTable(dict[int, bytes]):
    """Zigzag-encoded varints by number, computed on first use. Only small numbers are kept, so that large sizes from clients cannot make it
    grow."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if -1 <= value < _VARINTS_KEPT:
            self[value] = encoded
        return encoded


_VARINTS = _VarintTable()


def read_records(batch: Buffer, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Returns the records of the batch at the start of `batch`. Offsets have gaps after compaction. Raises `WireError` if they cannot be
    read."""
    return list(iter_records(batch, decompressed_bytes_max=decompressed_bytes_max))


def iter_records(batch: Buffer, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """As `read_records`, one at a time: the objects of many tiny records would take thirty times the memory of their bytes."""
    header = read_batch_header(batch)
    data = bytes(record_section(batch, header, decompressed_bytes_max))
    records = _decode_records(data, header)
    if header.attributes & TIMESTAMP_TYPE_BIT:
        # With log append time, a record's own timestamp is the client's, and the header has the broker's.
        timestamp = header.max_timestamp
        return (Record(offset, timestamp, key, value, headers) for offset, _, key, value, headers in records)
    return records


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = CODEC_NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Returns a batch of `records` (at least one), with the offsets `base_offset`, `base_offset` + 1 and so on."""
    assert records, "a batch without records is only made by compaction"
    attributes = codec
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    max_timestamp = max([record[1] for record in records])
    count = len(records)
    base_timestamp = records[0][1]
    parts = _encode_records(records, range(count), base_timestamp)
    return _finish_batch(
        BatchHeader(
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            count - 1,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ),
        parts,
        level,
    )


def encode_control_batch(
    kind: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Returns the batch of the marker that ends a transaction in one partition. It takes one offset."""
    marker = Record(base_offset, timestamp, _CONTROL_KEY.pack(0, kind), _CONTROL_VALUE.pack(0, coordinator_epoch))
    return encode_batch(
        (marker,),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_control_record(batch: Buffer) -> ControlRecord | None:
    """Returns the marker in a control batch, or None if compaction has removed it. Raises `WireError` if the batch or the marker cannot be
    read."""
    records = read_records(batch)
    if not records:
        return None
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _CONTROL_KEY.size:
        raise WireError("a control record without a kind")
    kind: int = _CONTROL_KEY.unpack_from(key)[1]
    if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
        return ControlRecord(kind, -1)
    if value is None or len(value) < _CONTROL_VALUE.size:
        raise WireError("a transaction marker without a coordinator epoch")
    return ControlRecord(kind, _CONTROL_VALUE.unpack_from(value)[1])


def rewrite_batch(
    header: BatchHeader, retained: Sequence[Record], *, delete_horizon_ms: int | None = None, level: int | None = None
) -> bytearray:
    """Returns the compacted form of a batch. The records in `retained` keep their offsets. The header keeps its offsets, its epochs, its
    producer and its kind (transactional or control).

    A batch without records is only its header, without a delete horizon. It keeps the producer's last sequence number in the log. In other
    batches a delete horizon (`delete_horizon_ms`, or else the header's own) replaces the base timestamp (KIP-534), and the timestamps of
    records are relative to it.
    """
    if not retained:
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
        return _finish_batch(header._replace(attributes=attributes, base_timestamp=_NO_TIMESTAMP, record_count=0), [_HEADER_PLACE], None)
    max_timestamp = max([record.timestamp for record in retained])
    summary = Retained(len(retained), retained[0].timestamp, max_timestamp)
    return rewrite_records(header, retained, summary, delete_horizon_ms=delete_horizon_ms, level=level)


def rewrite_records(
    header: BatchHeader, records: Iterable[Record], retained: Retained, *, delete_horizon_ms: int | None = None, level: int | None = None
) -> bytearray:
    """As `rewrite_batch`, from an iterator: at most `_PIECE_RECORDS` records are in memory at a time, besides the encoded bytes. `retained`
    must describe `records`."""
    attributes = header.attributes
    horizon = header.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    base_timestamp = retained.first_timestamp
    if horizon is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon
    max_timestamp = header.max_timestamp if attributes & TIMESTAMP_TYPE_BIT else retained.max_timestamp
    section, rest, base_offset = bytearray(), iter(records), header.base_offset
    while piece := list(islice(rest, _PIECE_RECORDS)):
        section += b"".join(_encode_records(piece, [record.offset - base_offset for record in piece], base_timestamp)[1:])
    kept = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=retained.records
    )
    return _finish_batch(kept, [_HEADER_PLACE, section], level)


def recompress_section(header: BatchHeader, section: Buffer, codec: int, level: int | None = None) -> bytearray:
    attributes = header.attributes & ~CODEC_MASK | codec
    return _finish_batch(header._replace(attributes=attributes), [_HEADER_PLACE, section], level)


def _finish_batch(header: BatchHeader, parts: list[Buffer], level: int | None) -> bytearray:
    """Joins the parts (the first is a placeholder for the header), compresses them, and writes the header with the new length and CRC."""
    codec = header.attributes & CODEC_MASK
    if codec and len(parts) > 1:
        parts = [_HEADER_PLACE, compress(codec, parts[1] if len(parts) == 2 else b"".join(parts[1:]), level)]
    batch = bytearray().join(parts)
    size = len(batch)
    HEADER.pack_into(batch, 0, header[0], size - LOG_OVERHEAD, *header[2:])
    stamp_crc(batch, 0, size)
    return batch


def _encode_records(records: Iterable[Record], offset_deltas: Iterable[int], base_timestamp: int) -> list[Buffer]:
    """Returns the encoded records in pieces, after a placeholder for the header, for one join at the end."""
    varints = _VARINTS
    parts: list[Buffer] = [_HEADER_PLACE]
    append = parts.append
    for offset_delta, (_, timestamp, key, value, headers) in zip(offset_deltas, records, strict=True):
        if key is None and value is not None and not headers:
            body = b"\0%b%b\x01%b%b\0" % (varints[timestamp - base_timestamp], varints[offset_delta], varints[len(value)], value)
            append(varints[len(body)])
            append(body)
            continue
        body = b"\0%b%b%b%b%b%b%b" % (
            varints[timestamp - base_timestamp],
            varints[offset_delta],
            b"\x01" if key is None else varints[len(key)],
            b"" if key is None else key,
            b"\x01" if value is None else varints[len(value)],
            b"" if value is None else value,
            _encode_headers(headers) if headers else b"\0",
        )
        append(varints[len(body)])
        append(body)
    return parts


def _encode_headers(headers: Headers) -> bytes:
    varints = _VARINTS
    parts = [varints[len(headers)]]
    for name, value in headers:
        key = name.encode("utf-8", "surrogateescape")
        parts += (varints[len(key)], key, varints[-1 if value is None else len(value)], value or b"")
    return b"".join(parts)


# A read beyond the end raises IndexError. A slice beyond the end is short, and the check of each record's end finds it.
def _decode_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    value: bytes | None
    new, data_end, position, base_offset, base_timestamp = _new_tuple, len(data), 0, header.base_offset, header.base_timestamp
    try:
        for _ in range(header.record_count):
            number = data[position]
            if number < 128:
                position += 1
            elif (high := data[position + 1]) < 128:
                number += (high << 7) - 128
                position += 2
            else:
                number, position = read_zigzag(data, position)
            end = position + (number >> 1)
            if number & 1 or end > data_end:
                raise WireError("a record is longer than its batch")
            number = data[position + 1]
            if number < 128:
                position += 2
            else:
                number, position = read_zigzag(data, position + 1, 64)
            timestamp = base_timestamp + (number >> 1 ^ -(number & 1))
            number = data[position]
            if number < 128:
                position += 1
            elif (high := data[position + 1]) < 128:
                number += (high << 7) - 128
                position += 2
            else:
                number, position = read_zigzag(data, position)
            offset = base_offset + (number >> 1 ^ -(number & 1))
            number = data[position]
            if number == 1:
                key = None
                position += 1
            elif number < 128 and not number & 1:
                start = position + 1
                position = start + (number >> 1)
                key = data[start:position]
            else:
                key, position = _read_blob(data, position)
            number = data[position]
            if number > 127 and (high := data[position + 1]) < 128 and not number & 1:
                start = position + 2
                position = start + ((number + (high << 7) - 128) >> 1)
                value = data[start:position]
            else:
                value, position = _read_blob(data, position)
            if data[position]:
                headers, position = _read_headers(data, position)
            else:
                headers = ()
                position += 1
            if position != end:
                raise WireError("a record is not as long as it says")
            yield new(Record, (offset, timestamp, key, value, headers))
        if position != data_end:
            raise WireError("bytes are left behind the last record of a batch")
    except IndexError:
        raise WireError("a record ends behind the end of its batch") from None


def _read_blob(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Returns a key or value and the position after it. A length beyond the end of `data` gives a short slice; the caller then finds that
    the record has a wrong end."""
    number = data[position]
    if number < 128:
        position += 1
    elif (high := data[position + 1]) < 128:
        number += (high << 7) - 128
        position += 2
    else:
        number, position = read_zigzag(data, position)
    if number & 1:
        if number != 1:
            raise WireError("a key or value of negative length")
        return None, position
    end = position + (number >> 1)
    return data[position:end], end


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    number, position = read_zigzag(data, position)
    if number & 1:
        raise WireError("a record with a negative number of headers")
    headers = []
    for _ in range(number >> 1):
        key, position = _read_blob(data, position)
        value, position = _read_blob(data, position)
        if key is None:
            raise WireError("a record header without a key")
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position
