"""Produce: appends record batches to the partitions that are led here.

Behaviour: each partition's batch is appended as the client sent it, except where the topic's settings demand another codec or other
timestamps. The answer waits for the acknowledgement that `acks` asks for. With acks=-1 the high watermark must pass the batch within
`timeout_ms`. With acks=1 the leader's own log is sufficient, unless the leader may have been replaced. With acks=0 there is no answer, and
an error closes the connection. A transactional batch is accepted only if its partition is part of the ongoing transaction: the coordinator
is asked when the producer has no open transaction in the partition (before version 12 only with
`transaction.partition.verification.enable`). A batch that is out of order waits while staged records of the same producer are being
attached. If an earlier batch of the producer was refused with a retriable error, a batch behind it may be refused with the same error
(`replication/refused_batches.py`).

Version notes: 0-2 are advertised and refused (`handlers/served_apis.py`); 5 log start offset; 7 zstd (KIP-110); 8 record errors (KIP-467);
10 current leader and endpoints (KIP-951); 11 TRANSACTION_ABORTABLE (KIP-890); 12 the partition is added to the transaction by the append
itself (KIP-890, transactions v2); 13 topic ids (KIP-516).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ApiError, ErrorCode, RecordsRefused, WireError
from ottla.base.log_config import LogConfig
from ottla.base.types import TopicPartition
from ottla.handlers.context import Broker, Pending, RequestContext, WaitingRequest
from ottla.handlers.records.leader_hints import addresses_of, present_leader
from ottla.handlers.rights import permits, refusal_to_write, require
from ottla.replication.leader import Leader
from ottla.replication.traffic import Traffic
from ottla.replication.verification import VerificationGuard
from ottla.security.acl import AclOperation, ResourceType
from ottla.storage.inspection import (
    FEW_RECORDS_MAX,
    MERE_LOOK,
    Demands,
    InspectBatch,
    Inspected,
    InspectedEarlier,
    Inspection,
    Inspector,
    LoopBudget,
    WorkerNeeded,
    demands_of,
    inspect_here,
    look_here,
)
from ottla.wire.batch_header import CODEC_MASK, BatchHeader
from ottla.wire.compression import CODEC_ZSTD
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.records import ATTRIBUTES_AT, BATCH_OVERHEAD, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT, read_batch_header
from ottla.wire.schema import maker

TOPIC_IDS_SINCE = 13
LEADER_HINT_SINCE = 10
ABORTABLE_SINCE = 11
TRANSACTIONS_V2_SINCE = 12
ZSTD_SINCE = 7
ALL, LEADER, NONE = -1, 1, 0
KNOWN_ACKS = frozenset((ALL, LEADER, NONE))
UNREPLICATED_TIMEOUT_MS = 30_000
"""Minimum timeout with acks=0 and 1, in milliseconds: the batch may wait for a coordinator or for the worker that decodes records."""
REFUSED_BY_LOG = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    )
)  # fmt: skip
"""The result of an append with one of these errors contains the log start offset."""
ASKS_MAX = 5
"""Maximum of requests to the transaction coordinator about one batch. A marker that arrives before the answer makes another necessary."""
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
TRANSACTIONAL_AT = ATTRIBUTES_AT + 1  # the byte with the transactional bit


make_response = maker(ProduceResponse)
make_topic = maker(TopicProduceResponse)
make_result = maker(PartitionProduceResponse)


def handle(broker: Broker, request: RequestContext, body: ProduceRequest) -> ProduceResponse | Pending | None:
    produce = Produce(broker, request, body)
    produce.append_all(body.topic_data)
    if body.acks == NONE and produce.refusals:
        raise produce.closing()
    if produce.unacknowledged:
        return produce.wait()
    return produce.answer()


class Asked:
    """The number of requests to the transaction coordinator about a batch; also identifies the batch in the queue of its producer."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        self.times = 0


