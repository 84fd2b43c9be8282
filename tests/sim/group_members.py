"""Members of consumer groups, classic ones and those of KIP-848: they find their coordinator, join, fetch, commit and leave.

Some members commit in transactions (KIP-447).

A member reads committed offsets only from a coordinator that has confirmed the member's generation. A coordinator that was replaced and is
cut off would answer with old offsets (docs/cluster.md). Members of KIP-848 send their epoch in the request instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.client.core.group_admin import read_assignment
from ottla.handlers.groups import consumer_group_heartbeat, heartbeat, join_group, leave_group, offset_commit, offset_fetch, sync_group
from ottla.handlers.records import fetch
from ottla.handlers.transactions import end_txn, init_producer_id, txn_offset_commit
from ottla.wire.codec import encoder
from ottla.wire.messages import consumer_protocol as protocol
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.sim import readers
from tests.sim.group_client import PATIENCE_MS, GroupClient
from tests.sim.group_history import Attempt, Term
from tests.sim.network import Call
from tests.sim.process import Steps

if TYPE_CHECKING:
    from tests.sim.group_world import GroupWorld

SESSION_MS = 1_500
REBALANCE_MS = 1_500
BEAT_MS = 250
JOIN_PATIENCE_MS = REBALANCE_MS + 1_000
TRANSACTION_MS = 2_500
TOPIC = "t"
TRANSACTIONS = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
ASKED_TIMES = 8
COMMITTED = 0.8
"""How many transactions are committed."""
WITHOUT_EFFECT = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_ID_NOT_FOUND,
}
"""A commit that is answered so was not made."""


class Rejoin(Exception):
    """The member was removed, or its group rebalances."""


class Fenced(Exception):
    """Another process has replaced this static member."""


class Member(GroupClient, ABC):
    """The behaviour of members of both protocols after they have got partitions."""

    punctual = 0.5
    """How often a heartbeat that is due comes before other requests."""

    def __init__(self, world: GroupWorld, group_id: str, name: str, transactional_id: str = "") -> None:
        super().__init__(world, group_id)
        self.world = world
        self.chance = world.chance
        self.name = name
        self.member_id = ""
        self.instance_id: str | None = None
        """Of a static member (KIP-345)."""
        self.generation = -1
        self.owned: list[TopicPartition] = []
        self.is_settled = False
        """Whether the coordinator has nothing to change, as far as the member knows."""
        self._transactional_id = transactional_id
        self._identity = (-1, -1)
        self._last_beat_ms = self._asked_ms = 0
        self._terms: dict[TopicPartition, Term] = {}
        self._positions: dict[TopicPartition, int] = {}

    def run(self) -> Steps:
        while not self.world.is_closing:
            try:
                yield from self._join()
                while not self.world.is_closing:
                    yield self.chance.randint(5, 90)
                    yield from self._work()
            except Rejoin:
                self._drop_all()
            except Fenced:
                self._drop_all()
                return
            yield self.chance.randint(1, 60)

    @abstractmethod
    def leave(self) -> Call | None:
        """Returns the request with which the member leaves, if it is a member and knows its coordinator."""

    @abstractmethod
    def _join(self) -> Steps:
        """Joins the group. Raises `Rejoin` if the member has to start again."""

    @abstractmethod
    def _beat(self) -> Steps:
        """Sends a heartbeat."""

    def _drop_all(self) -> None:
        self.owned, self.is_settled = [], False
        self._terms.clear()
        self._positions.clear()

    @property
    def _now_ms(self) -> int:
        return self.world.clock.monotonic_ms()

    def _own(self, given: list[TopicPartition]) -> None:
        """Notes the partitions that the coordinator has assigned to this member in this generation."""
        if self.instance_id is not None:
            self.world.offsets.sit((self.group_id, self.instance_id), self.member_id, self._asked_ms, self._now_ms)
        self.world.own(self, given)

    # Work

    def _work(self) -> Steps:
        if self._now_ms - self._last_beat_ms >= BEAT_MS and self.chance.random() < self.punctual:
            self._last_beat_ms = self._now_ms
            yield from self._beat()
        missing = [place for place in self.owned if place not in self._terms]
        if missing:
            yield from self._read_committed(missing[0])
        elif self.owned:
            place = self.chance.choice(self.owned)
            yield from self._fetch(place)
            if place in self._terms and self.chance.random() < 0.5:
                yield from self._commit_place(place)

    def _fetch(self, place: TopicPartition) -> Steps:
        position, wait_ms = self._positions[place], self.chance.choice((0, 50))
        wanted = FetchPartition(partition=place.partition, fetch_offset=position, partition_max_bytes=self.chance.choice((200, 1 << 20)))
        topic = FetchTopic(topic=place.topic, partitions=[wanted])
        answer = yield Call(fetch, 11, lambda: FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic]), place)
        if answer is None:
            self.connections.give_up()
        elif answer.responses and not answer.responses[0].partitions[0].error_code and place in self._terms:
            data = memoryview(answer.responses[0].partitions[0].records or b"")
            processed = self.world.offsets.processed.setdefault((self.group_id, place), set())
            processed.update(value for _, value in readers.visible(data, (), position))
            self._positions[place] = readers.end_of(data, position)

    def _commit_place(self, place: TopicPartition) -> Steps:
        term, end = self._terms[place], self._positions[place]
        if end <= term.start:
            return
        seat = (self.group_id, self.instance_id, self.member_id)
        is_former = self.world.offsets.is_former(*seat) or self.world.is_removed(self)
        attempt = self.world.offsets.attempt(term, end, is_former)
        if self._transactional_id:
            yield from self._commit_in_transaction(attempt)
        else:
            yield from self._commit(attempt)

    def _commit(self, attempt: Attempt) -> Steps:
        place, generation, member_id = attempt.term.where[1], self.generation, self.member_id
        partition = OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=attempt.end)
        topic = OffsetCommitRequestTopic(name=place.topic, partitions=[partition])
        body = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=self.instance_id,
            topics=[topic],
        )
        code = yield from self._ask(offset_commit, 9, lambda: body, lambda answer: answer.topics[0].partitions[0].error_code)
        if code == ErrorCode.NONE:
            self.world.offsets.acknowledge(attempt)
        elif code in WITHOUT_EFFECT:
            self.world.offsets.refuse(attempt)
        self._heed(code)

    @abstractmethod
    def _heed(self, code: int | None) -> None:
        """Raises `Rejoin` if the answer to a request says that the member's generation has ended."""

    # Committed offsets

    def _prove(self) -> Steps:
        """Checks that the coordinator knows the member's generation."""
        yield from ()

    def _read_committed(self, place: TopicPartition) -> Steps:
        """Begins a term with a partition: reads its committed offset. Without an answer it tries again later."""
        where = (self.group_id, place)
        yield from self._prove()
        if place not in self.owned:
            return
        floor, generation = self.world.offsets.floor(where), self.generation
        wanted = OffsetFetchRequestTopics(name=place.topic, partition_indexes=[place.partition])
        answers: list[Any] = []

        def code_of(answer: Any) -> int:
            answers.append(answer)
            group = answer.groups[0]
            return int(group.error_code or group.topics[0].partitions[0].error_code)

        code = yield from self._ask(offset_fetch, 9, lambda: self._offset_fetch(wanted), code_of)
        if code == ErrorCode.NONE and place in self.owned:
            start = answers[-1].groups[0].topics[0].partitions[0].committed_offset
            term = self._terms[place] = self.world.offsets.begin(where, self.member_id, generation, start, floor)
            self._positions[place] = term.start
        elif code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            self._heed(code)

    def _offset_fetch(self, wanted: OffsetFetchRequestTopics) -> OffsetFetchRequest:
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=[wanted])], require_stable=True)

    # Transactions

    def _commit_in_transaction(self, attempt: Attempt) -> Steps:
        """Commits offsets in a transaction (KIP-447): the coordinator checks the member's generation when the offsets are sent."""
        if self._identity[0] < 0 and not (yield from self._initialize()):
            self.world.offsets.refuse(attempt)
            return
        code = yield from self._send_offsets(attempt)
        is_committed = code == ErrorCode.NONE and self.chance.random() < COMMITTED
        if not is_committed:
            self.world.offsets.refuse(attempt)
        if (yield from self._end_transaction(is_commit=is_committed)) and is_committed:
            self.world.offsets.acknowledge(attempt)
        if not is_committed:
            self._heed(code)

    def _initialize(self) -> Steps:
        body = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=TRANSACTION_MS)
        for _ in range(ASKED_TIMES):
            answer = yield Call(init_producer_id, 4, lambda: body, TRANSACTIONS, PATIENCE_MS)
            if answer is None:
                self.connections.give_up()
            elif not answer.error_code:
                self._identity = answer.producer_id, answer.producer_epoch
                return True
            yield self.chance.randint(1, 60)
        return False

    def _send_offsets(self, attempt: Attempt) -> Steps:
        """Sends the offsets; returns the error code of the last answer, None without an answer."""
        partition = TxnOffsetCommitRequestPartition(partition_index=attempt.term.where[1].partition, committed_offset=attempt.end)
        body = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=self.group_id,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        for _ in range(ASKED_TIMES):
            code = yield from self._ask(txn_offset_commit, 5, lambda: body, lambda answer: answer.topics[0].partitions[0].error_code)
            if code == ErrorCode.NONE or code in WITHOUT_EFFECT - {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:
                break
            yield self.chance.randint(1, 60)
        return code

    def _end_transaction(self, *, is_commit: bool) -> Steps:
        """Ends the transaction; returns whether it has certainly ended as requested. If the outcome is unknown, the next InitProducerId
        ends it.
        """
        producer_id, epoch = self._identity
        body = EndTxnRequest(transactional_id=self._transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=is_commit)
        for _ in range(ASKED_TIMES):
            answer = yield Call(end_txn, 5, lambda: body, TRANSACTIONS, PATIENCE_MS)
            if answer is None:
                self.connections.give_up()
            elif not answer.error_code:
                self._identity = answer.producer_id, answer.producer_epoch
                return True
            elif answer.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH):
                break
            yield self.chance.randint(1, 60)
        self._identity = (-1, -1)
        return False


