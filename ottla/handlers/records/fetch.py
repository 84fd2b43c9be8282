"""Fetch: reads records for consumers and followers, and waits for more.

Behaviour: each partition is read up to the reader's limit: the high watermark, the last stable offset for read_committed, or the log end
for a replica (`handlers/records/follower_fetch.py` answers replicas). Records are slices of segment files; in a small answer, bytes. If the
answer has fewer than `min_bytes` and nothing urgent (an error, a diverging epoch, a preferred replica), the request waits up to
`max_wait_ms`. After each change of one of its partitions it reads all of them again. `max_bytes` limits the answer, but the first partition
with data always gives at least one whole batch, so that a batch larger than the limit does not stop a reader. After `ABORTED_MAX` aborted
transactions the answer gets no more records. A replica needs the permission CLUSTER_ACTION. Any other reader needs READ on each topic,
which is checked again at each look.

If `replica.selector.class` is RackAware, a consumer that names its rack is sent to an in-sync replica in this rack (KIP-392), unless the
leader is in this rack or no such replica has the offset. A follower answers consumers up to the high watermark that it knows.

Version notes: 7 sessions (KIP-227, `replication/fetch_sessions.py`); 9 leader epoch fencing (KIP-320); 11 rack of the reader (KIP-392); 12
diverging epoch for followers (KIP-595); 13 topic ids (KIP-516); 15 replica state (KIP-903); 16 endpoints of new leaders (KIP-951); 18 the
follower's high watermark.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import ITEMS_PER_STEP
from ottla.base.types import READ_COMMITTED
from ottla.handlers.context import Broker, PartitionNotifier, Pending, RequestContext
from ottla.handlers.records import follower_fetch as follower_fetches
from ottla.handlers.records.leader_hints import MOVED, addresses_of, present_leader
from ottla.handlers.records.partition_wait import PartitionWait
from ottla.handlers.rights import is_allowed
from ottla.replication.fetch_sessions import NO_SESSION, SESSION_PARTITIONS_MAX, FetchPlan, Key, WantedPartition, wanted_of
from ottla.replication.partition import Partition, PartitionRead
from ottla.replication.reads import ABORTED_MAX
from ottla.replication.replica_selection import LEADER, RACK_AWARE, nearest_replica
from ottla.security.acl import AclOperation, ResourceType
from ottla.storage.file_slice import SMALL_BYTES
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.wire.schema import maker

FROM_FOLLOWERS_SINCE = 11
TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 16
PARTITIONS_MAX = 20_000
"""Maximum of different partitions that one request names. A request with more is refused with INVALID_REQUEST."""

Answer = FetchResponse | Pending | Generator[None, None, Any]

make_response = maker(FetchResponse)
make_topic = maker(FetchableTopicResponse)
make_result = maker(PartitionData)


def handle(broker: Broker, request: RequestContext, body: FetchRequest, wanted: list[WantedPartition] | None = None) -> Answer:
    """Begins a request. `wanted`: the different partitions of the request; None if they have not been collected yet."""
    if wanted is None:
        count = 0
        for topic in body.topics:
            count += len(topic.partitions)
        if count > ITEMS_PER_STEP:
            return _begin_wide(broker, request, body)
    if (body.replica_state.replica_id if request.version >= follower_fetches.STATE_SINCE else body.replica_id) >= 0:
        return follower_fetches.fetch(broker, request, body)
    plan = broker.fetch_sessions.plan(body, request.version >= TOPIC_IDS_SINCE, request.connection, wanted)
    if plan.error:
        return FetchResponse(error_code=plan.error)
    return new_fetch(broker, request, body, plan).begin()


def _begin_wide(broker: Broker, request: RequestContext, body: FetchRequest) -> Generator[None, None, Any]:
    """Begins a request that names thousands of partitions: collects them a few at a time."""
    wanted: dict[Key, WantedPartition] = {}
    for number, entry in enumerate(wanted_of(body), 1):
        wanted[entry.key()] = entry
        if len(wanted) > PARTITIONS_MAX:
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not number % ITEMS_PER_STEP:
            yield
    answer = handle(broker, request, body, list(wanted.values()))
    return (yield from answer) if isinstance(answer, Generator) else answer


class Fetch:
    """One Fetch request of a consumer: looks at its partitions at once, and again whenever one of them has changed.

    A look only reads. The response is built after the last look. An incremental response contains only changed partitions. More than
    `ITEMS_PER_STEP` partitions are looked at in steps. Between two steps the connection may be closed, which ends the wait."""

    __slots__ = (
        "_aborted", "_body", "_broker", "_bytes", "_has_looked", "_has_topic_ids", "_is_urgent", "_leaders", "_left", "_min_bytes",
        "_partitions", "_plan", "_reads", "_request", "_wait",
    )  # fmt: skip

    def __init__(self, broker: Broker, request: RequestContext, body: FetchRequest, plan: FetchPlan) -> None:
        self._broker = broker
        self._request = request
        self._body = body
        self._plan = plan
        self._has_topic_ids = request.version >= TOPIC_IDS_SINCE
        self._partitions: list[Partition | None]
        self._reads: list[PartitionRead | ErrorCode]
        self._leaders: dict[int, None] | None = None  # whom the answer names
        self._wait: PartitionWait | None = None
        self._has_looked = False

    def begin(self) -> Answer:
        """Returns the answer; a `Pending` if the request waits for more, or a task if it wants many partitions."""
        wanted, has_topic_ids = self._plan.wanted, self._has_topic_ids
        if len(wanted) > ITEMS_PER_STEP:
            return self._begin_in_steps()
        self._partitions = [find_partition(self._broker, one, has_topic_ids) for one in wanted]
        answer: Answer | None = self._look(self._body.max_wait_ms <= 0)
        if answer is None:
            answer, wait = self._new_wait()
            wait.begin(self._watched(), self._wait_ms())
        return answer

    def _begin_in_steps(self) -> Generator[None, None, FetchResponse | Pending]:
        wanted, has_topic_ids = self._plan.wanted, self._has_topic_ids
        self._partitions = []
        for step in steps_of(wanted):
            self._partitions += [find_partition(self._broker, one, has_topic_ids) for one in wanted[step]]
            yield
        if self._body.max_wait_ms <= 0:
            answer: FetchResponse = yield from self._look_in_steps(True)
            return answer
        pending, wait = self._new_wait()
        found: FetchResponse | None = yield from wait.begin_in_steps(self._watched(), self._wait_ms())
        return pending if found is None else found

    def _new_wait(self) -> tuple[Pending, PartitionWait]:
        pending = Pending()
        wait = self._wait = PartitionWait(self._broker.waiters, self._look, pending.complete, pending.fail)
        pending.abandon = wait.cancel
        return pending, wait

    def _watched(self) -> list[PartitionNotifier]:
        return [partition.notifier for partition in self._partitions if partition is not None]

    def _wait_ms(self) -> int:
        return self._request.connection.wait_ms(self._body.max_wait_ms, self._broker.clock)

    # A look

    def _look(self, is_last: bool) -> Any:
        """Reads every partition. Returns the answer, None if the request should wait for more, or a task that returns one of these."""
        wanted = self._plan.wanted
        if len(wanted) > ITEMS_PER_STEP:
            return self._look_in_steps(is_last)
        self._begin_look()
        self._read_some(wanted, self._partitions)
        if not (self._is_urgent or self._bytes >= self._min_bytes or is_last):
            self._reads = []
            return None
        if self._bytes and (throttled := self._charge()) is not None:
            return throttled
        return self._response(self._by_topic(self._answered(wanted, self._reads)))

    def _look_in_steps(self, is_last: bool) -> Generator[None, None, Any]:
        """Looks at many partitions in steps. With more partitions than a session may have, the second look is the last one, because each
        look takes many milliseconds."""
        wanted, topics = self._plan.wanted, list[FetchableTopicResponse]()
        is_last = is_last or (self._has_looked and len(wanted) > SESSION_PARTITIONS_MAX)
        self._has_looked = True
        self._begin_look()
        for step in steps_of(wanted):
            self._read_some(wanted[step], self._partitions[step])
            yield
            if self._wait is not None and self._wait.is_over:
                return None
        if not (self._is_urgent or self._bytes >= self._min_bytes or is_last):
            self._reads = []
            return None
        if self._bytes and (throttled := self._charge()) is not None:
            return throttled
        for step in steps_of(wanted):
            found = self._by_topic(self._answered(wanted[step], self._reads[step]))
            if topics and found and (topics[-1].topic, topics[-1].topic_id) == (found[0].topic, found[0].topic_id):
                topics[-1].partitions += found.pop(0).partitions
            topics += found
            yield
        return self._response(topics)

    def _begin_look(self) -> None:
        """Sets the limits of an answer. A larger answer than the client's quota allows at once would only be throttled, so the quota lowers
        `max_bytes` and `min_bytes`.
        """
        left, min_bytes = min(self._body.max_bytes, self._broker.config.fetch_max_bytes), self._body.min_bytes
        quotas, request = self._broker.quotas, self._request
        if quotas is not None:
            left = min(left, quotas.fetch_bytes_max(request.connection.principal, request.client_id))
            min_bytes = min(min_bytes, left)
        self._left, self._min_bytes = left, min_bytes
        self._is_urgent = not self._plan.wanted
        self._bytes = self._aborted = 0
        self._reads = []

    def _read_some(self, all_wanted: Sequence[WantedPartition], partitions: Sequence[Partition | None]) -> None:
        """Reads these partitions. The partitions before them have already used a part of the answer's limits."""
        left, size, reads = self._left, self._bytes, self._reads
        reads_all = self._broker.authorizer.allows_clients_everything(self._request.connection)
        for wanted, partition in zip(all_wanted, partitions, strict=True):
            if reads_all or self._may_read(wanted, partition):
                read = self._read(wanted, partition, left, size == 0)
            else:
                read = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            reads.append(read)
            if type(read) is not PartitionRead:
                self._is_urgent = True
            elif (found := read[0]) is not None:
                size += found.length
                left -= found.length
                if read[4]:
                    self._aborted += len(read[4])
                    if self._aborted > ABORTED_MAX:
                        left = 0
            elif read[5] is not None:
                self._is_urgent = True
        self._left, self._bytes = left, size

    # The answer

    def _charge(self) -> FetchResponse | None:
        """Charges the bytes of the answer to the client's quota. Returns an empty answer if the client is over the quota (KIP-219). Then a
        session that this request has opened is dropped."""
        quotas, request, session = self._broker.quotas, self._request, self._plan.session
        throttle_ms = quotas.charge_fetch(request.connection.principal, request.client_id, self._bytes) if quotas is not None else 0
        if not throttle_ms:
            for partition, read in zip(self._partitions, self._reads, strict=True):
                if partition is not None and type(read) is PartitionRead and read[0] is not None:
                    partition.traffic.bytes_out += read[0].length
            return None
        if session is not None and not self._plan.is_incremental:
            self._broker.fetch_sessions.drop(session)
            session = None
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=session.session_id if session is not None else NO_SESSION)

    def _response(self, topics: list[FetchableTopicResponse]) -> FetchResponse:
        session = self._plan.session
        session_id = session.session_id if session is not None else NO_SESSION
        return make_response(session_id=session_id, responses=topics, node_endpoints=self._addresses())

    def _answered(
        self, all_wanted: Sequence[WantedPartition], reads: Sequence[PartitionRead | ErrorCode]
    ) -> list[tuple[WantedPartition, PartitionRead | ErrorCode]]:
        """Returns the reads that the answer contains: in an incremental answer only the changed ones, else all of them. Notes the answered
        bounds in the session, and moves partitions with records to its end."""
        session, is_incremental = self._plan.session, self._plan.is_incremental
        if session is None:
            return list(zip(all_wanted, reads, strict=True))
        answered: list[tuple[WantedPartition, PartitionRead | ErrorCode]] = []
        for wanted, read in zip(all_wanted, reads, strict=True):
            if is_incremental and not has_changed(wanted, read):
                continue
            answered.append((wanted, read))
            if type(read) is not PartitionRead:
                wanted.high_watermark = wanted.log_start_offset = -1
                continue
            wanted.high_watermark, wanted.log_start_offset = read.high_watermark, read.log_start_offset
            if read.slice is not None:
                session.move_to_end(wanted.key())
        return answered

    def _may_read(self, wanted: WantedPartition, partition: Partition | None) -> bool:
        """Whether the client may read the topic. Checked in each look, because ACLs may change while a request waits. True for an unknown
        topic id, which has no name to check.
        """
        name = self._topic_name(wanted) if partition is None else partition.topic_partition.topic
        return name is None or is_allowed(self._broker, self._request, AclOperation.READ, ResourceType.TOPIC, name)

    def _topic_name(self, wanted: WantedPartition) -> str | None:
        if not self._has_topic_ids:
            return wanted.topic
        topic = self._broker.metadata.topic_by_id(wanted.topic_id)
        return None if topic is None else topic.name

    def _read(self, wanted: WantedPartition, partition: Partition | None, left: int, is_first: bool) -> PartitionRead | ErrorCode:
        if partition is None:
            return self._unknown(wanted)
        asked = wanted.partition
        partition.traffic.fetches += 1
        bytes_max = max(0, min(asked.partition_max_bytes, left))
        try:
            return partition.read(
                asked.fetch_offset,
                bytes_max,
                isolation=self._body.isolation_level,
                min_one=is_first,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                may_follow=partition.leader is None and self._request.version >= FROM_FOLLOWERS_SINCE,
            )
        except ApiError as error:
            partition.traffic.count_refused_fetch(error.code)
            return error.code

    def _result(self, wanted: WantedPartition, read: PartitionRead | ErrorCode) -> PartitionData:
        index = wanted.index
        if type(read) is not PartitionRead:
            assert isinstance(read, ErrorCode)
            may_read = read is not ErrorCode.TOPIC_AUTHORIZATION_FAILED
            is_known = read is ErrorCode.NOT_LEADER_OR_FOLLOWER or (
                may_read and find_partition(self._broker, wanted, self._has_topic_ids) is not None
            )
            refused = refusal(index, read, is_known=is_known)
            if read in MOVED and self._request.version >= LEADER_HINTS_SINCE:
                self._hint_leader(wanted, refused)
            return refused
        found, high_watermark, stable, log_start_offset, aborted, diverging = read
        result = make_result(
            partition_index=index,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log_start_offset,
            records=found.at_hand(SMALL_BYTES if self._bytes <= SMALL_BYTES else 0) if found is not None else b"",
            aborted_transactions=None,
        )
        if self._body.isolation_level == READ_COMMITTED:
            result.aborted_transactions = [AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in aborted or ()]
        if diverging is not None:
            result.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        return result

    def _hint_leader(self, wanted: WantedPartition, result: PartitionData) -> None:
        """Adds the current leader to the answer, for a client that asked the wrong broker or has the wrong leader epoch."""
        leader_id, leader_epoch = present_leader(self._broker, self._topic_name(wanted) or "", wanted.index)
        if leader_id >= 0:
            result.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            if self._leaders is None:
                self._leaders = {}
            self._leaders[leader_id] = None

    def _addresses(self) -> list[NodeEndpoint]:
        """Returns the addresses of the leaders that the answer names."""
        if self._leaders is None:
            return []
        return [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in addresses_of(self._broker, self._request, self._leaders)
        ]

    def _unknown(self, wanted: WantedPartition) -> ErrorCode:
        name = self._topic_name(wanted)
        return ErrorCode.UNKNOWN_TOPIC_ID if name is None else self._broker.partitions.absence(name, wanted.index)

    def _by_topic(self, answered: Sequence[tuple[WantedPartition, PartitionRead | ErrorCode]]) -> list[FetchableTopicResponse]:
        """Builds the response's topics. Consecutive partitions of one topic are grouped; the order of serving is kept."""
        topics: list[FetchableTopicResponse] = []
        results: list[PartitionData] = []
        last: object = None
        for wanted, read in answered:
            name = wanted.topic_id if self._has_topic_ids else wanted.topic
            if name != last:
                results = []
                topics.append(make_topic(topic=wanted.topic, topic_id=wanted.topic_id, partitions=results))
                last = name
            results.append(self._result(wanted, read))
        return topics


