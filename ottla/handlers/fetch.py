"""Fetch: reads records for consumers and followers, and waits for more.

Behaviour: reads each wanted partition up to the reader's bound (high watermark, or last stable offset for read_committed; log end for a
replica, whose requests `requests/follower_fetches.py` answers). Records are slices of segment files, never copied here. If the answer holds
fewer than `min_bytes` and no error, it waits up to `max_wait_ms` for one of its partitions to move, and then the same code runs again.
`max_bytes` bounds the answer, except that the first partition that has data gives at least one whole batch, so that a batch larger than the
limit cannot stop a reader. Where the records read so far come with thousands of aborted transactions, no others are added. A replica needs
the right to CLUSTER_ACTION; any other reader needs READ on each topic, checked again whenever the request is tried.

A consumer that names its rack is sent to a replica there, where `replica.selector.class` is RackAware (KIP-392); a follower answers
consumers up to the high watermark that it knows.

Version notes: 7 sessions (KIP-227, `replication/fetch_sessions.py`); 9 leader epoch fencing (KIP-320); 11 rack of the reader (KIP-392); 12
diverging epoch for followers (KIP-595); 13 topic ids (KIP-516); 15 replica state (KIP-903); 16 endpoints of new leaders (KIP-951); 18 the
follower's high watermark.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import READ_COMMITTED
from ottla.replication.fetch_sessions import NO_SESSION, SESSION_PARTITIONS_MAX, FetchPlan, Key, Wanted, wanted_of
from ottla.replication.partition import Partition, PartitionRead
from ottla.replication.reads import ABORTED_MAX
from ottla.replication.replica_selection import LEADER, RACK_AWARE, nearest_replica
from ottla.requests import follower_fetches
from ottla.requests.context import Broker, Pending, RequestContext, Watch
from ottla.requests.leader_hints import MOVED, addresses_of, present_leader
from ottla.requests.rights import is_allowed
from ottla.requests.stepped_wait import SteppedWait
from ottla.security.acl import AclOperation, ResourceType
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
PARTITIONS_PER_STEP = 200
PARTITIONS_AT_ONCE_MAX = 1000
"""More are read in turns: some milliseconds."""
PARTITIONS_MAX = 20_000
"""A fetch of more different partitions is refused."""

Answer = FetchResponse | Pending | Generator[None, None, Any]

make_response = maker(FetchResponse)
make_topic = maker(FetchableTopicResponse)
make_result = maker(PartitionData)


def handle(broker: Broker, request: RequestContext, body: FetchRequest) -> Answer:
    if sum([len(topic.partitions) for topic in body.topics]) > PARTITIONS_AT_ONCE_MAX:
        return _begin_wide(broker, request, body)
    return _handle(broker, request, body)


def _handle(broker: Broker, request: RequestContext, body: FetchRequest) -> Answer:
    if (body.replica_state.replica_id if request.version >= follower_fetches.STATE_SINCE else body.replica_id) >= 0:
        return follower_fetches.fetch(broker, request, body)
    return _begin(broker, request, body, broker.fetch_sessions.plan(body, request.version >= TOPIC_IDS_SINCE, request.connection))


def _begin(broker: Broker, request: RequestContext, body: FetchRequest, plan: FetchPlan) -> Answer:
    if plan.error:
        return FetchResponse(error_code=plan.error)
    if len(plan.wanted) > PARTITIONS_AT_ONCE_MAX:
        return _fetch_in_steps(broker, request, body, plan)
    fetch = new_fetch(broker, request, body, plan)
    answer = fetch.attempt()
    if answer is not None or body.max_wait_ms <= 0:
        return answer or fetch.answer()
    return fetch.wait()


def _begin_wide(broker: Broker, request: RequestContext, body: FetchRequest) -> Generator[None, None, Any]:
    """Begins a request that names thousands of partitions: collects them a few at a time."""
    wanted: dict[Key, Wanted] = {}
    for number, entry in enumerate(wanted_of(body), 1):
        wanted[entry.key()] = entry
        if len(wanted) > PARTITIONS_MAX:
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not number % PARTITIONS_PER_STEP:
            yield
    if follower_fetches.replica_of(request, body) >= 0:
        return _handle(broker, request, body)
    has_topic_ids = request.version >= TOPIC_IDS_SINCE
    answer = _begin(broker, request, body, broker.fetch_sessions.plan(body, has_topic_ids, request.connection, list(wanted.values())))
    return (yield from answer) if isinstance(answer, Generator) else answer


def _fetch_in_steps(
    broker: Broker, request: RequestContext, body: FetchRequest, plan: FetchPlan
) -> Generator[None, None, FetchResponse | Pending]:
    """Looks at thousands of partitions, a few of them in each step. A request of more partitions than a session may have waits for its time
    to be over, or for the first move of a partition, and then answers with what there is."""
    has_topic_ids = request.version >= TOPIC_IDS_SINCE
    partitions: list[Partition | None] = []
    for number, entry in enumerate(plan.wanted, 1):
        partitions.append(find_partition(broker, entry, has_topic_ids))
        if not number % PARTITIONS_PER_STEP:
            yield
    return (yield from new_fetch(broker, request, body, plan, partitions).answer_or_wait_in_steps())


class Fetch:
    """One Fetch request of a consumer: tried at once, and again whenever one of its partitions has moved.

    An attempt only reads; the answer's partitions are made when there is an answer, and in a session only for those that changed.
    """

    __slots__ = (
        "_body", "_broker", "_has_looked", "_has_records", "_has_topic_ids", "_leaders", "_partitions", "_pending", "_plan", "_reads",
        "_request", "_stepped_wait", "_watch",
    )  # fmt: skip

    def __init__(
        self, broker: Broker, request: RequestContext, body: FetchRequest, plan: FetchPlan, partitions: list[Partition | None] | None = None
    ) -> None:
        """`partitions`: the partitions of the plan, in its order, if they have been looked up already."""
        self._broker = broker
        self._request = request
        self._body = body
        self._plan = plan
        self._has_topic_ids = has_topic_ids = request.version >= TOPIC_IDS_SINCE
        if partitions is None:
            partitions = [find_partition(broker, wanted, has_topic_ids) for wanted in plan.wanted]
        self._partitions = partitions
        self._reads: list[PartitionRead | ErrorCode] = []
        self._leaders: dict[int, None] | None = None  # whom the answer names
        self._has_records = False
        self._pending: Pending | None = None
        self._watch: Watch | None = None
        self._stepped_wait: SteppedWait | None = None
        self._has_looked = False

    def attempt(self) -> FetchResponse | None:
        """Reads every partition; None if the request should wait for more."""
        body = self._body
        left, min_bytes = min(body.max_bytes, self._broker.config.fetch_max_bytes), body.min_bytes
        if self._broker.quotas is not None:
            left, min_bytes = self._within_quota(left, min_bytes)
        size = aborted = 0
        is_urgent = not self._plan.wanted
        reads = self._reads = []
        reads_all = self._broker.authorizer.allows_clients_everything(self._request.connection)
        for wanted, partition in zip(self._plan.wanted, self._partitions, strict=True):
            if reads_all or self._may_read(wanted, partition):
                read = self._read(wanted, partition, left, size == 0)
            else:
                read = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            reads.append(read)
            if type(read) is not PartitionRead:
                is_urgent = True
            elif (found := read[0]) is not None:
                size += found.length
                left -= found.length
                if read[4]:
                    aborted += len(read[4])
                    if aborted > ABORTED_MAX:
                        left = 0
            elif read[5] is not None:
                is_urgent = True
        self._has_records = size > 0
        return self.answer() if is_urgent or size >= min_bytes else None

    def attempt_in_steps(self) -> Generator[None, None, bool]:
        """The same in steps; returns whether there is an answer. A wait that is over ends it."""
        wanted, partitions, self._reads = self._plan.wanted, self._partitions, []
        left, min_bytes = self._within_quota(min(self._body.max_bytes, self._broker.config.fetch_max_bytes), self._body.min_bytes)
        size, aborted, is_urgent, reads = 0, 0, False, self._reads
        reads_all = self._broker.authorizer.allows_clients_everything(self._request.connection)
        for number, (entry, partition) in enumerate(zip(wanted, partitions, strict=True), 1):
            is_allowed_here = reads_all or self._may_read(entry, partition)
            read = self._read(entry, partition, left - size, size == 0) if is_allowed_here else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            reads.append(read)
            if type(read) is PartitionRead and read.slice is not None:
                size += read.slice.length
                aborted += len(read.aborted or ())
                if aborted > ABORTED_MAX:
                    left = 0
            else:
                is_urgent = is_urgent or type(read) is not PartitionRead or read.diverging_epoch is not None
            if not number % PARTITIONS_PER_STEP:
                yield
                if self._stepped_wait is not None and self._stepped_wait.is_over:
                    return False
        self._has_records = size > 0
        return is_urgent or size >= min_bytes

    def _within_quota(self, max_bytes: int, min_bytes: int) -> tuple[int, int]:
        """The same bounds, lower where the client would have to wait for so many bytes however long it has been idle."""
        quotas, request = self._broker.quotas, self._request
        if quotas is None:
            return max_bytes, min_bytes
        bytes_max = min(max_bytes, quotas.fetch_bytes_max(request.connection.principal, request.client_id))
        return bytes_max, min(min_bytes, bytes_max)

    def answer_or_wait_in_steps(self) -> Generator[None, None, FetchResponse | Pending]:
        if self._body.max_wait_ms <= 0:
            yield from self.attempt_in_steps()
            return (yield from self.answer_in_steps())
        wait = self._stepped_wait = SteppedWait(self._broker.waiters, self._look, self._finish_in_steps, self._fail)
        watched = [partition.notifier for partition in self._partitions if partition is not None]
        if (yield from wait.begin(watched, self._wait_ms())):
            return (yield from self.answer_in_steps())
        self._pending = Pending()
        self._pending.abandon = wait.cancel
        return self._pending

    def _look(self, is_last: bool) -> Generator[None, None, bool]:
        """An attempt; without a session the second one is answered whatever it has found: each is many milliseconds of work."""
        is_over = (yield from self.attempt_in_steps()) or is_last or (self._has_looked and len(self._reads) > SESSION_PARTITIONS_MAX)
        self._has_looked = True
        if not is_over:
            self._reads = []
        return is_over

    def _finish_in_steps(self) -> None:
        assert self._pending is not None
        self._pending.complete(self.answer_in_steps())

    def _fail(self, error: Exception) -> None:
        assert self._pending is not None
        self._pending.fail(error)

    def wait(self) -> Pending:
        """Answers when there are enough bytes, or after `max_wait_ms`."""
        self._pending = Pending()
        self._reads = []
        watched = [partition.notifier for partition in self._partitions if partition is not None]
        self._watch = self._broker.waiters.watch(watched, self._wait_ms(), self._wake, self._give_up)
        self._pending.abandon = self._watch.cancel
        return self._pending

    def _wait_ms(self) -> int:
        return self._request.connection.wait_ms(self._body.max_wait_ms, self._broker.clock)

    def answer(self) -> FetchResponse:
        """The answer of the last attempt; in a session, only what differs from the answers before."""
        if self._has_records:
            throttle_ms = self._throttle_ms() if self._broker.quotas is not None else 0
            if throttle_ms:
                return self._throttled(throttle_ms)
            self._count_bytes()
        session = self._plan.session
        responses = self._by_topic(self._answered(self._plan.wanted, self._reads))
        session_id = session.session_id if session is not None else NO_SESSION
        return make_response(session_id=session_id, responses=responses, node_endpoints=self._addresses())

    def _answered(self, all_wanted: list[Wanted], reads: list[PartitionRead | ErrorCode]) -> list[tuple[Wanted, PartitionRead | ErrorCode]]:
        """The reads that the answer contains; a session remembers them."""
        session, is_incremental = self._plan.session, self._plan.is_incremental
        if session is None:
            return list(zip(all_wanted, reads, strict=True))
        answered: list[tuple[Wanted, PartitionRead | ErrorCode]] = []
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

    def answer_in_steps(self) -> Generator[None, None, FetchResponse]:
        """The same for thousands of partitions."""
        throttle_ms = self._throttle_ms() if self._has_records else 0
        if throttle_ms:
            return self._throttled(throttle_ms)
        self._count_bytes()
        topics: list[FetchableTopicResponse] = []
        for at in range(0, len(self._reads), PARTITIONS_PER_STEP):
            step = slice(at, at + PARTITIONS_PER_STEP)
            found = self._by_topic(self._answered(self._plan.wanted[step], self._reads[step]))
            if topics and found and (topics[-1].topic, topics[-1].topic_id) == (found[0].topic, found[0].topic_id):
                topics[-1].partitions += found.pop(0).partitions
            topics += found
            yield
        session = self._plan.session
        session_id = session.session_id if session is not None else NO_SESSION
        return make_response(session_id=session_id, responses=topics, node_endpoints=self._addresses())

    def _throttle_ms(self) -> int:
        quotas, request = self._broker.quotas, self._request
        size = sum([read.slice.length for read in self._reads if type(read) is PartitionRead and read.slice is not None])
        return quotas.charge_fetch(request.connection.principal, request.client_id, size) if quotas is not None else 0

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        """The empty answer to a client that is over its quota (KIP-219); a session that this request would have opened is not."""
        session = self._plan.session
        if session is not None and not self._plan.is_incremental:
            self._broker.fetch_sessions.drop(session)
            session = None
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=session.session_id if session is not None else NO_SESSION)

    def _count_bytes(self) -> None:
        for partition, read in zip(self._partitions, self._reads, strict=True):
            if partition is not None and type(read) is PartitionRead and read.slice is not None:
                partition.traffic.bytes_out += read.slice.length

    def _wake(self) -> None:
        answer = self.attempt()
        if answer is not None:
            self._finish(answer)

    def _give_up(self) -> None:
        self._finish(self.attempt() or self.answer())

    def _finish(self, answer: FetchResponse) -> None:
        assert self._watch is not None and self._pending is not None
        if not self._watch.is_cancelled:
            self._watch.cancel()
            self._pending.complete(answer)

    def _may_read(self, wanted: Wanted, partition: Partition | None) -> bool:
        """Checked at each attempt, because rights may be withdrawn while a reader waits. An unknown topic id has no name to check."""
        name = self._topic_name(wanted) if partition is None else partition.topic_partition.topic
        return name is None or is_allowed(self._broker, self._request, AclOperation.READ, ResourceType.TOPIC, name)

    def _topic_name(self, wanted: Wanted) -> str | None:
        if not self._has_topic_ids:
            return wanted.topic
        topic = self._broker.metadata.topic_by_id(wanted.topic_id)
        return None if topic is None else topic.name

    def _read(self, wanted: Wanted, partition: Partition | None, left: int, is_first: bool) -> PartitionRead | ErrorCode:
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

    def _result(self, wanted: Wanted, read: PartitionRead | ErrorCode) -> PartitionData:
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
            records=found if found is not None else b"",
            aborted_transactions=None,
        )
        if self._body.isolation_level == READ_COMMITTED:
            result.aborted_transactions = [AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in aborted or ()]
        if diverging is not None:
            result.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        return result

    def _hint_leader(self, wanted: Wanted, result: PartitionData) -> None:
        """Names the present leader to a client that asked another broker, or for another epoch."""
        leader_id, leader_epoch = present_leader(self._broker, self._topic_name(wanted) or "", wanted.index)
        if leader_id >= 0:
            result.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            if self._leaders is None:
                self._leaders = {}
            self._leaders[leader_id] = None

    def _addresses(self) -> list[NodeEndpoint]:
        """Of the leaders that the answer names."""
        if self._leaders is None:
            return []
        return [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in addresses_of(self._broker, self._request, self._leaders)
        ]

    def _unknown(self, wanted: Wanted) -> ErrorCode:
        name = self._topic_name(wanted)
        return ErrorCode.UNKNOWN_TOPIC_ID if name is None else self._broker.partitions.absence(name, wanted.index)

    def _by_topic(self, answered: Sequence[tuple[Wanted, PartitionRead | ErrorCode]]) -> list[FetchableTopicResponse]:
        """Groups runs of one topic, in serving order."""
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
    """One Fetch request of a consumer that names its rack, where such consumers are sent to a replica there."""

    __slots__ = ("_preferred",)

    def __init__(
        self, broker: Broker, request: RequestContext, body: FetchRequest, plan: FetchPlan, partitions: list[Partition | None] | None = None
    ) -> None:
        super().__init__(broker, request, body, plan, partitions)
        self._preferred: dict[Wanted, int] = {}
        """The brokers that the reader is sent to."""

    def attempt(self) -> FetchResponse | None:
        answer = super().attempt()
        return self.answer() if answer is None and self._preferred else answer

    def attempt_in_steps(self) -> Generator[None, None, bool]:
        is_enough = yield from super().attempt_in_steps()
        return is_enough or bool(self._preferred)

    def _read(self, wanted: Wanted, partition: Partition | None, left: int, is_first: bool) -> PartitionRead | ErrorCode:
        asked = wanted.partition
        if partition is not None and asked.current_leader_epoch in (-1, partition.leader_epoch):
            nearest = nearest_replica(partition, self._body.rack_id, asked.fetch_offset, self._broker.metadata.brokers)
            if nearest != LEADER:
                self._preferred[wanted] = nearest
                wanted.high_watermark = -1  # so that an incremental answer has it
                return partition.bounds()
        return super()._read(wanted, partition, left, is_first)

    def _result(self, wanted: Wanted, read: PartitionRead | ErrorCode) -> PartitionData:
        result = super()._result(wanted, read)
        result.preferred_read_replica = self._preferred.get(wanted, LEADER)
        return result


def new_fetch(
    broker: Broker, request: RequestContext, body: FetchRequest, plan: FetchPlan, partitions: list[Partition | None] | None = None
) -> Fetch:
    if body.rack_id and broker.config.replica_selector_class in RACK_AWARE:
        return FetchFromRack(broker, request, body, plan, partitions)
    return Fetch(broker, request, body, plan, partitions)


def find_partition(broker: Broker, wanted: Wanted, has_topic_ids: bool) -> Partition | None:
    if has_topic_ids:
        return broker.partitions.get_by_id(wanted.topic_id, wanted.index)
    return broker.partitions.get(wanted.topic, wanted.index)


def refusal(index: int, code: ErrorCode, *, is_known: bool) -> PartitionData:
    """Builds a refusal. Aborted transactions are null where the partition is known, here or elsewhere, else empty, as in Kafka."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None if is_known else [],
        records=b"",
    )


def has_changed(wanted: Wanted, read: PartitionRead | ErrorCode) -> bool:
    """Whether an incremental answer must contain the partition."""
    return (
        type(read) is not PartitionRead
        or read.slice is not None
        or read.diverging_epoch is not None
        or read.high_watermark != wanted.high_watermark
        or read.log_start_offset != wanted.log_start_offset
    )
