"""Explains record batches byte by byte: the header's thirteen fields, then each record with its varints.

Records of a compressed batch have positions in the decompressed bytes. If the CRC of a batch is wrong, its records are shown as bytes.
Malformed bytes raise `WireError`; the reader keeps the spans before them.
"""

from __future__ import annotations

from ottla.base.counted import counted
from ottla.base.errors import WireError
from ottla.cli.inspect.spans import SpanReader, as_moment
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
    """Explains one batch: header and records."""
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
            # With a wrong CRC the bytes may be damaged, so they are shown without an explanation.
            reader.octets("records", start + size - reader.position, "not explained: the CRC is wrong")
        elif header.codec:
            batch = reader.data[start : start + size]
            packed = start + size - reader.position
            section = record_section(batch, header)
            reader.octets("records", packed, f"{codec_name(header.attributes)}: {packed} bytes packed, {len(section)} unpacked")
            _walk_records(reader.unpacked(section), header)
        else:
            _walk_records(reader, header)
            if reader.position != start + size:
                raise WireError(f"the batch at {reader.base + start} ends at {start + size}, its records at {reader.position}")


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