class FetchFromRack(Fetch):
    """One Fetch request of a consumer that names its rack, if the broker refers such consumers to a replica in their rack."""

    __slots__ = ("_preferred",)

    def __init__(self, broker: Broker, request: RequestContext, body: FetchRequest, plan: FetchPlan) -> None:
        super().__init__(broker, request, body, plan)
        self._preferred: dict[WantedPartition, int] = {}
        """The broker that the consumer should read from, by partition."""

    def _read(self, wanted: WantedPartition, partition: Partition | None, left: int, is_first: bool) -> PartitionRead | ErrorCode:
        asked = wanted.partition
        if partition is not None and asked.current_leader_epoch in (-1, partition.leader_epoch):
            nearest = nearest_replica(partition, self._body.rack_id, asked.fetch_offset, self._broker.metadata.brokers)
            if nearest != LEADER:
                self._preferred[wanted] = nearest
                self._is_urgent = True
                wanted.high_watermark = -1  # so that `has_changed` is true
                return partition.bounds()
        return super()._read(wanted, partition, left, is_first)

    def _result(self, wanted: WantedPartition, read: PartitionRead | ErrorCode) -> PartitionData:
        result = super()._result(wanted, read)
        result.preferred_read_replica = self._preferred.get(wanted, LEADER)
        return result


