"""Ends the transactions that are open at the end of a clone.

A transaction may be decided in one partition before the end of the clone and in another after it. The source is therefore read beyond the
end to find the missing markers, and each is appended to the clone. Every decided transaction then has the source's outcome in all
partitions. A transaction that the source has not decided gets an abort marker. Otherwise a reader of committed records would wait for a
marker forever.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ottla.client.blocking.client import Client
from ottla.client.core.admin import LATEST
from ottla.client.errors import OffsetOutOfRangeError
from ottla.cloning.partition_copy import PartitionCopy
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import CONTROL_ABORT, CONTROL_COMMIT, ControlRecord, encode_control_batch

DECISION_SECONDS_MAX = 5.0
"""Time for the markers of a decided transaction to arrive in all partitions. Brokers write them within some milliseconds."""
POLL_SECONDS = 0.1

Marker = tuple[BatchHeader, ControlRecord]


def end_transactions(client: Client, copies: Sequence[PartitionCopy], ends_known_s: float) -> list[str]:
    """Ends the open transactions of these partitions. Returns a note for each partition with an undecided one. `ends_known_s` is the
    monotonic time when the ends of the clone were chosen."""
    notes = []
    for copy in copies:
        open_producers = copy.open_producers
        markers = _find_markers(client, copy, open_producers, ends_known_s + DECISION_SECONDS_MAX)
        for header, control in markers.values():
            _append(copy, header.producer_id, header.producer_epoch, control, header.max_timestamp)
        undecided = [producer_id for producer_id in open_producers if producer_id not in markers]
        for producer_id in undecided:
            _append(copy, producer_id, open_producers[producer_id], ControlRecord(CONTROL_ABORT, 0), time.time_ns() // 1_000_000)
        if undecided:
            notes.append(f"{copy.partition}: {len(undecided)} of the transactions at the end are open at the source, and aborted here")
    return notes


def _find_markers(client: Client, copy: PartitionCopy, open_producers: dict[int, int], until_s: float) -> dict[int, Marker]:
    """Returns the first marker of each producer after the clone's end. Omits producers whose transaction the source has not decided by
    `until_s`, and those whose markers the source has already deleted."""
    markers: dict[int, Marker] = {}
    position = copy.end
    while True:
        end = client.list_offsets({copy.partition: LATEST}, isolation="read_uncommitted")[copy.partition].offset
        try:
            for fetched in client.read(copy.partition, position, end, isolation="read_uncommitted"):
                position = fetched.next_offset
                for header, control in fetched.markers:
                    is_wanted = header.producer_id in open_producers and control.kind in (CONTROL_ABORT, CONTROL_COMMIT)
                    if is_wanted and header.base_offset >= copy.end:
                        markers.setdefault(header.producer_id, (header, control))
                if len(markers) == len(open_producers):
                    return markers
        except OffsetOutOfRangeError:  # the source has deleted these records meanwhile
            return markers
        if time.monotonic() >= until_s:
            return markers
        time.sleep(POLL_SECONDS)


def _append(copy: PartitionCopy, producer_id: int, producer_epoch: int, control: ControlRecord, timestamp: int) -> None:
    copy.append_marker(
        encode_control_batch(
            control.kind, producer_id, producer_epoch, control.coordinator_epoch, timestamp,
            base_offset=copy.log.log_end_offset, leader_epoch=max(copy.log.epochs.latest, 0),
        )
    )  # fmt: skip
