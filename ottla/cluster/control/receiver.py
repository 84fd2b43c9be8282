"""Executes the controller's messages on this broker, and refuses obsolete ones.

Three checks fence obsolete messages (P4). A message of an older controller epoch gets STALE_CONTROLLER_EPOCH. A message for an earlier
registration of this broker gets STALE_BROKER_EPOCH. A replica's state changes nothing unless its leader epoch is newer than the last one,
or equal with a newer partition epoch.

An inconsistent state of a replica, for example with a leader that is not in sync, is ignored, and its message gets INVALID_REQUEST. The
other states of the message are applied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.base.cluster_metadata import CONFIG_BROKER, CONFIG_TOPIC, NO_LEADER, PartitionMetadata
from ottla.base.control_messages import (
    ControlMessage,
    LeaderAndIsr,
    ReplicaListener,
    ReplicaRole,
    StoppedReplica,
    StopReplica,
    UpdateConfigs,
    UpdateMetadata,
)
from ottla.base.errors import ErrorCode
from ottla.cluster.metadata_cache import MetadataCache

log = logging.getLogger("ottla.cluster")

Done = Callable[[ErrorCode], object]


class ControlReceiver:
    """Carries out the messages of controllers on one broker."""

    def __init__(
        self,
        *,
        metadata: MetadataCache,
        replicas: ReplicaListener,
        broker_epoch: Callable[[], int],
        on_broker_configs: Callable[[], object],
        on_roles_taken: Callable[[], object],
    ) -> None:
        """`on_roles_taken` is called each time that this broker has carried out a LeaderAndIsr."""
        self.controller_epoch = -1
        self._metadata = metadata
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._on_broker_configs = on_broker_configs
        self._on_roles_taken = on_roles_taken
        self._last_broker_epoch = -1
        self._ended_broker_epoch: int | None = None
        self._states: dict[tuple[bytes, int], PartitionMetadata] = {}

    @property
    def is_new_to_controllers(self) -> bool:
        """Whether no controller has sent LeaderAndIsr since this broker registered."""
        return self._last_broker_epoch != self._broker_epoch()

    def end_registration(self, broker_epoch: int) -> None:
        """Refuses every message to this registration or an earlier one from now on. The broker may not have a new registration yet."""
        self._ended_broker_epoch = broker_epoch

    def receive(self, message: ControlMessage, done: Done) -> None:
        """Calls `done` with NONE or INVALID_REQUEST when the message was executed, or with the error of a refused one."""
        if message.controller_epoch < self.controller_epoch:
            done(ErrorCode.STALE_CONTROLLER_EPOCH)
        elif message.broker_epoch < self._broker_epoch() or self._is_of_ended(message):
            done(ErrorCode.STALE_BROKER_EPOCH)
        else:
            self.controller_epoch = message.controller_epoch
            self._carry_out(message, done)

    def _is_of_ended(self, message: ControlMessage) -> bool:
        ended = self._ended_broker_epoch
        return ended is not None and message.broker_epoch <= ended

    def _carry_out(self, message: ControlMessage, done: Done) -> None:
        code = ErrorCode.NONE
        if isinstance(message, LeaderAndIsr):
            self._last_broker_epoch = message.broker_epoch
            sound = _sound(message.states)
            code = ErrorCode.NONE if len(sound) == len(message.states) else ErrorCode.INVALID_REQUEST
            if message.is_complete and code is ErrorCode.NONE:
                self._replicas.on_assignment({(state.topic_id, state.partition.index) for state in message.states})
            self._replicas.on_leader_and_isr([state for state in sound if self._is_news(state)])
        elif isinstance(message, StopReplica):
            self._replicas.on_stop_replica([replica for replica in message.stopped if self._may_stop(replica)])
        elif isinstance(message, UpdateMetadata):
            before = {topic.name: known.configs for topic in message.topics if (known := self._metadata.topic(topic.name)) is not None}
            changed, removed = self._metadata.update(message)
            self._replicas.on_update_metadata(changed, removed)
            for name in changed:
                if name in before and before[name] != self._metadata.configs(CONFIG_TOPIC, name):
                    self._replicas.on_configs(CONFIG_TOPIC, name)
            done(ErrorCode.NONE)
            return
        else:
            assert isinstance(message, UpdateConfigs), f"{type(message).__name__} is no message to a broker"
            self.take_configs(message)
            done(ErrorCode.NONE)
            return
        self._replicas.call_when_settled(lambda: self._carried_out(message, code, done))

    def _carried_out(self, message: ControlMessage, code: ErrorCode, done: Done) -> None:
        done(code)
        if isinstance(message, LeaderAndIsr):
            self._on_roles_taken()

    def _is_news(self, state: ReplicaRole) -> bool:
        key, new = (state.topic_id, state.partition.index), state.partition
        known = self._states.get(key)
        if known is not None and (new.leader_epoch, new.partition_epoch) <= (known.leader_epoch, known.partition_epoch):
            return False
        self._states[key] = new
        return True

    def _may_stop(self, replica: StoppedReplica) -> bool:
        key = (replica.topic_id, replica.partition)
        known = self._states.get(key)
        if known is not None and replica.leader_epoch < known.leader_epoch:
            return False
        if replica.is_deleted:
            self._states.pop(key, None)
        return True

    def take_configs(self, message: UpdateConfigs) -> None:
        """Applies settings and quotas that the controller on this broker sent or that this broker read in the metadata store."""
        changed = self._metadata.update_configs(message)
        if any(resource_type == CONFIG_BROKER for resource_type, _ in changed):
            self._on_broker_configs()
        for resource_type, name in changed:
            self._replicas.on_configs(resource_type, name)


def _sound(states: Sequence[ReplicaRole]) -> list[ReplicaRole]:
    found = []
    for state in states:
        reason = _contradiction(state.partition)
        if reason:
            log.error("a state of %s-%d from the controller is refused: %s", state.topic, state.partition.index, reason)
        else:
            found.append(state)
    return found


def _contradiction(state: PartitionMetadata) -> str:
    """Returns the reason why the state is inconsistent, or an empty string. A partition without a leader may have an empty ISR, after its
    last member lost its disk."""
    replicas, isr = state.replicas, state.isr
    if state.index < 0 or state.leader_epoch < 0 or state.partition_epoch < 0:
        return f"negative index or epoch {state.index}, {state.leader_epoch}, {state.partition_epoch}"
    if not replicas or len(set(replicas)) < len(replicas):
        return f"replicas {replicas}"
    if not set(isr) <= set(replicas):
        return f"ISR {isr} of replicas {replicas}"
    if state.leader not in isr and state.leader != NO_LEADER:
        return f"leader {state.leader} outside of the ISR {isr}"
    return ""
