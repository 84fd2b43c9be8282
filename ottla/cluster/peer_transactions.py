"""Sends requests about transactions to another broker: AddPartitionsToTxn to a coordinator, WriteTxnMarkers to a leader of partitions.

It implements the interfaces `transactions.remote.PeerCoordinators` and `transactions.markers.PeerMarkers`. If the request fails, every
partition gets its error code. Answers are not trusted: results for other partitions are ignored, and partitions without a result get
NETWORK_EXCEPTION, which callers retry. The modules of the requests are imported on use, which saves memory in a single broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.base.errors import ErrorCode, error_code
from ottla.base.ports import Peers
from ottla.base.types import TopicPartition
from ottla.transactions.metadata import Marker, ProducerIdAndEpoch
from ottla.transactions.remote import DoneCodes


class PeerTransactions:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def add_partitions(
        self,
        broker_id: int,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        is_verify_only: bool,
        done: DoneCodes,
    ) -> None:
        """Sends AddPartitionsToTxn in a version for brokers (4 and above, KIP-890)."""
        from ottla.wire.messages.add_partitions_to_txn import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )

        asked = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            verify_only=is_verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in _by_topic(partitions).items()],
        )

        def answered(response: Any, code: int) -> None:
            if response is None:
                done(_collect(partitions, code, ()))
            else:
                done(_collect(partitions, response.error_code, _added(response, transactional_id)))

        self._peers.send(broker_id, AddPartitionsToTxnRequest(transactions=[asked]), answered)

    def write_markers(self, broker_id: int, marker: Marker, partitions: Sequence[TopicPartition], done: DoneCodes) -> None:
        from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

        asked = WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.is_commit,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in _by_topic(partitions).items()],
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )

        def answered(response: Any, code: int) -> None:
            done(_collect(partitions, code, () if response is None else _written(response, marker.producer_id)))

        self._peers.send(broker_id, WriteTxnMarkersRequest(markers=[asked]), answered)


def _added(response: Any, transactional_id: str) -> Iterable[tuple[str, int, int]]:
    for found in response.results_by_transaction:
        if found.transactional_id == transactional_id:
            for topic in found.topic_results:
                for partition in topic.results_by_partition:
                    yield topic.name, partition.partition_index, partition.partition_error_code


def _written(response: Any, producer_id: int) -> Iterable[tuple[str, int, int]]:
    for found in response.markers:
        if found.producer_id == producer_id:
            for topic in found.topics:
                for partition in topic.partitions:
                    yield topic.name, partition.partition_index, partition.error_code


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, index in partitions:
        found.setdefault(name, []).append(index)
    return found


def _collect(partitions: Iterable[TopicPartition], code: int, answers: Iterable[tuple[str, int, int]]) -> dict[TopicPartition, ErrorCode]:
    """Returns the code of each requested partition: the code of the whole answer if it is an error, else the partition's own."""
    whole = error_code(code) or ErrorCode.NETWORK_EXCEPTION
    codes = dict.fromkeys(partitions, whole)
    if not code:
        for topic, index, number in answers:
            if (key := TopicPartition(topic, index)) in codes:
                codes[key] = error_code(number)
    return codes
