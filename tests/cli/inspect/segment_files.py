"""A partition's directory made by hand: batches of known offsets and times, both indexes, and the smaller files."""

from __future__ import annotations

import struct
from pathlib import Path

from ottla.storage.aborted import AbortedTransaction, encode_aborted
from ottla.storage.producer_snapshot import CachedBatch, ProducerRow, encode_snapshot
from ottla.wire.records import CONTROL_ABORT, Record, encode_batch, encode_control_batch

BASE = 100
STEM = f"{BASE:020d}"


def batch(offset: int, timestamp: int, value: bytes | None = b"value", *, codec: int = 0) -> bytes:
    record = Record(0, timestamp, b"key", value, (("h", b"x"),))
    return bytes(encode_batch([record], base_offset=offset, leader_epoch=1, codec=codec))


def make_partition(directory: Path) -> Path:
    """Offsets 100 to 104: three plain batches, an aborted transaction of one record and its marker."""
    directory.mkdir(parents=True)
    batches = [batch(BASE, 1000), batch(BASE + 1, 1010, codec=4), batch(BASE + 2, 1020, None)]
    batches.append(
        bytes(
            encode_batch(
                [Record(0, 1030, None, b"lost")], base_offset=103, leader_epoch=1, producer_id=7, producer_epoch=0, base_sequence=0,
                is_transactional=True,
            )
        )
    )  # fmt: skip
    batches.append(bytes(encode_control_batch(CONTROL_ABORT, 7, 0, 5, 1040, base_offset=104, leader_epoch=1)))
    positions = [sum(map(len, batches[:number])) for number in range(len(batches))]
    (directory / f"{STEM}.log").write_bytes(b"".join(batches))
    (directory / f"{STEM}.index").write_bytes(b"".join(struct.pack(">ii", n, positions[n]) for n in (1, 3)))
    (directory / f"{STEM}.timeindex").write_bytes(b"".join(struct.pack(">qi", 1000 + 10 * n, n) for n in (1, 3)))
    (directory / f"{STEM}.txnindex").write_bytes(encode_aborted(AbortedTransaction(7, 103, 104, 105)))
    row = ProducerRow(7, 0, 5, 1040, -1, 1, -1, (CachedBatch(0, 0, 103, 103, 1030, -1),))
    (directory / f"{BASE + 5:020d}.snapshot").write_bytes(encode_snapshot([row], []))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 100\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    return directory
