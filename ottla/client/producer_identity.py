"""Who a producer is to the brokers: its id and epoch, its sequence numbers, and its transaction.

Speaks the first transaction protocol (partitions are added before they are written to, the epoch stays), which every broker with
transactions serves. `INVALID_PRODUCER_EPOCH` and `PRODUCER_FENCED` mean that another took over the transactional id: they are final.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.admin import check, grouped
from ottla.client.cluster import GROUP, TRANSACTION, Cluster
from ottla.client.errors import error_code, refused
from ottla.wire.batch_header import SEQUENCE_MASK

TRANSACTION_TIMEOUT_MS = 60_000

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_WAIT = _MOVED | {ErrorCode.CONCURRENT_TRANSACTIONS}


class ProducerIdentity:
    """Id, epoch, sequences; with a transactional id also the partitions of the open transaction."""

    def __init__(self, cluster: Cluster, *, transactional_id: str | None = None, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.is_open = False
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._has_offsets = False

    def initialize(self) -> None:
        """Gets id and epoch. With a transactional id this fences whoever had it before and ends what was left open."""
        from ottla.wire.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms if self.transactional_id is not None else 0x7FFFFFFF,
        )
        if self.transactional_id is not None:
            answer = self._ask(request, lambda found: found.error_code)
        else:
            answer = self.cluster.retrying(lambda: self._checked(self.cluster.ask_any(request)))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._added.clear()
        self._has_offsets = False

    def keep_prepared(self) -> tuple[int, int]:
        """Takes over a transactional id of two-phase commit and leaves its transaction open; who began that, (-1, -1) if none is open."""
        from ottla.wire.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms, enable2_pc=True, keep_prepared_txn=True
        )
        answer = self._ask(request, lambda found: found.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch

    def end_kept(self, *, is_commit: bool) -> None:
        """Ends the transaction that `keep_prepared` left open."""
        from ottla.wire.messages.end_txn import EndTxnRequest

        request = EndTxnRequest(
            transactional_id=self.transactional_id or "", producer_id=self.producer_id, producer_epoch=self.epoch, committed=is_commit
        )
        self._ask(request, lambda found: found.error_code)

    def _checked(self, answer: Any) -> Any:
        check(answer.error_code, None, "a producer id")
        return answer

    def take_sequences(self, partition: TopicPartition, count: int) -> int:
        """The first of `count` sequence numbers in a partition."""
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = (first + count) & SEQUENCE_MASK
        return first

    # The transaction

    def begin(self) -> None:
        if self.is_open:
            raise refused(ErrorCode.INVALID_TXN_STATE, "a transaction is open already")
        self.is_open = True

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Makes the coordinator know of partitions before anything is written to them."""
        from ottla.wire.messages import add_partitions_to_txn as wire

        new = [partition for partition in partitions if partition not in self._added]
        if not new:
            return
        assert self.transactional_id is not None, "only a transactional producer has a transaction"
        request = wire.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[wire.AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in grouped(new).items()],
        )

        def code(answer: Any) -> int:
            codes = [result.partition_error_code for topic in answer.results_by_topic_v3_and_below for result in topic.results_by_partition]
            real = [found for found in codes if found not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)]
            return real[0] if real else max(codes, default=0)

        self._ask(request, code)
        self._added.update(new)

    def add_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], *, member_id: str = "", generation: int = -1) -> None:
        """Commits a consumer's offsets within the transaction."""
        from ottla.wire.messages import txn_offset_commit as wire
        from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

        assert self.transactional_id is not None, "only a transactional producer has a transaction"
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group_id
        )
        self._ask(request, lambda found: found.error_code)
        self._has_offsets = True
        topics = [
            wire.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    wire.TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offsets[TopicPartition(topic, number)], committed_metadata=""
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in grouped(offsets).items()
        ]
        commit = wire.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=topics,
        )

        def code(answer: Any) -> int:
            return next((result.error_code for topic in answer.topics for result in topic.partitions if result.error_code), 0)

        answer = self.cluster.ask_coordinator(GROUP, group_id, commit, error_of=code)
        check(code(answer), None, f"offsets of group {group_id!r} in the transaction")

    def end(self, *, is_commit: bool) -> None:
        """Commits or aborts; a transaction that touched nothing ends without a word to the broker."""
        from ottla.wire.messages.end_txn import EndTxnRequest

        if not self.is_open:
            raise refused(ErrorCode.INVALID_TXN_STATE, "no transaction is open")
        assert self.transactional_id is not None, "only a transactional producer has a transaction"
        if self._added or self._has_offsets:
            request = EndTxnRequest(
                transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=is_commit
            )
            self._ask(request, lambda found: found.error_code)
        self._added.clear()
        self._has_offsets = False
        self.is_open = False

    def _ask(self, request: Any, code_of: Any) -> Any:
        """A request to the transaction's coordinator, repeated while it moves or still finishes the transaction before."""
        transactional_id = self.transactional_id
        assert transactional_id is not None, "only a transactional producer has a coordinator"

        def ask() -> Any:
            answer = self.cluster.ask_broker(self.cluster.coordinator(TRANSACTION, transactional_id), request)
            code = error_code(code_of(answer))
            if code in _MOVED:
                self.cluster.forget_coordinator(TRANSACTION, transactional_id)
            check(code, None, f"transactional id {transactional_id!r}")
            return answer

        return self.cluster.retrying(ask, codes=_WAIT | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
