"""Membership of a share group (KIP-932): a heartbeat names the topics, and its answer assigns partitions.

A member chooses its own id and joins with epoch 0. `poll` calls `keep_alive` in a thread when a heartbeat is due. Members may share
partitions, so a new assignment is valid at once. A member that the group no longer knows joins again, without an assignment. Without an
assignment, the first heartbeats are sent earlier than the broker asks for: some brokers assign partitions a moment after a member has
joined, and a reader should not wait for a whole interval.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.base.uuids import Uuid, fresh_uuid, uuid_to_text
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.membership import CoordinatorConnection, Membership
from ottla.client.core.admin import check
from ottla.client.errors import COORDINATOR_MOVED, ConnectError, KafkaError, TransportError
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

JOINING_EPOCH = 0
LEAVING_EPOCH = -1

_BACKOFF_S = 0.1
"""Pause before the next heartbeat after the coordinator has moved or was unreachable, in seconds."""
_IMPATIENT_S = 0.25
"""Interval of the first `_IMPATIENT_TIMES` heartbeats without an assignment, in seconds."""
_IMPATIENT_TIMES = 8
_JOIN_ANEW = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class ShareMembership(Membership):
    """See the module."""

    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str], *, rack: str | None = None) -> None:
        super().__init__(cluster, group_id, topics)
        self.rack = rack
        self.member_id = uuid_to_text(fresh_uuid(os.urandom(16)))
        self.epoch = JOINING_EPOCH
        self._may_be_member = False
        """Whether a heartbeat was sent. Then the group may know this member, even if the answer was not read."""
        self.heartbeat_interval_s = 1.0
        self.assignment: dict[TopicPartition, Uuid] = {}
        self._heartbeat_at = 0.0
        self._join_until: float | None = None
        """When a join fails if the coordinator stays unreachable, in monotonic seconds; None unless the member is joining."""
        self._impatient = _IMPATIENT_TIMES
        self._assigned: list[tuple[Uuid, list[int]]] = []

    def due_s(self) -> float:
        """Returns the time until the next heartbeat in seconds, 0 if it is due."""
        return max(0.0, self._heartbeat_at - time.monotonic())

    def keep_alive(self) -> bool:
        """Sends a heartbeat if it is due. Returns whether the assignment has changed. Raises `KafkaError` if the group refuses the member,
        and `TransportError` only while it joins: the coordinator did not answer, or was unreachable for the cluster's `timeout_s`.
        """
        if self.due_s():
            return False
        before = self.assignment
        is_joining = self.epoch == JOINING_EPOCH
        self._may_be_member = True
        if is_joining and self._join_until is None:
            self._join_until = time.monotonic() + self.cluster.timeout_s
        try:
            answer = self.coordinator.ask(self._heartbeat(self.epoch))
        except TransportError as error:
            if is_joining and not before and not self._may_try_again(error):
                raise
            self._forget_coordinator()
            return False
        except KafkaError as error:
            if error.code not in COORDINATOR_MOVED:
                raise
            self._forget_coordinator()
            return False
        self._join_until = None
        code = error_code(answer.error_code)
        if not code:
            self._take(answer)
        elif code in COORDINATOR_MOVED:
            self._forget_coordinator()
        elif code in _JOIN_ANEW:
            self.epoch = JOINING_EPOCH
            self.assignment = {}
        else:
            check(code, answer.error_message, f"member of share group {self.group_id!r}")
        return self.assignment != before

    def _may_try_again(self, error: TransportError) -> bool:
        """Whether the join has time left to find a reachable coordinator."""
        if isinstance(error, ConnectError) and self._join_until is not None and time.monotonic() < self._join_until:
            return True
        self._join_until = None
        return False

    def _take(self, answer: Any) -> None:
        self.epoch = answer.member_epoch
        self.heartbeat_interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._assigned = [(topic.topic_id, list(topic.partitions)) for topic in answer.assignment.topic_partitions]
        if answer.assignment is not None or len(self.assignment) < sum(len(numbers) for _, numbers in self._assigned):
            self.assignment = self._named(self._assigned)
        wait_s = self.heartbeat_interval_s
        if not self.assignment and self._impatient:
            self._impatient -= 1
            wait_s = min(wait_s, _IMPATIENT_S)
        self._heartbeat_at = time.monotonic() + wait_s

    def _named(self, partitions: Sequence[tuple[Uuid, list[int]]]) -> dict[TopicPartition, Uuid]:
        """Returns the partitions by topic name, with the topic ids. Omits topics with an unknown name until the next heartbeat."""
        names = {topic.topic_id: name for name, topic in self.cluster.metadata.topics.items()}
        if any(topic_id not in names for topic_id, _ in partitions):
            self.cluster.refresh(self.topics)
            names = {topic.topic_id: name for name, topic in self.cluster.metadata.topics.items()}
        return {
            TopicPartition(names[topic_id], number): topic_id for topic_id, numbers in partitions if topic_id in names for number in numbers
        }

    def leaving(self, coordinator: CoordinatorConnection) -> ShareGroupHeartbeatRequest | None:
        may_be_member, self._may_be_member, self.epoch = self._may_be_member, False, JOINING_EPOCH
        return self._heartbeat(LEAVING_EPOCH) if may_be_member else None

    def _heartbeat(self, epoch: int) -> ShareGroupHeartbeatRequest:
        is_joining = epoch == JOINING_EPOCH
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=self.rack if is_joining else None,
            subscribed_topic_names=list(self.topics) if is_joining else None,
        )

    def _forget_coordinator(self) -> None:
        self.coordinator.forget()
        self._heartbeat_at = time.monotonic() + _BACKOFF_S
