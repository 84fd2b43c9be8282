"""What a transaction coordinator is told about the world: limits and intervals.

Defaults are Kafka's; the names beside them are its configuration keys. The limits marked "ours" exist because nothing may grow without end.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Settings of all transactional ids of a broker."""

    timeout_max_ms: int = 900_000  # transaction.max.timeout.ms
    timeout_scan_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    expiry_scan_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    expiration_ms: int = 7 * 24 * 3600 * 1000  # transactional.id.expiration.ms
    is_two_phase_enabled: bool = False  # transaction.two.phase.commit.enable
    is_verification_enabled: bool = True  # transaction.partition.verification.enable
    transactions_max: int = 1_000_000  # ottla.transactions.max
    completion_retry_ms: int = 100  # ours: pause before a refused Complete* record is tried again
    completion_wait_ms: int = 100  # ours: how long a request waits for the transaction before it, before CONCURRENT_TRANSACTIONS
    scan_records_max: int = 1_000  # ours: records of one scan
