"""The messages from a controller to a broker, and the ports on both sides.

Every message has the epoch of its controller and the epoch of its broker. A broker ignores messages of a replaced controller, and messages
for an earlier start of itself. On a single broker a message is a call; between brokers LeaderAndIsr (key 4), StopReplica (5) and
UpdateMetadata (6) transport it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from ottla.base.cluster_metadata import BrokerMetadata, PartitionMetadata, SettingPut, TopicMetadata
from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable


@immutable(kw_only=True)
class ReplicaRole:
    """A replica's part in its partition: lead, follow, or wait for a leader. `is_new`: the log begins empty, with these settings."""

    topic: str
    topic_id: bytes
    partition: PartitionMetadata
    is_new: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)


@immutable(kw_only=True)
class StoppedReplica:
    """A replica that the broker holds no longer; `is_deleted`: its log is removed too."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    is_deleted: bool


@immutable(kw_only=True)
class ControlMessage:
    """The sender and the life of the broker that it is for."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int


@immutable(kw_only=True)
class LeaderAndIsr(ControlMessage):
    """New states of replicas that the broker holds. `is_complete`: it is to hold no others."""

    states: Sequence[ReplicaRole]
    is_complete: bool = False


@immutable(kw_only=True)
class StopReplica(ControlMessage):
    """Replicas that the broker shall stop."""

    stopped: Sequence[StoppedReplica]


@immutable(kw_only=True)
class UpdateMetadata(ControlMessage):
    """New or changed topics, deleted topics (name and id), and all live brokers. `is_complete`: these are all topics."""

    topics: Sequence[TopicMetadata]
    brokers: Sequence[BrokerMetadata]
    removed: Sequence[tuple[str, bytes]] = ()
    is_complete: bool = False


@immutable(kw_only=True)
class UpdateConfigs(ControlMessage):
    """New settings of topics, brokers and groups, quotas, and credentials of users. `is_complete`: nothing else is set."""

    changes: Sequence[SettingPut]
    is_complete: bool = False


class BrokerMessenger(Protocol):
    """The way from the controller to the brokers."""

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Callable[[ErrorCode], object]) -> None:
        """Calls `done` once: when the broker has executed the message, with its refusal, or when the broker cannot be reached. Messages to
        one broker arrive in order. A waiting message may be merged into an earlier waiting one: its `done` is called at once, the earlier
        message's when the broker has executed both."""


class ReplicaListener(Protocol):
    """The part of a broker that holds replicas, called with what has passed the epochs' check."""

    def on_assignment(self, assigned: Collection[tuple[bytes, int]]) -> None:
        """These (topic ids and partitions) are all replicas that the broker is to hold: logs of others may go. Called before the roles."""

    def on_leader_and_isr(self, states: Sequence[ReplicaRole]) -> None:
        """Makes replicas leaders or followers. May go on after it returns, in the order of the calls; so may stopping."""

    def on_stop_replica(self, stopped: Sequence[StoppedReplica]) -> None: ...

    def call_when_settled(self, function: Callable[[], object]) -> None:
        """Calls `function` when everything asked before is done, at once if it is."""

    def on_update_metadata(self, topics: Sequence[str], removed: Sequence[str]) -> None:
        """Called when metadata has changed: of `topics`, which are changed or new, and of `removed`, which no longer exist."""

    def on_session_expired(self) -> None:
        """Stops leading all partitions until the controller assigns them again, because other brokers may lead them already."""

    def on_configs(self, resource_type: int, name: str) -> None:
        """Called when the settings of a topic, a broker or a group have changed. The metadata has the new ones."""
