"""How brokers of the simulation ask each other: markers to the leaders of partitions, admission to coordinators.

The product runs alone for now, so these adapters exist here only; what they carry is real, and so are the handlers at the other end. An
answer that does not come in time is NETWORK_EXCEPTION, and one that comes later is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.handlers import add_partitions_to_txn, write_txn_markers
from ottla.transactions.markers import Marker
from ottla.transactions.metadata import ProducerIdentity
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.sim.network import Call

if TYPE_CHECKING:
    from tests.sim.broker import LifeTimers, SimBroker

Codes = dict[TopicPartition, ErrorCode]
COORDINATOR = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
PATIENCE_MS = 1_000


class SimPeers:
    """`MarkerPeers` and `RemoteCoordinators` of one life of a broker."""

    def __init__(self, broker: SimBroker, timers: LifeTimers) -> None:
        self._broker = broker
        self._timers = timers

    def write_markers(self, broker_id: int, marker: Marker, partitions: Sequence[TopicPartition], done: Callable[[Codes], None]) -> None:
        def body() -> WriteTxnMarkersRequest:
            asked = WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in partitions],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            return WriteTxnMarkersRequest(markers=[asked])

        def read(answer: Any) -> Codes:
            return {
                TopicPartition(topic.name, one.partition_index): ErrorCode(one.error_code)
                for topic in answer.markers[0].topics
                for one in topic.partitions
            }

        self._ask(Call(write_txn_markers, 2, body, partitions[0]), partitions, read, ErrorCode.NETWORK_EXCEPTION, done)

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        is_verify_only: bool,
        done: Callable[[Codes], None],
    ) -> None:
        def body() -> AddPartitionsToTxnRequest:
            asked = AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                verify_only=is_verify_only,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions],
            )
            return AddPartitionsToTxnRequest(transactions=[asked])

        def read(answer: Any) -> Codes:
            return {
                TopicPartition(topic.name, one.partition_index): ErrorCode(one.partition_error_code)
                for topic in answer.results_by_transaction[0].topic_results
                for one in topic.results_by_partition
            }

        self._ask(Call(add_partitions_to_txn, 5, body, COORDINATOR), partitions, read, ErrorCode.NETWORK_EXCEPTION, done)

    def _ask(
        self,
        call: Call,
        partitions: Sequence[TopicPartition],
        read: Callable[[Any], Codes],
        failure: ErrorCode,
        done: Callable[[Codes], None],
    ) -> None:
        is_answered = False

        def finish(codes: Codes) -> None:
            nonlocal is_answered
            if not is_answered and not self._timers.is_over:
                is_answered = True
                done(codes)

        self._broker.world.send(call, lambda answer: finish(read(answer)), is_peer=True)
        self._timers.call_later(PATIENCE_MS, lambda: finish(dict.fromkeys(partitions, failure)))