class ClassicMember(Member):
    """A member of a classic group; the group's leader assigns the partitions."""

    _proved: int | None = None

    def leave(self) -> Call | None:
        leaver = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        body = LeaveGroupRequest(group_id=self.group_id, members=[leaver])
        return self._to_coordinator(leave_group, 3, body) if self.member_id else None

    def _heed(self, code: int | None) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.member_id = ""
            raise Rejoin
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            raise Rejoin

    def _join(self) -> Steps:
        joined: list[Any] = []
        if not self.member_id:
            self._asked_ms = self._now_ms

        def join_code(answer: Any) -> int:
            joined.append(answer)
            return int(answer.error_code)

        code = yield from self._ask(join_group, 5, self._join_request, join_code, JOIN_PATIENCE_MS)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined[-1].member_id
            code = yield from self._ask(join_group, 5, self._join_request, join_code, JOIN_PATIENCE_MS)
        self._heed(code)
        if code != ErrorCode.NONE:
            raise Rejoin
        answer = joined[-1]
        self.member_id, self.generation = answer.member_id, answer.generation_id
        yield from self._sync(self._spread(answer) if answer.leader == answer.member_id else [])

    def _sync(self, assignments: Sequence[SyncGroupRequestAssignment]) -> Steps:
        given: list[TopicPartition] = []

        def code_of(answer: Any) -> int:
            given.extend(read_assignment(answer.assignment) if not answer.error_code else ())
            return int(answer.error_code)

        body = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=list(assignments),
        )
        code = yield from self._ask(sync_group, 3, lambda: body, code_of, JOIN_PATIENCE_MS)
        self._heed(code)
        if code != ErrorCode.NONE:
            raise Rejoin
        self._own(given)
        self.owned, self.is_settled = given, True
        self._proved, self._last_beat_ms = self._coordinator, self._now_ms

    def _join_request(self) -> JoinGroupRequest:
        metadata = b"\0\1" + encoder(protocol.ConsumerProtocolSubscription, 1)(protocol.ConsumerProtocolSubscription(topics=[TOPIC]))
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    def _spread(self, joined: Any) -> list[SyncGroupRequestAssignment]:
        """Assigns every partition to one member, in a random order."""
        members = [member.member_id for member in joined.members]
        self.chance.shuffle(members)
        found = []
        for index, member_id in enumerate(members):
            mine = list(range(index, self.world.topics[TOPIC], len(members)))
            assigned = [protocol.ConsumerProtocolAssignmentTopicPartition(topic=TOPIC, partitions=mine)] if mine else []
            data = encoder(protocol.ConsumerProtocolAssignment, 1)(protocol.ConsumerProtocolAssignment(assigned_partitions=assigned))
            found.append(SyncGroupRequestAssignment(member_id=member_id, assignment=b"\0\1" + data))
        return found

    def _beat(self) -> Steps:
        body = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id, group_instance_id=self.instance_id
        )
        code = yield from self._ask(heartbeat, 4, lambda: body, lambda answer: answer.error_code)
        if code == ErrorCode.NONE:
            self._proved = self._coordinator
        self._heed(code)

    def _prove(self) -> Steps:
        for _ in range(ASKED_TIMES):
            if self._coordinator is not None and self._proved == self._coordinator:
                return
            yield from self._beat()
            yield self.chance.randint(1, 40)
        raise Rejoin


