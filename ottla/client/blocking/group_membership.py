"""Membership of a classic consumer group: join, assign (as the leader), sync, heartbeat, leave.

The consumer calls `keep_alive` between polls. It joins before the first assignment and when the group rebalances, sends a heartbeat when
one is due, and returns the new assignment after a join. With an eager assignor the member gives up all its partitions before it joins. With
cooperative-sticky it keeps them, and joins a second time if the assignment takes some away (KIP-429).

Every `metadata_age_s` seconds the group's leader reads the topics' metadata. It joins again, which starts a rebalance, if a topic's number
of partitions has changed. `is_new` is set before the first join and when the membership was lost, because other members may then have
committed offsets of its partitions. The consumer resets it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from ottla.base.errors import ApiError, ErrorCode, WireError, error_code
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.membership import CoordinatorConnection, Membership
from ottla.client.core.assignors import COOPERATIVE_STICKY, RANGE, ROUND_ROBIN, Subscription, assign
from ottla.client.core.group_admin import read_assignment
from ottla.client.core.topic_lists import partitions_in, topic_list
from ottla.client.errors import COORDINATOR_MOVED, ConnectError, KafkaError, TransportError, refused
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages import consumer_protocol as protocol
from ottla.wire.messages import join_group, sync_group
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_INTERVAL_MS = 3_000
DEFAULT_ASSIGNORS = (RANGE, ROUND_ROBIN, COOPERATIVE_STICKY)
METADATA_AGE_S = 10.0
"""Interval, in seconds, at which the leader checks the topics' partitions. Kafka's clients check every 5 minutes; that delays the records
of a new topic.
"""
JOIN_TRIES_MAX = 20
"""Maximum number of attempts to join in one `keep_alive`."""

_SUBSCRIPTION_VERSION = 2
_ASSIGNMENT_VERSION = 0
_PROTOCOL_TYPE = "consumer"
_MEMBERSHIP_ENDS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
"""Errors after which the member has lost its partitions and joins the group again."""


class GroupMembership(Membership):
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        assignors: Sequence[str] = DEFAULT_ASSIGNORS,
        instance_id: str | None = None,
        metadata_age_s: float = METADATA_AGE_S,
    ) -> None:
        super().__init__(cluster, group_id, topics)
        self.metadata_age_s = metadata_age_s
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.heartbeat_interval_s = min(HEARTBEAT_INTERVAL_MS, session_timeout_ms // 3) / 1000
        self.assignors = tuple(assignors)
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.assignor = ""
        self.owned: tuple[TopicPartition, ...] = ()
        self.is_new = True
        self._must_join = True
        self._heartbeat_at = 0.0
        """Monotonic time, in seconds, of the next heartbeat."""
        self._confirmed_at = 0.0
        """Monotonic time, in seconds, at which the last answered heartbeat was sent or the last join ended."""
        self._assigned: dict[str, int] = {}
        """Number of partitions by topic when this member last joined as the group's leader."""
        self._metadata_check_at = inf
        """Monotonic time, in seconds, of the next metadata check; infinite unless this member is the group's leader."""

    def must_join(self) -> bool:
        """Whether the next `keep_alive` joins again. An automatic commit is sent before that."""
        return self._must_join

    def is_due(self) -> bool:
        return self._must_join or time.monotonic() >= min(self._heartbeat_at, self._metadata_check_at)

    def may_have_expired(self) -> bool:
        """Whether the last answered heartbeat is so old that the group may have removed this member."""
        return time.monotonic() >= self._confirmed_at + self.session_timeout_ms / 1000

    def join_again(self, code: ErrorCode) -> None:
        """Makes the next `keep_alive` join again, after the coordinator refused a request with `code`. Forgets the partitions if the code
        says that the member id or the generation is no longer valid.
        """
        if code in _MEMBERSHIP_ENDS:
            self._membership_lost(code)
        self._must_join = True

    def keep_alive(self) -> tuple[TopicPartition, ...] | None:
        """Joins if necessary, else sends a heartbeat and checks the topics when they are due. Returns the new assignment after a join,
        else None.
        """
        if self._must_join:
            return self._join()
        now = time.monotonic()
        if now >= self._heartbeat_at:
            self._heartbeat()
        if now >= self._metadata_check_at:
            self._look_for_partitions(now)
        return None

    def _look_for_partitions(self, now: float) -> None:
        """Starts a rebalance if a topic's number of partitions differs from this leader's last assignment."""
        self._metadata_check_at = now + self.metadata_age_s
        try:
            self.cluster.refresh(self._assigned)
        except (KafkaError, TransportError):
            return
        if self._partition_counts(self._assigned) != {topic: count for topic, count in self._assigned.items() if count}:
            self._must_join = True

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self.cluster.metadata.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}

    def _heartbeat(self) -> None:
        sent_at = time.monotonic()
        self._heartbeat_at = sent_at + self.heartbeat_interval_s
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id, group_instance_id=self.instance_id
        )
        try:
            answer = self.coordinator.ask(request)
        except TransportError:
            return
        code = error_code(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._confirmed_at = sent_at
            self._must_join = self._must_join or code is ErrorCode.REBALANCE_IN_PROGRESS
        elif code in _MEMBERSHIP_ENDS:
            self._membership_lost(code)
        elif code in COORDINATOR_MOVED:
            self.coordinator.forget()
        elif code:
            raise refused(code, f"member of group {self.group_id!r}")

    def _membership_lost(self, code: ErrorCode) -> None:
        """Forgets this member's partitions and generation, which are no longer valid. The next `keep_alive` joins again."""
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = -1
        self.owned = ()
        self.is_new = True
        self._must_join = True

    def leaving(self, coordinator: CoordinatorConnection) -> LeaveGroupRequest | None:
        """Returns the request to leave; None for a static member, which stays in the group, and for a member without a member id."""
        member_id, self.member_id = self.member_id, ""
        if not member_id or self.instance_id is not None:
            return None
        if coordinator.connection().version_of(LeaveGroupRequest.API_KEY) < 3:
            return LeaveGroupRequest(group_id=self.group_id, member_id=member_id)
        member = MemberIdentity(member_id=member_id, reason="the consumer is closed")
        return LeaveGroupRequest(group_id=self.group_id, members=[member])

    # Joining

    def _join(self) -> tuple[TopicPartition, ...]:
        deadline = time.monotonic() + self.cluster.timeout_s
        for number in range(JOIN_TRIES_MAX):
            try:
                assignment = self._join_once()
            except (KafkaError, ConnectError) as error:
                self._adapt_to(error, number == JOIN_TRIES_MAX - 1 or time.monotonic() > deadline)
                continue
            if assignment is not None:
                self._confirmed_at = time.monotonic()
                self._heartbeat_at = self._confirmed_at + self.heartbeat_interval_s
                return assignment
        raise refused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {self.group_id!r} does not settle; {JOIN_TRIES_MAX} tries to join failed")

    def _adapt_to(self, error: KafkaError | ConnectError, is_last: bool) -> None:
        """Prepares the next attempt to join. Raises a permanent error, and the loss of the coordinator if `is_last` or if the connection
        was closed."""
        if isinstance(error, ConnectError) or error.code in COORDINATOR_MOVED:
            if is_last or self.coordinator.is_closed:
                raise error
            self.coordinator.forget()
            time.sleep(0.1)
        elif error.code in _MEMBERSHIP_ENDS:
            self._membership_lost(error.code)
        elif error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
            raise error

    def _join_once(self) -> tuple[TopicPartition, ...] | None:
        """Sends JoinGroup and SyncGroup, and returns the assignment. Returns None if the coordinator only assigned a member id; `_join`
        then joins again with this id.
        """
        is_cooperative = self.assignor == COOPERATIVE_STICKY
        if not is_cooperative:
            self.owned = ()
        joined = self.coordinator.ask(self._join_request(), timeout_s=self.rebalance_timeout_ms / 1000 + self.cluster.timeout_s)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return None
        self._check(joined.error_code)
        self.member_id = joined.member_id
        self.generation = joined.generation_id
        self.assignor = joined.protocol_name or ""
        is_leader = joined.leader == joined.member_id
        assignments = self._assign_all(joined) if is_leader else []
        self._metadata_check_at = time.monotonic() + self.metadata_age_s if is_leader else inf
        synced = self.coordinator.ask(
            sync_group.SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=self.assignor,
                assignments=assignments,
            ),
            timeout_s=self.rebalance_timeout_ms / 1000 + self.cluster.timeout_s,
        )
        self._check(synced.error_code)
        assignment = read_assignment(synced.assignment)
        lost = set(self.owned) - set(assignment)
        self.owned = assignment
        # Under cooperative-sticky the next rebalance, which this member starts, assigns the partitions that the member has given up.
        self._must_join = self.assignor == COOPERATIVE_STICKY and bool(lost)
        return assignment

    def _check(self, code: int) -> None:
        if code:
            raise refused(error_code(code), f"group {self.group_id!r}")

    def _join_request(self) -> Any:
        subscription = protocol.ConsumerProtocolSubscription(
            topics=list(self.topics),
            user_data=None,
            owned_partitions=topic_list(protocol.TopicPartition, {one: one.partition for one in sorted(self.owned)}),
            generation_id=self.generation if self.owned else -1,
        )
        metadata = _SUBSCRIPTION_VERSION.to_bytes(2, "big") + encoder(protocol.ConsumerProtocolSubscription, _SUBSCRIPTION_VERSION)(
            subscription
        )
        return join_group.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[join_group.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.assignors],
        )

    def _assign_all(self, joined: Any) -> list[sync_group.SyncGroupRequestAssignment]:
        """Assigns the partitions to all members. Only the group's leader does this. A static leader that returns to an unchanged group
        assigns nothing (KIP-814), but notes the numbers of partitions for its checks."""
        members = {member.member_id: _read_subscription(member) for member in joined.members}
        topics = sorted({topic for subscription in members.values() for topic in subscription.topics})
        self.cluster.refresh(topics)
        counts = self._partition_counts(topics)
        self._assigned = {topic: counts.get(topic, 0) for topic in topics}
        if joined.skip_assignment:
            return []
        encode = encoder(protocol.ConsumerProtocolAssignment, _ASSIGNMENT_VERSION)
        found = []
        for member, partitions in assign(self.assignor, members, counts).items():
            topic_class = protocol.ConsumerProtocolAssignmentTopicPartition
            assigned = topic_list(topic_class, {one: one.partition for one in sorted(partitions)})
            data = encode(protocol.ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None))
            found.append(sync_group.SyncGroupRequestAssignment(member_id=member, assignment=_ASSIGNMENT_VERSION.to_bytes(2, "big") + data))
        return found


def _read_subscription(member: Any) -> Subscription:
    """Returns a member's subscription. A malformed subscription is treated as empty, so that the other members still get partitions."""
    data = member.metadata
    version = min(int.from_bytes(data[:2], "big"), protocol.ConsumerProtocolSubscription.VERSIONS[1])
    try:
        found, _ = decoder(protocol.ConsumerProtocolSubscription, version)(data, 2)
    except (WireError, ApiError):
        return Subscription(())
    return Subscription(tuple(found.topics), partitions_in(found.owned_partitions), found.generation_id, member.group_instance_id)
