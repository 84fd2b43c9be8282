"""The state of a producer that the brokers know too: producer id and epoch, sequence numbers, and the transaction. Its methods that send
requests are conversations: generators without I/O (`conversation.py`).

The transaction protocol has two versions. In version 1, which every broker with transactions supports, the producer adds partitions and
groups to the transaction before it writes to them, and the epoch does not change. Version 2 (KIP-890) is used with `may_use_v2` if the
coordinator has `transaction.version` 2. In version 2 a write itself adds its partition to the transaction, and each EndTxn raises the
epoch, so that brokers refuse late requests of an earlier transaction.

If the answer to EndTxn is lost, the request is repeated until the deadline. This is safe: the coordinator answers a repeated EndTxn like
the first. `OutcomeUnknownError` is raised if no answer shows whether the transaction was committed. Then the caller repeats the commit, or
initializes the id again, which an abort (`end`) does too. Before that, `begin` raises an error.

A batch that was not appended causes a gap in the sequence numbers of its transaction (`has_gap`). The transaction can then only be aborted.
In version 1 the abort also gets a new epoch, and sequence numbers begin at 0 again.

`FencedError` means that another producer has taken over the transactional id, or that the coordinator has aborted a transaction after its
timeout. This producer must not continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.core.admin import check, checked
from ottla.client.core.backoff import Backoff, Deadline
from ottla.client.core.cluster import GROUP, TRANSACTION, ClusterCore
from ottla.client.core.conversation import Conversation, Sleep, within
from ottla.client.core.group_admin import Committed, offsets_by_topic
from ottla.client.core.topic_lists import each_partition, first_code, topic_list
from ottla.client.core.versions import TRANSACTION_VERSION
from ottla.client.errors import COORDINATOR_MOVED, ClientError, KafkaError, OutcomeUnknownError, TransportError, refused
from ottla.wire.apis import KEYS
from ottla.wire.batch_header import SEQUENCE_MASK, Buffer, read_batch_header

TRANSACTION_TIMEOUT_MS = 60_000
NO_TIMEOUT_MS = 0x7FFFFFFF
EPOCH_MAX = 0x7FFF

PRODUCE_V2 = 12
END_TXN_V2 = 5
TXN_OFFSET_COMMIT_V2 = 5
"""`..._V2`: the first version of Produce, EndTxn and TxnOffsetCommit with the second protocol."""

_WAIT = COORDINATOR_MOVED | {ErrorCode.CONCURRENT_TRANSACTIONS}
_NOT_ENDED = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})
"""Answers to EndTxn which show that no earlier attempt took effect either."""


class ProducerIdentity:
    """Producer id, epoch and sequence numbers; with a transactional id also the partitions of the open transaction."""

    def __init__(
        self,
        cluster: ClusterCore,
        *,
        transactional_id: str | None = None,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        may_use_v2: bool = False,
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.is_open = False
        self.is_lost = True
        """Whether the id has to be initialized: at the beginning, and after an EndTxn with an unknown outcome."""
        self._may_repeat_commit = False
        self.has_gap = False
        self.uses_v2 = False
        self._may_use_v2 = may_use_v2
        self._sequences: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The epochs of partitions with a later epoch than `epoch`. Empty with a transactional id."""
        self._added: set[TopicPartition] = set()
        self._has_offsets = False

    def initialize(self, producer_id: int = -1, epoch: int = -1) -> Conversation[None]:
        """Gets a producer id and epoch (InitProducerId). With a transactional id it takes over the id: it fences the former producer and
        aborts its open transaction.

        Waits while an earlier transaction is being completed. A producer that names its current `producer_id` and `epoch` gets a
        `FencedError` if another producer has taken over the id (KIP-360).
        """
        return self.cluster.in_time(self._initialize(producer_id, epoch))

    def _initialize(self, producer_id: int, epoch: int) -> Conversation[None]:
        from ottla.wire.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms if self.transactional_id is not None else NO_TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        if self.transactional_id is not None:
            answer = yield from self._ask(request)
            self.uses_v2 = yield from self._has_v2(self.transactional_id)
        else:
            answer = yield from self.cluster.retrying(lambda: checked(self.cluster.ask_any(request), "a producer id"))
        self._take_over(answer.producer_id, answer.producer_epoch)
        self.is_open = self.is_lost = False

    def identify(self) -> Conversation[None]:
        """Initializes the id if that was never done, or if the outcome of an EndTxn is unknown (`is_lost`)."""
        if self.is_lost:
            yield from self.renew()

    def renew(self) -> Conversation[None]:
        """Gets a new epoch of the transactional id, which aborts an open transaction. Raises `FencedError` if another producer has taken
        over the id. Without a transactional id, gets a new producer id."""
        if self.transactional_id is None:
            yield from self.initialize()
        else:
            yield from self.initialize(self.producer_id, self.epoch)

    def _has_v2(self, transactional_id: str) -> Conversation[bool]:
        if not self._may_use_v2:
            return False
        link = yield from self.cluster.coordinator_link(TRANSACTION, transactional_id)
        return link.feature_level(TRANSACTION_VERSION) >= 2 and link.offers(KEYS["EndTxn"], END_TXN_V2)

    def _take_over(self, producer_id: int, epoch: int) -> None:
        """Sets the producer id and epoch, and restarts the sequence numbers at 0."""
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()
        self._epochs.clear()
        self._added.clear()
        self._has_offsets = self.has_gap = self._may_repeat_commit = False

    def keep_prepared(self) -> Conversation[tuple[int, int]]:
        """Takes over a transactional id of two-phase commit (KIP-939) and keeps its transaction open.

        Returns the producer id and epoch of the open transaction, (-1, -1) if none is open.
        """
        from ottla.wire.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms, enable2_pc=True, keep_prepared_txn=True
        )
        answer = yield from self._ask(request)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch

    def end_kept(self, *, is_commit: bool) -> Conversation[None]:
        """Ends the transaction that `keep_prepared` left open."""
        from ottla.wire.messages.end_txn import EndTxnRequest

        request = EndTxnRequest(
            transactional_id=self.transactional_id or "", producer_id=self.producer_id, producer_epoch=self.epoch, committed=is_commit
        )
        yield from self._ask(request)

    def next_sequence(self, partition: TopicPartition) -> int:
        return self._sequences.get(partition, 0)

    def take_sequences(self, partition: TopicPartition, count: int) -> int:
        """Reserves `count` sequence numbers in a partition and returns the first one."""
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = (first + count) & SEQUENCE_MASK
        return first

    def has_taken(self, partition: TopicPartition, batch: Buffer) -> bool:
        """Whether an encoded batch has the latest sequence numbers that `take_sequences` has reserved in the partition."""
        header = read_batch_header(batch)
        return (header.base_sequence + header.record_count) & SEQUENCE_MASK == self.next_sequence(partition)

    def epoch_of(self, partition: TopicPartition) -> int:
        return self._epochs.get(partition, self.epoch)

    def begin_epoch(self, partition: TopicPartition) -> bool:
        """Restarts the sequence numbers of a partition in its next epoch. Returns False if the epochs are used up.

        Called only without a transactional id. No other producer has this producer id, so the client may raise the epoch itself.
        """
        epoch = self.epoch_of(partition) + 1
        if epoch > EPOCH_MAX:
            return False
        self._epochs[partition] = epoch
        self._sequences[partition] = 0
        return True

    # The transaction

    def begin(self) -> None:
        """Opens a transaction; sends nothing. Raises `KafkaError` if one is open, or the outcome of the last one is unknown."""
        if self.is_open:
            raise refused(ErrorCode.INVALID_TXN_STATE, "a transaction is open already")
        if self.is_lost and self.producer_id >= 0:
            raise refused(ErrorCode.INVALID_TXN_STATE, "the end of the last transaction is unknown: initialize the id again")
        self.is_open = True

    def check_open(self) -> None:
        """Raises `KafkaError` without an open transaction. The coordinator would open one for the request, and nothing would end it."""
        if not self.is_open:
            raise refused(ErrorCode.INVALID_TXN_STATE, "no transaction is open: call begin() first")

    def not_added(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [partition for partition in partitions if partition not in self._added]

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> Conversation[None]:
        """Adds those partitions to the transaction that are not in it yet (AddPartitionsToTxn). `produce` and `attach` call it first. With
        `uses_v2` it sends nothing, because the writes themselves add their partitions.
        """
        self.check_open()
        new = self.not_added(partitions)
        if not new:
            return
        if not self.uses_v2:
            yield from self._add(new)
        self._added.update(new)

    def _add(self, new: list[TopicPartition]) -> Conversation[None]:
        from ottla.wire.messages import add_partitions_to_txn as wire

        request = wire.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._named(),
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topic_list(wire.AddPartitionsToTxnTopic, {one: one.partition for one in sorted(new)}),
        )

        def code(answer: Any) -> int:
            codes = [result.partition_error_code for _, result in each_partition(answer.results_by_topic_v3_and_below)]
            real = [found for found in codes if found not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)]
            return real[0] if real else max(codes, default=0)

        yield from self._ask(request, code)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | Committed],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> Conversation[None]:
        """Commits a group's offsets as part of the transaction (TxnOffsetCommit). A `Committed` also has the leader epoch and metadata.

        For a consumer in the group, `member_id` and `generation` let the coordinator refuse an outdated member (KIP-447).
        """
        request = self._offset_commit(group, offsets)
        request.member_id, request.generation_id_or_member_epoch, request.group_instance_id = member_id, generation, instance_id
        return self.cluster.in_time(self._commit_in_transaction(group, request))

    def _commit_in_transaction(self, group: str, request: Any) -> Conversation[None]:
        self.check_open()
        if not self.uses_v2:
            yield from self._add_group(group)
        self._has_offsets = True
        yield from self.cluster.retrying(lambda: self._commit_offsets(group, request), codes=_WAIT)

    def _add_group(self, group_id: str) -> Conversation[None]:
        from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

        request = AddOffsetsToTxnRequest(
            transactional_id=self._named(), producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group_id
        )
        yield from self._ask(request)

    def _offset_commit(self, group_id: str, offsets: Mapping[TopicPartition, int | Committed]) -> Any:
        from ottla.wire.messages import txn_offset_commit as wire

        topics = offsets_by_topic(offsets, wire.TxnOffsetCommitRequestTopic, wire.TxnOffsetCommitRequestPartition)
        return wire.TxnOffsetCommitRequest(
            transactional_id=self._named(),
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=topics,
        )

    def _commit_offsets(self, group_id: str, request: Any) -> Conversation[None]:
        version = TXN_OFFSET_COMMIT_V2 if self.uses_v2 else None
        answer = yield from self.cluster.ask_once(GROUP, group_id, request, version=version)
        code = first_code(answer)
        if error_code(code) in COORDINATOR_MOVED:
            self.cluster.forget_coordinator(GROUP, group_id)
        check(code, None, f"offsets of group {group_id!r} in the transaction")

    def end(self, *, is_commit: bool) -> Conversation[None]:
        """Commits or aborts. An empty transaction ends without a request. If the outcome of an earlier EndTxn is unknown (`is_lost`), an
        abort initializes the id instead, and a commit repeats an earlier commit."""
        return self._end(is_commit, self.cluster.deadline())

    def _end(self, is_commit: bool, deadline: Deadline) -> Conversation[None]:
        if self.is_lost and not is_commit:
            yield from within(self.renew(), deadline)
            return
        if not self.is_open and not self._may_repeat_commit:
            raise refused(ErrorCode.INVALID_TXN_STATE, "no transaction is open")
        if is_commit and self.has_gap:
            raise refused(ErrorCode.TRANSACTION_ABORTABLE, "a batch of the transaction was not appended: abort it")
        if self._added or self._has_offsets:
            answer = yield from self._end_surely(is_commit, deadline)
            self.is_lost = False
            if self.uses_v2 and answer.producer_id >= 0:
                self._take_over(answer.producer_id, answer.producer_epoch)
        self._added.clear()
        self._has_offsets = self.is_open = self._may_repeat_commit = False
        if self.has_gap:
            yield from within(self.renew(), deadline)

    def _end_surely(self, is_commit: bool, deadline: Deadline) -> Conversation[Any]:
        """Sends EndTxn until an answer shows the outcome. Raises `OutcomeUnknownError` if there is no such answer before the deadline, or
        if an earlier attempt may have taken effect and the last answer does not show it.
        """
        from ottla.wire.messages.end_txn import EndTxnRequest

        request = EndTxnRequest(
            transactional_id=self._named(), producer_id=self.producer_id, producer_epoch=self.epoch, committed=is_commit
        )
        version = END_TXN_V2 if self.uses_v2 else None
        backoff = Backoff(deadline)
        undecided: list[ClientError] = []
        while True:
            try:
                asked = self._ask(request, version=version, undecided=undecided)
                return (yield from within(asked, deadline))
            except TransportError as error:
                if backoff.is_exhausted():
                    raise self._unknown_end(is_commit, error) from None
            except KafkaError as error:
                if error.code in _NOT_ENDED or not (undecided or self._may_repeat_commit):
                    raise
                raise self._unknown_end(is_commit, error) from None
            yield Sleep(backoff.next_s())

    def _unknown_end(self, is_commit: bool, error: ClientError) -> OutcomeUnknownError:
        self.is_lost, self.is_open, self._may_repeat_commit = True, False, is_commit
        return OutcomeUnknownError(f"no answer to the {'commit' if is_commit else 'abort'} of {self.transactional_id!r}: {error}")

    def _named(self) -> str:
        assert self.transactional_id is not None, "only a transactional producer has a transaction and a coordinator"
        return self.transactional_id

    def _ask(
        self,
        request: Any,
        code_of: Callable[[Any], int] = first_code,
        *,
        version: int | None = None,
        undecided: list[ClientError] | None = None,
    ) -> Conversation[Any]:
        """Sends a request to the transaction coordinator, and repeats it while the coordinator moves, still completes the previous
        transaction, or does not know a partition. `undecided` gets the errors of attempts that may have taken effect.
        """
        transactional_id = self._named()

        def ask() -> Conversation[Any]:
            try:
                answer = yield from self.cluster.ask_once(TRANSACTION, transactional_id, request, version=version)
            except TransportError as error:
                if undecided is not None:
                    undecided.append(error)
                raise
            code = error_code(code_of(answer))
            if code in COORDINATOR_MOVED:
                self.cluster.forget_coordinator(TRANSACTION, transactional_id)
            if code in _WAIT and undecided is not None:
                undecided.append(refused(code))
            check(code, None, f"transactional id {transactional_id!r}")
            return answer

        return (yield from self.cluster.retrying(ask, codes=_WAIT | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))