class ConsumerMember(Member):
    """A member whose partitions the coordinator assigns (KIP-848), step by step."""

    api: Any = consumer_group_heartbeat
    request: Callable[..., Any] = ConsumerGroupHeartbeatRequest

    def __init__(self, world: GroupWorld, group_id: str, name: str, transactional_id: str = "") -> None:
        super().__init__(world, group_id, name, transactional_id)
        self.member_id = name
        self.generation = 0

    def leave(self) -> Call | None:
        return self._farewell(-1, None)

    def pause(self) -> Call | None:
        """Returns the request with which a static member leaves for a while, because its next process will start soon."""
        return self._farewell(-2, self.instance_id)

    def _farewell(self, epoch: int, instance_id: str | None) -> Call | None:
        body = self.request(group_id=self.group_id, member_id=self.member_id, instance_id=instance_id, member_epoch=epoch)
        return self._to_coordinator(self.api, 1, body) if self.generation > 0 else None

    def _heed(self, code: int | None) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
            self.generation = 0
            raise Rejoin
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced
        if code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION):
            self._last_beat_ms = 0  # the next heartbeat is sent immediately and has the current epoch

    def _join(self) -> Steps:
        while self.generation <= 0 and not self.world.is_closing:
            self._asked_ms = self._now_ms
            yield from self._beat()
            yield self.chance.randint(1, 60)

    def _beat(self) -> Steps:
        answers: list[Any] = []

        def code_of(answer: Any) -> int:
            answers.append(answer)
            return int(answer.error_code)

        code = yield from self._ask(self.api, 1, self._heartbeat, code_of)
        self._heed(code)
        if code != ErrorCode.NONE:
            return
        answer = answers[-1]
        is_same, self.generation = self.generation == answer.member_epoch, answer.member_epoch
        given = self._given(answer)
        if given is None:
            self.is_settled = is_same
        else:
            self._own(given)
            self.is_settled = is_same and given == self.owned
            yield from self._move_to(given)

    def _given(self, answer: Any) -> list[TopicPartition] | None:
        """Returns the partitions that the member has from now on; None if nothing changes."""
        if answer.assignment is None:
            return None
        return [TopicPartition(TOPIC, index) for topic in answer.assignment.topic_partitions for index in sorted(topic.partitions)]

    def _move_to(self, given: list[TopicPartition]) -> Steps:
        """Commits the positions of the partitions that it gives up, and reports that immediately in a heartbeat."""
        for place in [place for place in self.owned if place not in given]:
            if place in self._terms:
                yield from self._commit_place(place)
            self._terms.pop(place, None)
            self._positions.pop(place, None)
            self._last_beat_ms = 0
        self.owned = given

    def _heartbeat(self) -> Any:
        owned = [place.partition for place in self.owned]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[TOPIC],
            server_assignor="uniform",
            topic_partitions=[TopicPartitions(topic_id=self.world.topic_id(TOPIC), partitions=owned)] if owned else [],
        )

    def _offset_fetch(self, wanted: OffsetFetchRequestTopics) -> OffsetFetchRequest:
        group = OffsetFetchRequestGroup(group_id=self.group_id, member_id=self.member_id, member_epoch=self.generation, topics=[wanted])
        return OffsetFetchRequest(groups=[group], require_stable=True)
