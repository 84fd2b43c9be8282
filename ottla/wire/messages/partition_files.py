"""Entries of two files beside a log's segments: the index of aborted transactions and the snapshot of producer states."""

from __future__ import annotations

from ottla.wire.schema import Data, Struct, array, i16, i32, i64, u32


class AbortedTxn(Data, versions=(0, 0)):
    producer_id: int = i64()
    first_offset: int = i64()
    last_offset: int = i64()
    last_stable_offset: int = i64()


class ProducerEntry(Struct):
    producer_id: int = i64()
    epoch: int = i16()
    last_sequence: int = i32()
    last_offset: int = i64()
    offset_delta: int = i32()
    timestamp: int = i64()
    coordinator_epoch: int = i32()
    current_txn_first_offset: int = i64()


class ProducerSnapshot(Data, versions=(1, 1)):
    crc: int = u32()
    producer_entries: list[ProducerEntry] = array(ProducerEntry)
