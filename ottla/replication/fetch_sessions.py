"""Incremental fetch sessions (KIP-227): a client names its partitions once, and later requests name only the changes.

A session is a map of the wanted partitions in the order of serving. Partitions that returned data move to the end, so that a byte limit
starves none of them. A session belongs to the principal that opened it and has a random id. Each request must have the session's next
epoch. There are limits for the number of sessions, the number of partitions of one session and the number of partitions of all sessions.
The last limit also depends on `ottla.memory.max.bytes`. At the limit of sessions a new session evicts one of the address with the most
sessions, if that address has at least two more than the new session's address. Otherwise it evicts one of its own address, or else the
least recently used of all. At the limit of partitions, sessions are evicted by a similar rule that compares the numbers of their partitions
(`base/loop/fair_slots.py`). The client of an evicted session sends one full request to start again. No session is made for a fetch with
more partitions than a session may have, or with a topic name longer than the limit; such a client names all partitions each time.

If a request names a partition twice, the last entry applies (Kafka keeps the entries in a map).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ottla.base.errors import ErrorCode
from ottla.base.identifiers import TOPIC_NAME_CHARACTERS_MAX
from ottla.base.loop.fair_slots import FairSlots, Origin
from ottla.base.ports import Random
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
EPOCH_MAX = 0x7FFFFFFF
SESSION_PARTITIONS_MAX = 5000
"""Partitions of one session. An incremental request may read all of them at once, which takes some ms for a thousand."""
PARTITIONS_MAX = 250_000
"""Partitions of all sessions together; each takes some 300 bytes."""

Key = tuple[str | bytes, int]
"""Topic name (below version 13) or topic id, and partition."""


class SessionOwner(Origin, Protocol):
    """The connection of a fetch."""

    @property
    def principal(self) -> str: ...


class WantedPartition:
    """One partition of a fetch, and its high watermark and log start in the last answer."""

    __slots__ = ("high_watermark", "index", "log_start_offset", "partition", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, partition: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = partition.partition
        self.partition = partition
        self.high_watermark = -1
        self.log_start_offset = -1

    def key(self) -> Key:
        return (self.topic or self.topic_id, self.index)


class FetchSession:
    """The wanted partitions of one fetcher, in serving order."""

    __slots__ = ("epoch", "has_topic_ids", "principal", "session_id", "wanted")

    def __init__(self, session_id: int, has_topic_ids: bool, principal: str) -> None:
        self.session_id = session_id
        self.has_topic_ids = has_topic_ids
        self.principal = principal
        self.epoch = INITIAL_EPOCH
        self.wanted: dict[Key, WantedPartition] = {}

    def update(self, body: FetchRequest) -> bool:
        """Applies the added, changed and removed partitions of an incremental request; removal wins. Returns whether an added topic has a
        name that is too long."""
        has_long_name = False
        for entry in wanted_of(body):
            known = self.wanted.get(entry.key())
            if known is None:
                self.wanted[entry.key()] = entry
                has_long_name = has_long_name or len(entry.topic) > TOPIC_NAME_CHARACTERS_MAX
            else:
                known.partition = entry.partition
        for forgotten in body.forgotten_topics_data:
            for index in forgotten.partitions:
                self.wanted.pop((forgotten.topic or forgotten.topic_id, index), None)
        return has_long_name

    def move_to_end(self, key: Key) -> None:
        """Moves a partition that returned data to the end, so that the next answer serves it last."""
        entry = self.wanted.pop(key, None)
        if entry is not None:
            self.wanted[key] = entry


class FetchPlan:
    """The partitions to read for one Fetch request, after its session was found."""

    __slots__ = ("error", "is_incremental", "session", "wanted")

    def __init__(
        self, wanted: list[WantedPartition], session: FetchSession | None = None, is_incremental: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.wanted = wanted
        self.session = session
        self.is_incremental = is_incremental
        self.error = error


class FetchSessions:
    """All fetch sessions of clients with this broker, with fair eviction by client address."""

    def __init__(self, random: Random, sessions_max: int, partitions_max: int = PARTITIONS_MAX) -> None:
        """`partitions_max` is the number of partitions that fit into memory."""
        self._random = random
        self._sessions_max = sessions_max
        self.partitions_max = min(PARTITIONS_MAX, partitions_max)
        self._sessions: dict[int, FetchSession] = {}
        self._slots = FairSlots[int]()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def _partitions_of_one_max(self) -> int:
        return min(SESSION_PARTITIONS_MAX, self.partitions_max)

    def find(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def plan(self, body: FetchRequest, has_topic_ids: bool, client: SessionOwner, given: list[WantedPartition] | None = None) -> FetchPlan:
        """Finds or creates the session of a request. A request is a full fetch without a session, opens a session, or continues one. The
        first two also close the session that the request names. `given` has the wanted partitions, each once, if the caller has collected
        them already."""
        session = self._sessions.get(body.session_id)
        if session is not None and session.principal != client.principal:
            session = None
        if body.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session is not None:
                self._remove(session.session_id)
            wanted = list(wanted_of(body)) if given is None else given
            if len(wanted) > 1 and given is None:
                wanted = list({entry.key(): entry for entry in wanted}.values())
            if body.session_epoch == FINAL_EPOCH or not self._may_keep(wanted):
                return FetchPlan(wanted)
            return FetchPlan(wanted, self._create(wanted, has_topic_ids, client))
        return self._step(session, body, has_topic_ids)

    def _may_keep(self, wanted: list[WantedPartition]) -> bool:
        """Whether these partitions may be kept in a session."""
        if self._sessions_max < 1 or len(wanted) > self._partitions_of_one_max:
            return False
        return max([len(entry.topic) for entry in wanted], default=0) <= TOPIC_NAME_CHARACTERS_MAX

    def _step(self, session: FetchSession | None, body: FetchRequest, has_topic_ids: bool) -> FetchPlan:
        if session is None:
            return FetchPlan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != body.session_epoch:
            return FetchPlan([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.has_topic_ids != has_topic_ids:
            return FetchPlan([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._slots.use(session.session_id)
        if body.topics or body.forgotten_topics_data:
            has_long_name = session.update(body)
            if has_long_name or len(session.wanted) > self._partitions_of_one_max:
                self._remove(session.session_id)
                return FetchPlan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            self._slots.weigh(session.session_id, len(session.wanted))
            self._make_room(session.session_id)
        if not session.wanted:  # no partition is left; the next fetch opens a new session
            self._remove(session.session_id)
            return FetchPlan([])
        session.epoch = next_epoch(session.epoch)
        return FetchPlan(list(session.wanted.values()), session, is_incremental=True)

    def _create(self, wanted: list[WantedPartition], has_topic_ids: bool, client: SessionOwner) -> FetchSession:
        while len(self._sessions) >= self._sessions_max:
            self._remove(self._slots.victim_for(client.host))
        session_id = self._random.randrange(EPOCH_MAX - 1) + 1
        while session_id in self._sessions:
            session_id = self._random.randrange(EPOCH_MAX - 1) + 1
        session = FetchSession(session_id, has_topic_ids, client.principal)
        session.wanted = {entry.key(): entry for entry in wanted}
        session.epoch = next_epoch(INITIAL_EPOCH)
        self._sessions[session_id] = session
        self._slots.add(session_id, client, len(session.wanted))
        self._make_room(session_id)
        return session

    def drop(self, session: FetchSession) -> None:
        """Closes a session unless it was evicted."""
        if self._sessions.get(session.session_id) is session:
            self._remove(session.session_id)

    def _remove(self, session_id: int | None) -> None:
        assert session_id is not None, "no session is left that could be evicted"
        del self._sessions[session_id]
        self._slots.remove(session_id)

    def _make_room(self, keep: int) -> None:
        """Evicts sessions other than `keep` until all sessions together have at most `partitions_max` partitions."""
        while self._slots.weight > self.partitions_max:
            self._remove(self._slots.heavy_victim_for(keep))


def next_epoch(epoch: int) -> int:
    """Returns the next epoch; after the largest one follows 1, because 0 opens a session."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


def wanted_of(body: FetchRequest) -> Iterator[WantedPartition]:
    for topic in body.topics:
        for partition in topic.partitions:
            yield WantedPartition(topic.topic, topic.topic_id, partition)