def new_fetch(broker: Broker, request: RequestContext, body: FetchRequest, plan: FetchPlan) -> Fetch:
    is_sent_to_racks = body.rack_id and broker.config.replica_selector_class in RACK_AWARE
    return FetchFromRack(broker, request, body, plan) if is_sent_to_racks else Fetch(broker, request, body, plan)


def steps_of(wanted: Sequence[WantedPartition]) -> Iterator[slice]:
    """Yields the slices of `wanted` that are read in one step each."""
    return (slice(at, at + ITEMS_PER_STEP) for at in range(0, len(wanted), ITEMS_PER_STEP))


def find_partition(broker: Broker, wanted: WantedPartition, has_topic_ids: bool) -> Partition | None:
    if has_topic_ids:
        return broker.partitions.get_by_id(wanted.topic_id, wanted.index)
    return broker.partitions.get(wanted.topic, wanted.index)


def refusal(index: int, code: ErrorCode, *, is_known: bool) -> PartitionData:
    """Builds the error of a partition. As in Kafka, the aborted transactions are null if the partition is known (`is_known`); otherwise
    they are empty."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None if is_known else [],
        records=b"",
    )


def has_changed(wanted: WantedPartition, read: PartitionRead | ErrorCode) -> bool:
    """Whether an incremental answer must contain the partition."""
    return (
        type(read) is not PartitionRead
        or read.slice is not None
        or read.diverging_epoch is not None
        or read.high_watermark != wanted.high_watermark
        or read.log_start_offset != wanted.log_start_offset
    )
