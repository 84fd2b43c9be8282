"""AttachRecords: appends staged chunks as the next records of a producer, in its transaction. Ottla's extension.

Behaviour: the request is checked like a transactional Produce with acks=all: permissions and leader. If the transaction is not open in the
partition yet, the transaction coordinator must confirm that it has the partition. The manifests are appended one after the other, in steps
(`replication/attaching.py`). The answer is sent when all records are replicated. After `timeout_ms` it is REQUEST_TIMED_OUT, and the work
continues. If a chunk is missing or differs from the manifest, the partition gets UNKNOWN_STAGE and none of the manifest's chunks is
appended. A retry of an appended manifest succeeds without the chunks.

Version notes: in 0 the partitions must have been added to the transaction before. In 1 this request adds them (KIP-890, transactions v2),
as Produce 12 does.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.guarded import guarded
from ottla.base.loop.turns import ITEMS_PER_STEP
from ottla.base.types import TopicPartition
from ottla.handlers.context import Broker, Pending, RequestContext, WaitingRequest
from ottla.handlers.rights import refusal_to_write, require
from ottla.replication.attaching import UNKNOWN_OFFSET, Attached, Attaching, Manifest
from ottla.replication.leader import ALL_IN_SYNC, Leader
from ottla.replication.stages import ChunkToken
from ottla.replication.verification import VerificationGuard
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.attach_records import (
    AttachPartition,
    AttachPartitionResult,
    AttachRecordsRequest,
    AttachRecordsResponse,
    AttachTopicResult,
)

TRANSACTIONS_V2_SINCE = 1
PARTITIONS_MAX = 10_000


def handle(
    broker: Broker, request: RequestContext, body: AttachRecordsRequest
) -> Pending | Generator[None, None, AttachRecordsResponse]:
    attach = Attach(broker, request, body)
    refusal = attach.refusal()
    return attach.begin() if refusal is None else _refused(body, refusal)


def _refused(body: AttachRecordsRequest, refusal: ApiError) -> Generator[None, None, AttachRecordsResponse]:
    """Refuses the whole request, in steps because it may have thousands of partitions."""
    topics, count = [], 0
    for topic in body.topics:
        results = [AttachPartitionResult(index=data.index) for data in topic.partitions]
        for result in results:
            _refuse(result, refusal)
        topics.append(AttachTopicResult(name=topic.name, partitions=results))
        count += 1 + len(results)
        if count > ITEMS_PER_STEP:
            count = 0
            yield
    return AttachRecordsResponse(topics=topics)


class AttachedPart:
    """One partition of the request. `last_offset` is set when the whole manifest is in the log."""

    __slots__ = ("guard", "has_ended", "key", "last_offset", "leader", "manifest", "result")

    def __init__(self, key: TopicPartition, leader: Leader, manifest: Manifest, result: AttachPartitionResult) -> None:
        self.key = key
        self.leader = leader
        self.manifest = manifest
        self.result = result
        self.guard: VerificationGuard | None = None
        self.has_ended = False
        self.last_offset = UNKNOWN_OFFSET


class Attach:
    """One AttachRecords request."""

    def __init__(self, broker: Broker, request: RequestContext, body: AttachRecordsRequest) -> None:
        self._broker = broker
        self._request = request
        self._body = body
        self._is_v2 = request.version >= TRANSACTIONS_V2_SINCE
        self._topics: list[AttachTopicResult] = []
        self._open: dict[AttachedPart, None] = {}
        self._pending = Pending()
        self._watch: WaitingRequest | None = None

    def begin(self) -> Pending:
        for topic in self._body.topics:
            results = [AttachPartitionResult(index=data.index) for data in topic.partitions]
            self._topics.append(AttachTopicResult(name=topic.name, partitions=results))
            refused = refusal_to_write(self._broker, self._request, topic.name)
            for data, result in zip(topic.partitions, results, strict=True):
                try:
                    if refused is not None:
                        raise refused
                    self._take(topic.name, data, result)
                except ApiError as error:
                    _refuse(result, error)
        self._watch = self._broker.waiters.watch((), max(self._body.timeout_ms, 0), self._settle, self._time_out)
        self._pending.abandon = self._watch.cancel
        self._admit()
        self._settle()
        return self._pending

    # Judging

    def refusal(self) -> ApiError | None:
        """Returns the reason to refuse the whole request, or None."""
        body = self._body
        if body.acks != ALL_IN_SYNC:
            return ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={body.acks}; only -1 is known to AttachRecords")
        if sum(len(topic.partitions) for topic in body.topics) > PARTITIONS_MAX:
            return ApiError(ErrorCode.INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions")
        try:
            require(self._broker, self._request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        except ApiError as error:
            return error
        return None

    def _take(self, topic: str, data: AttachPartition, result: AttachPartitionResult) -> None:
        body, partitions = self._body, self._broker.partitions
        partition = partitions.get(topic, data.index)
        if partition is None:
            raise ApiError(partitions.absence(topic, data.index))
        manifest = Manifest(
            token=ChunkToken(self._request.connection.principal, body.batch_token),
            producer_id=body.producer_id,
            producer_epoch=body.producer_epoch,
            base_sequence=data.base_sequence,
            chunks=data.chunks,
            is_transaction_v2=self._is_v2,
        )
        leader = partition.leader or partition.require_leading()
        self._open[AttachedPart(partition.topic_partition, leader, manifest, result)] = None
        self._broker.stages.begin_attach(partition.topic_partition, body.producer_id)

    # The transaction

    def _admit(self) -> None:
        """Asks the coordinator about partitions without an open transaction of this principal. Other partitions begin immediately."""
        body, asking = self._body, []
        principal = self._request.connection.principal
        for part in list(self._open):
            if part.leader.may_continue(body.producer_id, body.producer_epoch, principal):
                self._attach(part)
            else:
                part.guard = part.leader.begin_verification(body.producer_id, body.producer_epoch, part.manifest.base_sequence)
                asking.append(part)

        def admitted(codes: dict[TopicPartition, ErrorCode]) -> None:
            for part in asking:
                if code := codes.get(part.key, ErrorCode.NONE):
                    self._end(part, ApiError(code, "the transaction coordinator did not admit this partition"))
                else:
                    part.leader.claim_producer(body.producer_id, principal, self._broker.clock.wall_ms())
                    self._attach(part)

        if asking:
            keys = list(dict.fromkeys(part.key for part in asking))
            self._broker.transactions.admit(
                body.transactional_id, body.producer_id, body.producer_epoch, keys, self._is_v2, admitted
            )

    # The work

    def _attach(self, part: AttachedPart) -> None:
        attaching = Attaching(
            part.leader, part.manifest, part.guard, wall_ms=self._broker.clock.wall_ms, done=lambda outcome: self._end(part, outcome)
        )
        self._broker.stages.turns.add(guarded(attaching.steps(), lambda error: self._fail(part, error)))

    def _fail(self, part: AttachedPart, error: Exception) -> None:
        """Fails the request after an unexpected exception, because the appended part of the manifest is unknown. The connection is closed,
        unless the request was answered by its timeout."""
        self._open.clear()
        self._let_follow(part)
        if self._watch is not None:
            self._watch.cancel()
        self._pending.fail(error)

    def _end(self, part: AttachedPart, outcome: Attached | ApiError) -> None:
        """Called when a manifest is in the log or refused. After a timeout the result is ignored."""
        if part not in self._open:
            pass
        elif isinstance(outcome, ApiError):
            del self._open[part]
            _refuse(part.result, outcome)
        else:
            part.result.base_offset, part.last_offset = outcome
            if self._watch is not None:
                self._watch.add_acknowledgement(part.leader, part.last_offset, ALL_IN_SYNC)
        self._let_follow(part)
        self._settle()

    def _let_follow(self, part: AttachedPart) -> None:
        """Lets later Produce batches of the producer continue."""
        if not part.has_ended:
            part.has_ended = True
            self._broker.stages.end_attach(part.key, self._body.producer_id)

    def _settle(self) -> None:
        """Checks the open partitions again. Answers when all are replicated or refused."""
        for part in list(self._open):
            if part.last_offset == UNKNOWN_OFFSET:
                continue
            code = part.leader.acknowledgement(part.last_offset, ALL_IN_SYNC)
            if code is not None:
                del self._open[part]
                if code:
                    _refuse(part.result, ApiError(code))
        if not self._open:
            self._finish()

    def _time_out(self) -> None:
        for part in self._open:
            _refuse(part.result, ApiError(ErrorCode.REQUEST_TIMED_OUT))
        self._open.clear()
        self._finish()

    def _finish(self) -> None:
        if self._watch is not None and not self._pending.is_done:
            self._watch.cancel()
            self._pending.complete(AttachRecordsResponse(topics=self._topics))


def _refuse(result: AttachPartitionResult, error: ApiError) -> None:
    result.error_code = error.code
    result.error_message = error.message or None
    result.base_offset = UNKNOWN_OFFSET
