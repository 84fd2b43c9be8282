"""Asks the coordinator of a transaction on another broker to add or verify partitions.

This module finds the broker. `cluster/peer_transactions.py` implements the interface `PeerCoordinators` and sends the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.base.errors import ErrorCode
from ottla.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.transactions.metadata import ProducerIdAndEpoch

NO_LEADER = -1
DoneCodes = Callable[[dict[TopicPartition, ErrorCode]], None]
"""Takes an error code for each of the partitions."""


class Leaders(Protocol):
    def leader_of(self, topic: str, partition: int) -> int | None:
        """Returns the leader's id; NO_LEADER while there is none, None if the partition does not exist."""


class PeerCoordinators(Protocol):
    """Sends requests to the transaction coordinators of other brokers."""

    def add_partitions(
        self,
        broker_id: int,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        is_verify_only: bool,
        done: DoneCodes,
    ) -> None:
        """Adds partitions to the transaction, or verifies that it has them. If the request fails, each partition gets the error code of the
        failure."""


class OtherCoordinators:
    def __init__(self, broker_id: int, leaders: Leaders, peers: PeerCoordinators) -> None:
        self._broker_id = broker_id
        self._leaders = leaders
        self._peers = peers

    def add_partitions(
        self,
        shard: int,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        is_verify_only: bool,
        done: DoneCodes,
    ) -> None:
        """Asks the leader of this partition of `__transaction_state`. Each partition gets NOT_COORDINATOR if no other broker leads it."""
        leader = self._leaders.leader_of(TRANSACTION_STATE_TOPIC, shard)
        if leader is None or leader in (NO_LEADER, self._broker_id):
            done(dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR))
        else:
            self._peers.add_partitions(leader, transactional_id, identity, partitions, is_verify_only, done)
