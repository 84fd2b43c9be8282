"""Share sessions (KIP-932): a member of a share group names its partitions once, and later requests name only the changes.

A session belongs to a group and a member. Epoch 0 opens a session, each later request has the next epoch, and epoch -1 ends the session. A
session also ends with the connection that opened it. When a session ends, records that its member has acquired and not acknowledged are
released: they become available again, or are archived if they may not be delivered again. When the group's last session on this broker has
ended, its share partitions are closed as soon as no dead letters are to be copied (`dead_letters.py`). Records are released and partitions
are closed in steps, because each partition with records of the member needs a write. After the end of a session the member cannot open
another session until all records are released, because the release would include the new session's records. If epoch 0 replaces a session
that has not ended, nothing is released: the member's records stay acquired.

A member may continue its session on another connection, as in Kafka, but only as the same principal (`belongs_to_other`).

The number of sessions is limited by `group.share.max.share.sessions`. At this limit a new session evicts another session
(`base/loop/fair_slots.py`). The evicted session is of the address with the most sessions, if that address has at least two sessions more
than the client's address. Otherwise it is of the client's address and of the connection with the most sessions there, if that connection
has at least two sessions more than the client's connection. Otherwise the new session is refused.

The number of partitions is limited for one session and for all sessions; the second limit also depends on `ottla.memory.max.bytes`. At the
second limit, the address with the most partitions loses sessions. Exception: the client's own session ends if the client's address has at
least as many partitions, counting the session's partitions twice.

The handlers `share_fetch.py` and `share_acknowledge.py` use the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Protocol

from ottla.base.errors import ErrorCode
from ottla.base.loop.fair_slots import FairSlots, Origin
from ottla.base.loop.turns import Turns, run_steps
from ottla.sharing.registry import SharePartitions
from ottla.sharing.share_partition import SharePartition, StoredStateCheck

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFFFFFF
MEMBER_ID_LENGTH_MAX = 36
SESSION_PARTITIONS_MAX = 5000
PARTITIONS_PER_STEP = 20
"""Share partitions whose records are released in one step. 20: each one with records of the member needs a write."""
PARTITIONS_MAX = 250_000
"""Partitions of all sessions together; each takes some 150 bytes."""

TopicIdPartition = tuple[bytes, int]
"""Topic id and partition."""


class ClosingConnection(Origin, Protocol):
    """A client's connection that reports its close."""

    principal: str

    def call_when_closed(self, subject: object, function: Callable[[object], None]) -> None: ...

    def forget_closing(self, subject: object) -> None: ...