class Produce:
    """One Produce request: appends its batches, and answers when the appends are acknowledged."""

    __slots__ = (
        "_acks", "_broker", "_budget", "_pending", "_request", "_timeout_ms", "_topics", "_transactional_id",
        "_watch", "refusals", "unacknowledged",
    )  # fmt: skip

    def __init__(self, broker: Broker, request: RequestContext, body: ProduceRequest) -> None:
        self._broker = broker
        self._request = request
        self._transactional_id = body.transactional_id
        self._timeout_ms = body.timeout_ms
        self._budget: LoopBudget | None = None
        self._acks = acks = body.acks
        if acks == LEADER and broker.lease is not None and not broker.lease.is_held():
            self._acks = ALL  # Another broker may lead now; only records that the in-sync replicas confirm are certainly in its log (I40).
        self._topics: list[TopicProduceResponse] = []
        self._pending: Pending | None = None
        self._watch: WaitingRequest | None = None
        self.refusals: list[ApiError] = []
        # Batches that are not acknowledged: the leader that appended the batch (None before the append), last offset, result.
        self.unacknowledged: list[tuple[Leader | None, int, PartitionProduceResponse]] = []

    def append_all(self, topics: Sequence[TopicProduceData]) -> None:
        broker, request = self._broker, self._request
        lines, partitions = broker.inspections.lines, broker.partitions
        has_topic_ids = request.version >= TOPIC_IDS_SINCE
        is_unusual = request.version < ZSTD_SINCE or self._acks not in KNOWN_ACKS
        now_ms = broker.clock.wall_ms()
        for topic in topics:
            results: list[PartitionProduceResponse] = []
            self._topics.append(make_topic(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
            name, refusal = topic.name, None
            if has_topic_ids:
                name = partitions.topic_name(topic.topic_id) or ""
                if not name:
                    refusal = ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            refusal = refusal or refusal_to_write(broker, request, name)
            if refusal is not None and self._transactional_id is not None:
                refusal = self._first_refusal(refusal, self._transactional_id)
            for data in topic.partition_data:
                result = make_result(index=data.index, base_offset=-1)
                results.append(result)
                partition = partitions.get(name, data.index)
                if refusal is not None or partition is None:
                    error = refusal or ApiError(partitions.absence(name, data.index))
                    broker.refused_batches.remember(TopicPartition(name, data.index), data.records, error)
                    self._refuse(result, error, partition.traffic if partition is not None else None)
                    continue
                records = data.records
                try:
                    if records is None or len(records) < BATCH_OVERHEAD:
                        raise ApiError(ErrorCode.INVALID_RECORD, "no whole record batch")
                    if is_unusual:
                        self._check_unusual(records)
                    leader = partition.leader or partition.require_leading()
                    if records[TRANSACTIONAL_AT] & TRANSACTIONAL_BIT and self._must_ask(leader, records):
                        self._ask_coordinator(leader, partition.topic_partition, bytearray(records), result)
                    elif lines and (request.connection, partition.topic_partition) in lines:
                        self._append_later(leader, partition.topic_partition, bytearray(records), result, None)
                    else:
                        self._append(leader, records, result, now_ms)
                except WorkerNeeded as needed:
                    self._append_later(leader, partition.topic_partition, bytearray(records or b""), result, needed.demands)
                except ApiError as error:
                    broker.refused_batches.remember(partition.topic_partition, records, error)
                    self._refuse(result, error, partition.traffic)

    def wait(self) -> Pending:
        """Answers when every append is acknowledged, or at the timeout."""
        self._pending = Pending(keeps_request=False)
        timeout_ms = self._timeout_ms if self._acks == ALL else max(self._timeout_ms, UNREPLICATED_TIMEOUT_MS)
        self._watch = self._broker.waiters.watch((), timeout_ms, self._settle, self._time_out)
        self._pending.abandon = self._watch.cancel
        for leader, last_offset, _ in self.unacknowledged:
            if leader is None:  # The batch is not appended yet.
                self._pending.keeps_request = True
            else:
                self._watch.add_acknowledgement(leader, last_offset, self._acks)
        return self._pending

    def answer(self) -> ProduceResponse | None:
        """Returns the response, or None with acks=0."""
        if self._acks == NONE:
            return None
        response = make_response(responses=self._topics)
        if self.refusals and self._request.version >= LEADER_HINT_SINCE:
            self._hint_leaders(response)
        return response

    def closing(self) -> WireError:
        """Returns the error that closes the connection of a client with acks=0 after a refusal."""
        return WireError(f"a produce with acks=0 was refused: {self.refusals[0]}")

    def _check_unusual(self, records: memoryview | bytearray) -> None:
        """Raises `ApiError` for unknown `acks`, and for zstd in versions below 7."""
        if self._acks not in KNOWN_ACKS:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks}; 0, 1 and -1 are known")
        if self._request.version < ZSTD_SINCE and records[TRANSACTIONAL_AT] & CODEC_MASK == CODEC_ZSTD:
            message = f"Produce requests with version {self._request.version} are not allowed to use ZStandard compression"
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)

    def _append(
        self,
        leader: Leader,
        records: memoryview | bytearray,
        result: PartitionProduceResponse,
        now_ms: int,
        guard: VerificationGuard | None = None,
        inspector: Inspector | None = None,
    ) -> None:
        acks = self._acks
        try:
            refused = self._broker.refused_batches
            if refused.by_producer:
                refused.check(leader.log, records, is_out_of_order=False)
            is_v2 = self._request.version >= TRANSACTIONS_V2_SINCE
            appended = leader.append(
                records, acks=acks, now_ms=now_ms, is_transaction_v2=is_v2, guard=guard, inspector=inspector or self,
                principal=self._request.connection.principal,
            )  # fmt: skip
        except ApiError as error:
            if error.code is OUT_OF_ORDER and self._wait_for_attach(leader, records, result, guard):
                return
            if error.code is OUT_OF_ORDER:
                self._broker.refused_batches.check(leader.log, records, is_out_of_order=True)
            if error.code in REFUSED_BY_LOG:
                result.log_start_offset = leader.log.log_start_offset
            raise
        result.base_offset, last_offset, result.log_append_time_ms, result.log_start_offset, _ = appended
        if acks != NONE:
            code = leader.acknowledgement(last_offset, acks)
            if code is None:
                self.unacknowledged.append((leader, last_offset, result))
                if self._watch is not None:
                    self._watch.add_acknowledgement(leader, last_offset, acks)
            elif code:
                raise ApiError(code)

    # Batches with records to inspect

    def inspect(self, batch: memoryview, header: BatchHeader, config: LogConfig) -> Inspection | None:
        """Implements `storage.inspection.Inspector`: inspects a small batch, and raises `WorkerNeeded` for a large one."""
        demands = demands_of(header, config)
        if demands is None:
            return None
        if demands is MERE_LOOK and header.record_count <= FEW_RECORDS_MAX:
            return look_here(batch, header)
        if self._budget is None:
            self._budget = LoopBudget()
        return inspect_here(batch, header, demands, self._budget)

    def _append_later(
        self, leader: Leader, key: TopicPartition, records: bytearray, result: PartitionProduceResponse, demands: Demands | None,
        guard: VerificationGuard | None = None,
    ) -> None:  # fmt: skip
        """Appends a batch after earlier waiting batches of this client in the partition. If `demands` is given, the worker inspects it
        first."""
        entry = (None, -1, result)
        self.unacknowledged.append(entry)
        is_asked = demands is not None

        def attempt(answer: Inspected | None) -> InspectBatch | None:
            nonlocal is_asked
            if self._pending is not None and self._pending.is_done:
                return None  # The client was answered REQUEST_TIMED_OUT.
            try:
                if is_asked and answer is None:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the worker process ended before it had inspected the records")
                self._append(leader, records, result, self._broker.clock.wall_ms(), guard, InspectedEarlier(answer))
            except WorkerNeeded as needed:
                is_asked = True
                return InspectBatch(records, needed.demands)
            except ApiError as error:
                self._refuse(result, error, leader.traffic)
            self.unacknowledged.remove(entry)
            self._settle()
            return None

        order = None if demands is None else InspectBatch(records, demands)
        self._broker.inspections.defer(self._request.connection, key, order, attempt)

    # Transactions

    def _must_ask(self, leader: Leader, records: memoryview) -> bool:
        """Returns whether the coordinator must be asked about this transactional batch. This is not necessary if this principal's
        transaction is open in the partition and no earlier batch of the producer waits for the coordinator."""
        if records[MAGIC_AT] != MAGIC:
            return False  # Not a batch of the current format; the append refuses it.
        transactional_id = self._transactional_id
        if transactional_id is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch in a request without transactional id")
        require(self._broker, self._request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        header = read_batch_header(records, 0)
        identity = header.producer_id, header.producer_epoch
        may_continue = leader.may_continue(*identity, self._request.connection.principal)
        return not may_continue or leader.verifications.is_waited_for(*identity)

    def _ask_coordinator(
        self, leader: Leader, key: TopicPartition, records: bytearray, result: PartitionProduceResponse,
        asked: Asked | None = None,
    ) -> None:  # fmt: skip
        """Asks the coordinator, then appends the batch or refuses it. `asked` is given if the coordinator is asked again about the batch.
        """
        asked = asked or Asked()
        asked.times += 1
        header = read_batch_header(records, 0)
        guard = leader.begin_verification(header.producer_id, header.producer_epoch, header.base_sequence)
        line = leader.verifications.line(header.producer_id, header.producer_epoch)
        line.join(asked)
        entry = (None, -1, result)
        self.unacknowledged.append(entry)

        def admitted(codes: dict[TopicPartition, ErrorCode]) -> None:
            line.answered(asked, lambda: finish(codes.get(key, ErrorCode.NONE)))
            leader.verifications.forget_line_if_empty(header.producer_id, header.producer_epoch)

        def finish(code: ErrorCode) -> bool:
            self.unacknowledged.remove(entry)
            if not code and asked.times < ASKS_MAX and leader.must_verify_again(header, guard):
                self._ask_coordinator(leader, key, records, result, asked)
                return False
            if not code:
                leader.claim_producer(header.producer_id, self._request.connection.principal, self._broker.clock.wall_ms())
            if code is ErrorCode.TRANSACTION_ABORTABLE and self._request.version < ABORTABLE_SINCE:
                code = ErrorCode.INVALID_TXN_STATE
            self._append_admitted(leader, key, records, result, code, guard)
            self._settle()
            return True

        self._broker.transactions.admit(
            self._transactional_id or "", header.producer_id, header.producer_epoch, [key],
            self._request.version >= TRANSACTIONS_V2_SINCE, admitted,
        )  # fmt: skip

    def _append_admitted(
        self, leader: Leader, key: TopicPartition, records: bytearray, result: PartitionProduceResponse, code: ErrorCode,
        guard: VerificationGuard | None,
    ) -> None:  # fmt: skip
        try:
            if code:
                raise ApiError(code, "the transaction coordinator did not admit this partition")
            if (self._request.connection, key) in self._broker.inspections.lines:
                self._append_later(leader, key, records, result, None, guard)
            else:
                self._append(leader, records, result, self._broker.clock.wall_ms(), guard)
        except WorkerNeeded as needed:
            self._append_later(leader, key, records, result, needed.demands, guard)
        except ApiError as error:
            self._refuse(result, error, leader.traffic)

    def _wait_for_attach(
        self, leader: Leader, records: memoryview | bytearray, result: PartitionProduceResponse, guard: VerificationGuard | None
    ) -> bool:
        """Defers the batch if staged records of its producer are still being attached. Returns whether it was deferred."""
        entry = (None, -1, result)

        def again() -> None:
            self.unacknowledged.remove(entry)
            self._append_admitted(leader, leader.log.topic_partition, batch, result, ErrorCode.NONE, guard)
            self._settle()

        producer_id = read_batch_header(records, 0).producer_id
        if not self._broker.stages.call_when_attached(leader.log.topic_partition, producer_id, again):
            return False
        batch = bytearray(records)
        self.unacknowledged.append(entry)
        return True

    # Waiting

    def _settle(self) -> None:
        """Checks the open appends again. Answers when all are acknowledged or refused."""
        left = []
        for entry in self.unacknowledged:
            leader, last_offset, result = entry
            code = leader.acknowledgement(last_offset, self._acks) if leader is not None else None
            if code is None:
                left.append(entry)
            elif code:
                self._refuse(result, ApiError(code), leader.traffic if leader is not None else None)
        self.unacknowledged = left
        if self._pending is not None and not self._pending.is_done and not left:
            self._finish()

    def _time_out(self) -> None:
        for leader, _, result in self.unacknowledged:
            self._refuse(result, ApiError(ErrorCode.REQUEST_TIMED_OUT), leader.traffic if leader is not None else None)
        self._finish()

    def _finish(self) -> None:
        assert self._watch is not None and self._pending is not None
        self._watch.cancel()
        if self._pending.is_done:
            return
        if self._acks == NONE and self.refusals:
            self._pending.fail(self.closing())
        else:
            self._pending.complete(self.answer())

    def _first_refusal(self, refusal: ApiError, transactional_id: str) -> ApiError:
        """Returns TRANSACTIONAL_ID_AUTHORIZATION_FAILED if it applies, because Kafka checks the transactional id first."""
        if permits(self._broker, self._request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return refusal
        return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def _refuse(self, result: PartitionProduceResponse, error: ApiError, traffic: Traffic | None) -> None:
        error.__traceback__ = error.__context__ = None  # The traceback would keep buffers of the frames in memory.
        self.refusals.append(error)
        result.error_code = error.code
        result.error_message = error.message or None
        result.base_offset = -1
        if isinstance(error, RecordsRefused):
            result.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text) for index, text in error.faults.items()
            ]
        if traffic is not None:
            traffic.count_refused_produce(error.code)

    # Hints

    def _hint_leaders(self, response: ProduceResponse) -> None:
        """Adds leader hints for a producer that sent to another broker (KIP-951)."""
        leaders: dict[int, None] = {}
        for topic in response.responses:
            for result in topic.partition_responses:
                if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    name = topic.name or self._broker.partitions.topic_name(topic.topic_id) or ""
                    leader_id, leader_epoch = present_leader(self._broker, name, result.index)
                    if leader_id >= 0:
                        result.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                        leaders[leader_id] = None
        if leaders:
            response.node_endpoints = [
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in addresses_of(self._broker, self._request, leaders)
            ]
