"""The messages from a controller to a broker, and the interfaces of their sender and receiver.

Every message has the controller epoch of its sender and the broker epoch of its receiver. A broker refuses a message if one of these epochs
is older than the epoch that it knows. A message of a broker to itself is a call. Between brokers LeaderAndIsr (key 4), StopReplica (5) and
UpdateMetadata (6) are requests. UpdateConfigs is not sent to other brokers: each broker reads the settings in the metadata store.
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
    """A replica's part in its partition: lead, follow, or wait for a leader. `is_new`: the broker makes an empty log with `configs`."""

    topic: str
    topic_id: bytes
    partition: PartitionMetadata
    is_new: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)


@immutable(kw_only=True)
class StoppedReplica:
    """A replica that the broker must no longer serve; `is_deleted`: its log is removed too."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    is_deleted: bool


@immutable(kw_only=True)
class ControlMessage:
    """The sending controller with its epoch, and the receiver's broker epoch."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int


@immutable(kw_only=True)
class LeaderAndIsr(ControlMessage):
    """New states of replicas of the broker. `is_complete`: the broker has to remove all other replicas."""

    states: Sequence[ReplicaRole]
    is_complete: bool = False


@immutable(kw_only=True)
class StopReplica(ControlMessage):
    """The replicas that the broker has to stop."""

    stopped: Sequence[StoppedReplica]


@immutable(kw_only=True)
class UpdateMetadata(ControlMessage):
    """New or changed topics, deleted topics (name and id), and all live brokers. `is_complete`: there are no other topics."""

    topics: Sequence[TopicMetadata]
    brokers: Sequence[BrokerMetadata]
    removed: Sequence[tuple[str, bytes]] = ()
    is_complete: bool = False


@immutable(kw_only=True)
class UpdateConfigs(ControlMessage):
    """New settings of topics, brokers and groups, quotas, and credentials of users. `is_complete`: there are no others."""

    changes: Sequence[SettingPut]
    is_complete: bool = False


class BrokerMessenger(Protocol):
    """Sends the controller's messages to brokers."""

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Callable[[ErrorCode], object]) -> None:
        """Sends a message, and calls `done` once with the outcome: NONE, the broker's refusal, or NETWORK_EXCEPTION if the message was
        given up because this controller or that registration of the broker was replaced. Messages to one broker arrive in order. A message
        may be merged into an earlier message that is still waiting. Then the later message's `done` is called at once with NONE, and the
        earlier message's `done` is called with the outcome of both.
        """


class ReplicaListener(Protocol):
    """The part of a broker with the replicas. It is called with changes that have passed the check of epochs."""

    def on_assignment(self, assigned: Collection[tuple[bytes, int]]) -> None:
        """Receives all replicas (topic id and partition) that the broker has to hold, so that logs of others may be removed. Called before
        their roles are set.
        """

    def on_leader_and_isr(self, states: Sequence[ReplicaRole]) -> None:
        """Makes replicas leaders or followers. The work of this call and of `on_stop_replica` may continue after the call has returned.
        Calls are executed in order.
        """

    def on_stop_replica(self, stopped: Sequence[StoppedReplica]) -> None: ...

    def call_when_settled(self, function: Callable[[], object]) -> None:
        """Calls `function` when all earlier calls are executed; immediately if they are."""

    def on_update_metadata(self, topics: Sequence[str], removed: Sequence[str]) -> None:
        """Called after a change of metadata: `topics` were created or replaced, `removed` no longer exist."""

    def on_session_expired(self) -> None:
        """Stops leading all partitions until the controller assigns them again, because other brokers may lead them already."""

    def on_configs(self, resource_type: int, name: str) -> None:
        """Called after the settings of a resource (topic, broker, group, subscription to metrics) may have changed in the metadata."""