class ShareSession:
    """The partitions that one member reads, in the order of its request. `epoch` is expected in the member's next request. `checks` has
    each partition that the member added and has not read yet. Its value is the pending check of the stored state (`StoredStateCheck`), or
    None if no check was sent yet."""

    __slots__ = ("checks", "connection", "epoch", "group_id", "member_id", "principal", "wanted")

    def __init__(self, group_id: str, member_id: str, connection: ClosingConnection) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.principal = connection.principal
        self.epoch = 1
        self.wanted: dict[TopicIdPartition, None] = {}
        self.checks: dict[TopicIdPartition, StoredStateCheck | None] = {}

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Applies the additions and removals of a request."""
        for topic_partition in forgotten:
            self.wanted.pop(topic_partition, None)
            self.checks.pop(topic_partition, None)
        for topic_partition in added:
            self.wanted[topic_partition] = None
            self.checks[topic_partition] = None

    def check(self, topic_partition: TopicIdPartition, share: SharePartition, is_new: bool) -> StoredStateCheck | None:
        """Returns the check that must succeed before records of this share partition are delivered; None if no check is needed. The first
        read of a partition that the member has added needs a check, because the group's offsets may have been altered since the share
        partition was opened. No check is needed if the share partition was opened just now (`is_new`)."""
        if topic_partition not in self.checks:
            return None
        check = self.checks[topic_partition]
        if check is None and not is_new:
            check = self.checks[topic_partition] = share.check()
        if check is None or check.is_over:
            del self.checks[topic_partition]
        return check

    def step(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def in_turn(self, epoch: int) -> list[TopicIdPartition]:
        """Returns the partitions in an order that starts with another partition in each request, so that a limit of the answer starves no
        partition."""
        places = list(self.wanted)
        if len(places) > 1:
            begin = epoch % len(places)
            places = places[begin:] + places[:begin]
        return places


class ShareSessions:
    def __init__(
        self, shares: SharePartitions, sessions_max: int, partitions_max: int = PARTITIONS_MAX, turns: Turns | None = None
    ) -> None:
        """`partitions_max` is the number of partitions that fit into memory. `turns` spreads the end of a session over iterations of the
        event loop; without `turns`, sessions end immediately."""
        self._shares = shares
        self._sessions_max = sessions_max
        self.partitions_max = min(PARTITIONS_MAX, partitions_max)
        self._groups: dict[str, dict[str, ShareSession]] = {}
        self._slots = FairSlots[ShareSession]()
        self._turns = turns
        self._leaving: dict[str, dict[str, None]] = {}
        """By group, the members whose records are being released."""

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._groups.get(group_id, {}).get(member_id)

    def belongs_to_other(self, group_id: str, member_id: str, principal: str) -> bool:
        """Whether another principal opened the member's session. Such a session can neither be used nor replaced."""
        known = self.find(group_id, member_id)
        return known is not None and known.principal != principal

    def open(self, group_id: str, member_id: str, connection: ClosingConnection) -> ShareSession | None:
        """Opens a session, which replaces the member's earlier session, if any. Returns None if there are too many sessions, or while
        records of an ended session of the member are being released.
        """
        known = self.find(group_id, member_id)
        if known is not None:
            self._remove(known)
        if member_id in self._leaving.get(group_id, ()) or not self._may_open(connection):
            return None
        session = ShareSession(group_id, member_id, connection)
        self._groups.setdefault(group_id, {})[member_id] = session
        self._slots.add(session, connection, 0)
        connection.call_when_closed(session, self._on_connection_closed)
        return session

    def _may_open(self, connection: ClosingConnection) -> bool:
        """Whether one more session may be opened. Evicts a session of an address or connection with more sessions, if that is necessary."""
        slots = self._slots
        while 0 < self._sessions_max <= len(slots):
            victim = slots.victim_elsewhere(connection.host) or slots.victim_beside(connection)
            if victim is None:
                return False
            self.end(victim)
        return len(slots) < self._sessions_max

    def update(self, session: ShareSession, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> bool:
        """Applies the additions and removals of a request; may end sessions of other addresses. Ends this session and returns False if
        there are too many partitions."""
        slots = self._slots
        session.update(added, forgotten)
        slots.weigh(session, len(session.wanted))
        if len(session.wanted) <= SESSION_PARTITIONS_MAX:
            while slots.weight > self.partitions_max and (victim := slots.heavy_victim_elsewhere(session)) is not None:
                self.end(victim)
            if slots.weight <= self.partitions_max:
                return True
        self.end(session)
        return False

    def step(self, group_id: str, member_id: str, epoch: int) -> tuple[ShareSession | None, ErrorCode]:
        """Returns the session of a request with this epoch, and advances the session's epoch. Returns None and an error code if there is no
        such session. If `epoch` is the final epoch, the caller of `step` must end the session."""
        session = self.find(group_id, member_id)
        if session is None:
            return None, ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session, ErrorCode.NONE
        if epoch != session.epoch:
            return None, ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.step()
        self._slots.use(session)
        return session, ErrorCode.NONE

    def end(self, session: ShareSession) -> None:
        """Ends a session: releases the member's records, and closes the group's share partitions with its last session."""
        if self.find(session.group_id, session.member_id) is not session:
            return
        self._remove(session)
        group_id = session.group_id
        leaving = self._leaving.get(group_id)
        if leaving is not None:
            leaving[session.member_id] = None  # the running release continues with this member
            return
        self._leaving[group_id] = {session.member_id: None}
        if self._turns is not None:
            self._turns.add(self._release(group_id))
        else:
            run_steps(self._release(group_id))

    def _release(self, group_id: str) -> Generator[None, None, None]:
        """Releases the records of members whose sessions have ended, in all share partitions of a group."""
        leaving = self._leaving[group_id]
        try:
            while leaving:
                gone = list(leaving)
                members = frozenset(gone)
                for number, share in enumerate(self._shares.of_group(group_id), 1):
                    share.release(members, ignore)
                    if group_id not in self._groups:
                        share.close_when_copied()
                    if not number % PARTITIONS_PER_STEP:
                        yield
                for member in gone:
                    del leaving[member]
        finally:
            del self._leaving[group_id]

    def _remove(self, session: ShareSession) -> None:
        session.connection.forget_closing(session)
        group = self._groups[session.group_id]
        del group[session.member_id]
        if not group:
            del self._groups[session.group_id]
        self._slots.remove(session)

    def _on_connection_closed(self, session: object) -> None:
        assert isinstance(session, ShareSession)
        self.end(session)


def ignore(code: ErrorCode) -> None:
    """Ignores the result of a release, because no request waits for the result."""


def is_member_id(text: str | None) -> bool:
    return text is not None and 0 < len(text) <= MEMBER_ID_LENGTH_MAX
