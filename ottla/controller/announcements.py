"""Sends the changes to the brokers after a write is confirmed: first the states of their replicas, then the metadata.

A new broker is sent the whole state: settings and metadata first, because the coordinators that it then loads look topics up. Afterwards
each broker is sent only changes: LeaderAndIsr and StopReplica for its own replicas, UpdateMetadata and UpdateConfigs as for all others.
When brokers or failed replicas change, UpdateMetadata is complete. After the controller has read its state again, each broker is sent the
whole state. Messages refer to the immutable values of the state and copy nothing.

A caller can wait for the answers (`call_when_settled`). It waits at most `SILENT_MS` for a broker that does not answer, for example because
its process is suspended or its host is down. A client's request waits for brokers other than the controller's own at most for the timeout
of the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.base.cluster_metadata import (
    CONFIG_BROKER,
    CONFIG_CLIENT_METRICS,
    CONFIG_GROUP,
    CONFIG_TOPIC,
    BrokerMetadata,
    BrokerPut,
    BrokerRemoved,
    Change,
    ConfigPut,
    PartitionMetadata,
    QuotaPut,
    ReplicasFailed,
    ScramPut,
    SettingPut,
    TopicMetadata,
    TopicRemoved,
)
from ottla.base.control_messages import (
    BrokerMessenger,
    ControlMessage,
    LeaderAndIsr,
    ReplicaRole,
    StoppedReplica,
    StopReplica,
    UpdateConfigs,
    UpdateMetadata,
)
from ottla.base.errors import ErrorCode
from ottla.base.ports import Clock, Timers
from ottla.controller.state import ClusterState

Before = Mapping[str, TopicMetadata | None]

SILENT_MS = 5_000
"""Callers no longer wait for a broker whose oldest message has been unanswered for this many milliseconds."""


class WaitingAnnouncement:
    """A function that is called once, when the messages up to number `sent` are answered."""

    __slots__ = ("_function", "is_done", "sent")

    def __init__(self, sent: int, function: Callable[[], object]) -> None:
        self.sent = sent
        self._function = function
        self.is_done = False

    def run(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._function()


class Announcements:
    """Sends the messages of one controller, and keeps the numbers of the unanswered ones."""

    def __init__(self, messenger: BrokerMessenger, clock: Clock, timers: Timers, own_id: int) -> None:
        """`own_id` is the controller's own broker. It always answers, so no timeout applies to it."""
        self._messenger = messenger
        self._clock = clock
        self._timers = timers
        self._own_id = own_id
        self._sent = 0
        self._unanswered: dict[int, tuple[int, int]] = {}  # by number: the broker, and when it was sent
        self._waiting: deque[WaitingAnnouncement] = deque()
        self._overdue: list[WaitingAnnouncement] = []

    def call_when_settled(self, function: Callable[[], object], timeout_ms: int | None = None) -> None:
        """Calls `function` when every message sent so far is answered, except messages to silent brokers (`SILENT_MS`). Calls it before
        returning if nothing is unanswered. After `timeout_ms`, only answers of the controller's own broker are waited for.
        """
        waiting = WaitingAnnouncement(self._sent, function)
        self._waiting.append(waiting)
        self._run_settled()
        if waiting.is_done:
            return
        if timeout_ms is not None and timeout_ms < SILENT_MS:
            self._timers.call_later(max(timeout_ms, 0), lambda: self._time_out(waiting))
        self._timers.call_later(SILENT_MS, self._run_settled)

    def settings(self, state: ClusterState, broker: BrokerMetadata) -> None:
        self._send(state, broker, UpdateConfigs, changes=_all_settings(state), is_complete=True)

    def everything(self, state: ClusterState, brokers: Iterable[BrokerMetadata]) -> None:
        receivers = list(brokers)
        topics, live = tuple(state.topics()), tuple(state.brokers.values())
        settings = _all_settings(state)
        hosted: dict[int, list[ReplicaRole]] = {}
        for topic, partition in state.partitions():
            if partition.partition_epoch < 0:
                continue  # Its state is missing or damaged, so brokers keep the state that they have.
            sent = _state_of(topic, partition, is_new=False)
            for replica in partition.replicas:
                hosted.setdefault(replica, []).append(sent)
        is_whole = state.is_whole
        for broker in receivers:
            self._send(state, broker, UpdateConfigs, changes=settings, is_complete=True)
            self._send(state, broker, UpdateMetadata, topics=topics, brokers=live, is_complete=True)
            self._send(state, broker, LeaderAndIsr, states=hosted.get(broker.broker_id, ()), is_complete=is_whole)

    def changes(self, state: ClusterState, changes: Sequence[Change], before: Before) -> None:
        """Sends `changes`. `before` has the topics that they concern in their former state."""
        joined = [change.broker for change in changes if isinstance(change, BrokerPut)]
        self._replicas(state, before, [broker for broker in state.brokers.values() if broker not in joined])
        if any(isinstance(change, BrokerPut | BrokerRemoved | ReplicasFailed) for change in changes):
            # Replicas of many topics may have changed between online and offline.
            self.everything(state, joined)
            others = [broker for broker in state.brokers.values() if broker not in joined]
            self._to_all(state, others, UpdateMetadata, topics=tuple(state.topics()), brokers=_live(state), is_complete=True)
        else:
            self._metadata(state, changes, before)

    def stop(self, state: ClusterState, topics: Sequence[TopicMetadata]) -> None:
        """Sends StopReplica for the replicas of deleted topics to the registered brokers."""
        stopped: dict[int, list[StoppedReplica]] = {}
        for topic in topics:
            for partition in topic.partitions:
                for replica in partition.replicas:
                    stopped.setdefault(replica, []).append(_stopped(topic, partition))
        for broker_id, of_broker in stopped.items():
            if broker_id in state.brokers:
                self._send(state, state.brokers[broker_id], StopReplica, stopped=of_broker)

    def _metadata(self, state: ClusterState, changes: Sequence[Change], before: Before) -> None:
        settings = [change for change in changes if isinstance(change, SettingPut) and not _is_of_topic(change)]
        gone = dict.fromkeys(change.name for change in changes if isinstance(change, TopicRemoved))
        removed = [(name, topic.topic_id) for name, topic in before.items() if topic is not None and name in gone]
        names = [*before, *(put.name for put in changes if isinstance(put, ConfigPut) and _is_of_topic(put))]
        topics = [topic for topic in map(state.topic, dict.fromkeys(names)) if topic is not None]
        brokers = list(state.brokers.values())
        if topics or removed:
            self._to_all(state, brokers, UpdateMetadata, topics=topics, brokers=_live(state), removed=removed)
        if settings:
            self._to_all(state, brokers, UpdateConfigs, changes=settings)

    def _replicas(self, state: ClusterState, before: Before, receivers: Iterable[BrokerMetadata]) -> None:
        """Sends each receiver LeaderAndIsr and StopReplica for its changed replicas."""
        hosted: dict[int, list[ReplicaRole]] = {}
        stopped: dict[int, list[StoppedReplica]] = {}
        for name, old in before.items():
            new = state.topic(name)
            if new is None:
                continue  # Its replicas are stopped by the second step of the deletion.
            known = old.partitions if old is not None else ()
            for partition in new.partitions:
                previous = known[partition.index] if partition.index < len(known) else None
                if partition == previous:
                    continue
                sent = _state_of(new, partition, is_new=previous is None)
                for replica in partition.replicas:
                    hosted.setdefault(replica, []).append(sent)
                for replica in previous.replicas if previous is not None else ():
                    if replica not in partition.replicas:
                        stopped.setdefault(replica, []).append(_stopped(new, partition))
        for broker in receivers:
            if broker.broker_id in hosted:
                self._send(state, broker, LeaderAndIsr, states=hosted[broker.broker_id])
            if broker.broker_id in stopped:
                self._send(state, broker, StopReplica, stopped=stopped[broker.broker_id])

    def _to_all(
        self, state: ClusterState, receivers: Iterable[BrokerMetadata], kind: Callable[..., ControlMessage], /, **content: object
    ) -> None:
        for broker in receivers:
            self._send(state, broker, kind, **content)

    def _send(self, state: ClusterState, broker: BrokerMetadata, kind: Callable[..., ControlMessage], /, **content: object) -> None:
        self._sent += 1
        number = self._sent
        self._unanswered[number] = broker.broker_id, self._clock.monotonic_ms()
        message = kind(controller_id=state.controller_id, controller_epoch=state.controller_epoch, broker_epoch=broker.epoch, **content)
        self._messenger.send(broker, message, lambda code: self._on_answer(number, code))

    def _on_answer(self, number: int, _code: ErrorCode) -> None:
        """Counts a refusal as an answer: the message is obsolete, or the broker has ignored an inconsistent state in it."""
        self._unanswered.pop(number, None)
        self._run_settled()

    def _run_settled(self) -> None:
        while self._waiting and (self._waiting[0].is_done or self._is_settled(self._waiting[0].sent)):
            self._waiting.popleft().run()
        if self._overdue:
            overdue, self._overdue = self._overdue, []
            for waiting in overdue:
                self._time_out(waiting)

    def _time_out(self, waiting: WaitingAnnouncement) -> None:
        if waiting.is_done:
            return
        if any(broker_id == self._own_id and number <= waiting.sent for number, (broker_id, _) in self._unanswered.items()):
            self._overdue.append(waiting)
        else:
            waiting.run()

    def _is_settled(self, sent: int) -> bool:
        """Whether all messages up to number `sent` are answered, except messages to silent brokers (`SILENT_MS`)."""
        since: dict[int, int] = {}
        for number, (broker_id, sent_ms) in self._unanswered.items():
            oldest_ms = since.setdefault(broker_id, sent_ms)
            is_silent = broker_id != self._own_id and self._clock.monotonic_ms() - oldest_ms >= SILENT_MS
            if number <= sent and not is_silent:
                return False
        return True


