"""The settings of a transaction coordinator: limits and intervals.

The comments beside the fields name the broker's settings; `base/settings/` has their defaults. A field marked "ours" is a constant that
Kafka does not have.
"""

from __future__ import annotations

from ottla.base.immutable import immutable


@immutable(kw_only=True)
class TransactionCoordinatorSettings:
    timeout_max_ms: int  # transaction.max.timeout.ms
    timeout_scan_interval_ms: int  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    expiry_scan_interval_ms: int  # transaction.remove.expired.transaction.cleanup.interval.ms
    expiration_ms: int  # transactional.id.expiration.ms
    is_two_phase_enabled: bool  # transaction.two.phase.commit.enable
    is_verification_enabled: bool  # transaction.partition.verification.enable
    transactions_max: int  # ottla.transactions.max
    completion_retry_ms: int = 100  # ours: pause before a refused Complete* record is tried again
    completion_wait_ms: int = 100  # ours: maximum wait of a request for the previous transaction, before CONCURRENT_TRANSACTIONS
    scan_records_max: int = 1_000  # ours: maximum records of one scan
