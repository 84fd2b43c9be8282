"""Asks the coordinator of a transaction on another broker to add or verify partitions; reads answers of other brokers by partition.

A broker that cannot be asked gives every partition its error code. An answer counts only for partitions that were asked for, and one that
leaves a partition out gives it NETWORK_EXCEPTION, so that it is asked again: what a peer sends is not trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ottla.base.errors import ErrorCode, error_code
from ottla.base.ports import Peers
from ottla.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.transactions.metadata import ProducerIdAndEpoch
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction

NO_LEADER = -1
DoneCodes = Callable[[dict[TopicPartition, ErrorCode]], None]


class Leaders(Protocol):
    def leader_of(self, topic: str, partition: int) -> int | None:
        """The broker that leads, NO_LEADER while there is none, None if the partition does not exist."""


class OtherCoordinators:
    """The transaction coordinators on other brokers."""

    def __init__(self, broker_id: int, leaders: Leaders, peers: Peers) -> None:
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
        """Asks the leader of this partition of `__transaction_state`; NOT_COORDINATOR if that is no other broker."""
        leader = self._leaders.leader_of(TRANSACTION_STATE_TOPIC, shard)
        if leader is None or leader in (NO_LEADER, self._broker_id):
            done(dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR))
        else:
            add_partitions(self._peers, leader, transactional_id, identity, partitions, is_verify_only, done)


def add_partitions(
    peers: Peers,
    broker_id: int,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    is_verify_only: bool,
    done: DoneCodes,
) -> None:
    """AddPartitionsToTxn of brokers (version 4 and above) to the broker that coordinates the transaction."""
    asked = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        verify_only=is_verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(partitions).items()],
    )

    def answered(response: Any, code: int) -> None:
        if response is None:
            done(collect(partitions, code, []))
        else:
            done(collect(partitions, response.error_code, added(response)))

    def added(response: Any) -> Iterable[tuple[str, int, int]]:
        for found in response.results_by_transaction:
            if found.transactional_id == transactional_id:
                for topic in found.topic_results:
                    for partition in topic.results_by_partition:
                        yield topic.name, partition.partition_index, partition.partition_error_code

    peers.send(broker_id, AddPartitionsToTxnRequest(transactions=[asked]), answered)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, index in partitions:
        found.setdefault(name, []).append(index)
    return found


def collect(partitions: Iterable[TopicPartition], code: int, answers: Iterable[tuple[str, int, int]]) -> dict[TopicPartition, ErrorCode]:
    """The code of each partition that was asked for: that of the whole answer if there is one, else its own."""
    whole = error_code(code) or ErrorCode.NETWORK_EXCEPTION
    codes = dict.fromkeys(partitions, whole)
    if not code:
        for topic, index, number in answers:
            if (key := TopicPartition(topic, index)) in codes:
                codes[key] = error_code(number)
    return codes