def _is_of_topic(change: SettingPut) -> bool:
    """Settings of topics are sent with the metadata."""
    return isinstance(change, ConfigPut) and change.resource_type == CONFIG_TOPIC


def _live(state: ClusterState) -> tuple[BrokerMetadata, ...]:
    return tuple(state.brokers.values())


def _all_settings(state: ClusterState) -> list[SettingPut]:
    """Returns all quotas, credentials of users, and settings of resources other than topics."""
    found: list[SettingPut] = []
    for resource_type in (CONFIG_BROKER, CONFIG_CLIENT_METRICS, CONFIG_GROUP):
        found += [ConfigPut(resource_type, name, state.configs(resource_type, name)) for name in state.config_names(resource_type)]
    found += [QuotaPut(entity, quotas) for entity, quotas in state.quotas.items()]
    return [*found, *(ScramPut(user, credentials) for user, credentials in state.scram.items())]


def _state_of(topic: TopicMetadata, partition: PartitionMetadata, *, is_new: bool) -> ReplicaRole:
    return ReplicaRole(topic=topic.name, topic_id=topic.topic_id, partition=partition, is_new=is_new, configs=topic.configs)


def _stopped(topic: TopicMetadata, partition: PartitionMetadata) -> StoppedReplica:
    return StoppedReplica(
        topic=topic.name, topic_id=topic.topic_id, partition=partition.index, leader_epoch=partition.leader_epoch, is_deleted=True
    )
