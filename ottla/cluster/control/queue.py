"""The controller's messages that wait for one broker. They are joined, so that a slow broker needs little memory.

While a broker is slow or paused, the states in waiting messages become obsolete. So at most one message of each kind waits for each
controller epoch and registration of the broker, with only the newest state of each replica and topic. Their memory is bounded by the state
of the cluster and by the topics and replicas that were deleted since the broker took its last message. The entry of a deleted topic waits
until the broker takes it or registers again, because the broker has to delete the log.

- A replica is in LeaderAndIsr or in StopReplica, according to its last message. A waiting `is_new` is kept in newer states, because the
  broker has not created the log yet. StopReplica precedes LeaderAndIsr, because a topic that was created again has replicas with the same
  names.
- A complete message replaces the waiting one of its kind; later messages are merged into it.
- Otherwise the kinds keep the order of their first messages: a new broker gets the metadata before its replicas, other brokers after them.

`done` of a message that is merged into a waiting one is called immediately with NONE, before the waiting one is sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.cluster_metadata import BrokerMetadata, TopicMetadata
from ottla.base.control_messages import ControlMessage, LeaderAndIsr, ReplicaRole, StoppedReplica, StopReplica, UpdateMetadata
from ottla.base.errors import ErrorCode

Done = Callable[[ErrorCode], object]
Key = tuple[bytes, int]
"""A replica: topic id and partition."""

REMOVED_MAX = 1_000
"""Maximum number of removed topics in a complete message. The receiver does not need them, because it removes all topics that are not in
the message."""


class Letter(NamedTuple):
    """One message to a broker, and the function to call with its outcome."""

    message: ControlMessage
    done: Done


class ControlQueue:
    """The messages that wait for one broker."""

    def __init__(self) -> None:
        self._joined: list[_Joined] = []

    def __len__(self) -> int:
        return sum(len(joined.done) for joined in self._joined)

    def add(self, letter: Letter) -> None:
        """Appends a message, or merges it into a waiting one."""
        if not self._joined or not self._joined[-1].is_of(letter.message):
            self._joined.append(_Joined(letter.message))
        if not self._joined[-1].add(letter):
            letter.done(ErrorCode.NONE)

    def take(self) -> Letter | None:
        if not self._joined:
            return None
        letter = self._joined[0].take()
        if not self._joined[0].done:
            del self._joined[0]
        return letter

    def give_up(self, is_wanted: Callable[[ControlMessage], bool]) -> None:
        """Drops obsolete messages, and calls their `done` with NETWORK_EXCEPTION."""
        unwanted = [joined for joined in self._joined if not is_wanted(joined.first)]
        if unwanted:
            self._joined = [joined for joined in self._joined if joined not in unwanted]
            for done in [done for joined in unwanted for done in joined.done.values()]:
                done(ErrorCode.NETWORK_EXCEPTION)


class _Joined:
    """The waiting messages of one controller epoch for one registration of a broker. The keys of `done` are their kinds, in order."""

    def __init__(self, first: ControlMessage) -> None:
        self.first = first
        self.done: dict[type[ControlMessage], Done] = {}
        self._roles: dict[Key, ReplicaRole] = {}
        self._are_roles_complete = False
        self._stopped: dict[Key, StoppedReplica] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._removed: dict[tuple[str, bytes], None] = {}
        self._brokers: tuple[BrokerMetadata, ...] = ()
        self._is_metadata_complete = False

    def is_of(self, message: ControlMessage) -> bool:
        return _sender(self.first) == _sender(message)

    def add(self, letter: Letter) -> bool:
        """Adds or merges a message. Returns True if it is the first of its kind."""
        message, kind = letter.message, type(letter.message)
        if isinstance(message, LeaderAndIsr):
            self._add_roles(message)
        elif isinstance(message, StopReplica):
            self._add_stopped(message)
        else:
            assert isinstance(message, UpdateMetadata), f"{kind.__name__} does not travel"
            self._add_metadata(message)
        is_first = kind not in self.done
        self.done.setdefault(kind, letter.done)
        if is_first and kind is StopReplica and LeaderAndIsr in self.done:
            self.done = {StopReplica: self.done.pop(StopReplica), **self.done}
        return is_first

    def take(self) -> Letter:
        kind = next(iter(self.done))
        controller_id, controller_epoch, broker_epoch = _sender(self.first)
        message: ControlMessage
        if kind is LeaderAndIsr:
            message = LeaderAndIsr(
                controller_id=controller_id, controller_epoch=controller_epoch, broker_epoch=broker_epoch,
                states=list(self._roles.values()), is_complete=self._are_roles_complete,
            )  # fmt: skip
            self._roles, self._are_roles_complete = {}, False
        elif kind is StopReplica:
            message = StopReplica(
                controller_id=controller_id, controller_epoch=controller_epoch, broker_epoch=broker_epoch,
                stopped=list(self._stopped.values()),
            )  # fmt: skip
            self._stopped = {}
        else:
            message = UpdateMetadata(
                controller_id=controller_id, controller_epoch=controller_epoch, broker_epoch=broker_epoch,
                topics=list(self._topics.values()), brokers=self._brokers, removed=list(self._removed),
                is_complete=self._is_metadata_complete,
            )  # fmt: skip
            self._topics, self._removed, self._is_metadata_complete = {}, {}, False
        return Letter(message, self.done.pop(kind))

    def _add_roles(self, message: LeaderAndIsr) -> None:
        before = self._roles
        if message.is_complete:
            self._roles, self._are_roles_complete = {}, True
        for role in message.states:
            key = role.topic_id, role.partition.index
            waiting = before.get(key)
            is_still_new = waiting is not None and waiting.is_new and not role.is_new
            self._roles[key] = dataclasses.replace(role, is_new=True) if is_still_new else role
            self._stopped.pop(key, None)

    def _add_stopped(self, message: StopReplica) -> None:
        for replica in message.stopped:
            key = replica.topic_id, replica.partition
            self._stopped[key] = replica
            self._roles.pop(key, None)

    def _add_metadata(self, message: UpdateMetadata) -> None:
        self._brokers = tuple(message.brokers)
        if message.is_complete:
            self._topics, self._is_metadata_complete = {}, True
        for name, topic_id in message.removed:
            self._removed.pop((name, topic_id), None)
            self._removed[name, topic_id] = None
            waiting = self._topics.get(name)
            if waiting is not None and waiting.topic_id == topic_id:
                del self._topics[name]
        while self._is_metadata_complete and len(self._removed) > REMOVED_MAX:
            del self._removed[next(iter(self._removed))]
        self._topics.update((topic.name, topic) for topic in message.topics)


def _sender(message: ControlMessage) -> tuple[int, int, int]:
    return message.controller_id, message.controller_epoch, message.broker_epoch
