"""Walks the batches of a segment file and reports the position of the first damaged one.

Recovery, rebuilding of indexes, replaying of producers and searches by time use it. The file is read in pieces of `SCAN_BYTES`. A caller
that probably needs few batches begins with a smaller piece (`first_bytes`). A larger batch is read whole, if its length fits the file. The
CRC is checked from the offset `crc_from` on. Invariant: offsets of the yielded batches strictly increase, there are no bytes between them,
and nothing is read past `end`. Leader epochs never decrease where the CRC is checked. For damage `DamageError` is raised with the position
of the bad batch; the batches before it are valid. The CRC does not cover base offset and leader epoch. When two neighbours are in the wrong
order, either can be the damaged one. If the earlier batch began with a jump (of offset or epoch) and the later batch has a right CRC, the
error names the earlier batch, which was already yielded. Otherwise the error names the later batch. `recovery.py` handles damage.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.errors import DamagedLogError
from ottla.base.ports import File
from ottla.base.types import NO_LEADER_EPOCH
from ottla.wire.batch_header import BATCH_LENGTH_MIN, BATCH_OVERHEAD, HEADER, LOG_OVERHEAD, MAGIC, BatchHeader, check_crc

SCAN_BYTES = 1 << 20
LEAST_BYTES = 1 << 12
"""Bytes of a piece after a larger one could not be read: a page, the smallest unit that the system reads."""
NEVER = (1 << 63) - 1
"""As `crc_from`: check no CRC."""


class DamageError(DamagedLogError):
    """The bytes at `position` are not a valid next batch. `offset` is the first lost offset."""

    def __init__(self, message: str, path: str, position: int, offset: int) -> None:
        super().__init__(message, path, first_offset=offset)
        self.position = position
        self.offset = offset


def scan_batches(
    file: File, position: int, end: int, *, next_offset: int, offset_max: int = NEVER, crc_from: int = NEVER,
    first_bytes: int = SCAN_BYTES,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields each batch of [position, end) as (position, header, bytes). `next_offset` is the lowest valid base offset of the next batch.
    """
    wanted = piece_bytes = first_bytes
    needed = 0
    epoch = NO_LEADER_EPOCH
    jump: tuple[int, int] | None = None  # position and expected offset of the previous batch, if it began with a jump
    while position < end:
        asked = min(wanted, end - position)
        try:
            piece = memoryview(file.pread(asked, position))
        except DamagedLogError as error:
            if wanted > max(needed, LEAST_BYTES):
                wanted = max(needed, LEAST_BYTES)  # the unreadable part may be behind this batch
                continue
            raise DamageError(str(error), file.path, position, next_offset) from error
        needed = 0
        wanted = piece_bytes = min(piece_bytes * 4, SCAN_BYTES)
        at, left = 0, len(piece)
        if left < BATCH_OVERHEAD:
            raise DamageError(f"{file.path}: {left} bytes at {position} are too few for a batch", file.path, position, next_offset)
        while left >= BATCH_OVERHEAD:
            header = BatchHeader._make(HEADER.unpack_from(piece, at))
            size = header.batch_length + LOG_OVERHEAD
            problem = _problem(header, end - position)
            if problem:
                raise DamageError(f"{file.path}: the batch at {position} {problem}", file.path, position, next_offset)
            if left < size:
                if len(piece) < asked:
                    raise DamageError(f"{file.path} ends within the batch at {position}", file.path, position, next_offset)
                needed, wanted = size, max(piece_bytes, size)
                break
            base_offset, leader_epoch, last_offset = header[0], header[2], header[0] + header[6]
            if not next_offset <= base_offset <= last_offset <= offset_max:
                problem = f"has offsets {base_offset} to {last_offset}, expected from {next_offset} on"
            elif leader_epoch < epoch and leader_epoch != NO_LEADER_EPOCH:
                problem = f"is of leader epoch {leader_epoch}, the one before it is of epoch {epoch}"
            if problem:
                place = jump if jump is not None and check_crc(piece, at, size) else (position, next_offset)
                raise DamageError(f"{file.path}: the batch at {position} {problem}", file.path, *place)
            if base_offset >= crc_from and not check_crc(piece, at, size):
                message = f"{file.path}: the batch at {position} (offset {base_offset}) has a wrong CRC"
                raise DamageError(message, file.path, position, next_offset)
            yield position, header, piece[at : at + size]
            is_later = base_offset >= crc_from and leader_epoch > epoch
            jump = (position, next_offset) if is_later or base_offset > next_offset else None
            epoch = leader_epoch if is_later else epoch
            next_offset = last_offset + 1
            position += size
            at += size
            left -= size


def _problem(header: BatchHeader, room: int) -> str:
    if header.magic != MAGIC:
        return f"has magic {header.magic}, only {MAGIC} is known"
    if header.batch_length < BATCH_LENGTH_MIN:
        return f"has the impossible length {header.batch_length}"
    if header.batch_length + LOG_OVERHEAD > room:
        return f"is cut off: {header.batch_length + LOG_OVERHEAD} bytes of which {room} are there"
    return ""


def is_batch_at(file: File, position: int, last_offset: int) -> bool:
    """Whether a batch with this last offset begins at `position`. Only its header is checked."""
    piece = file.pread(BATCH_OVERHEAD, position)
    if len(piece) < BATCH_OVERHEAD:
        return False
    header = BatchHeader._make(HEADER.unpack(piece))
    return header.magic == MAGIC and header.base_offset + header.last_offset_delta == last_offset
