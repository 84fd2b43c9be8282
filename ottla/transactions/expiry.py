"""Aborts transactions that have timed out, and removes transactional ids that are no longer used.

The next scan after a transaction's timeout aborts it and fences its epoch (I31). The client may continue with InitProducerId and its last
identity (KIP-588). Transactions of two-phase commit have no timeout. A transactional id that has no open transaction and no record of the
last `expiration_ms` is removed by a tombstone.

Each scan schedules the next one, also if its append was refused. A scan writes at most `scan_records_max` records, in batches of at most
`max.message.bytes`; after a scan that logged that many records the next one follows at once.
"""

from __future__ import annotations

from ottla.machine.contract import Decision
from ottla.machine.draft import Draft
from ottla.transactions.end_transaction import new_producer_id_if_exhausted, send_markers
from ottla.transactions.metadata import prepared_with_bump
from ottla.transactions.records import state_record, tombstone
from ottla.transactions.shard import Shard
from ottla.transactions.states import EXPIRABLE


def decide_timeouts(shard: Shard, now_ms: int) -> Decision:
    draft, interval_ms = Draft(), shard.settings.timeout_scan_interval_ms
    for transactional_id in shard.ongoing:
        metadata = shard.transactions[transactional_id]
        if not shard.is_timed_out(metadata, now_ms):
            continue
        new_producer_id = new_producer_id_if_exhausted(shard, metadata)
        if new_producer_id is None:
            break  # the next block is being fetched; the next scan continues
        ended = prepared_with_bump(metadata, False, now_ms, new_producer_id=new_producer_id)
        part = Draft([state_record(ended)])
        part.call(send_markers(shard, ended))
        draft.include(part)
        if len(draft.parts) >= shard.settings.scan_records_max:
            break
    is_full = len(draft.parts) >= shard.settings.scan_records_max
    schedule_timeout_scan(shard, draft, 0 if is_full else interval_ms)
    draft.on_refusal(lambda repair, _code: schedule_timeout_scan(shard, repair, interval_ms))
    return draft.decision()


def decide_expiry(shard: Shard, now_ms: int) -> Decision:
    """Removes unused ids. The dict has the order of the log, so the scan ends at the first id with a recent record."""
    draft, interval_ms = Draft(), shard.settings.expiry_scan_interval_ms
    unused: list[str] = []
    for transactional_id, metadata in shard.transactions.items():
        if metadata.update_timestamp_ms > now_ms - shard.settings.expiration_ms or len(unused) >= shard.settings.scan_records_max:
            break
        if metadata.state in EXPIRABLE:
            unused.append(transactional_id)
    draft.separate(map(tombstone, unused))
    is_full = len(unused) >= shard.settings.scan_records_max
    schedule_expiry_scan(shard, draft, 0 if is_full else interval_ms)
    draft.on_refusal(lambda repair, _code: schedule_expiry_scan(shard, repair, interval_ms))
    return draft.decision()


def schedule_timeout_scan(shard: Shard, draft: Draft, delay_ms: int) -> None:
    draft.schedule("timeouts", delay_ms, lambda now_ms: decide_timeouts(shard, now_ms))


def schedule_expiry_scan(shard: Shard, draft: Draft, delay_ms: int) -> None:
    draft.schedule("expiry", delay_ms, lambda now_ms: decide_expiry(shard, now_ms))
