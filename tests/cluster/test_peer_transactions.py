"""Questions about transactions to another broker: the request that is sent, and which parts of the answer are believed."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cluster.peer_transactions import PeerTransactions
from ottla.transactions.metadata import Marker, ProducerIdAndEpoch
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.fakes.peers import HeldPeers

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDENTITY = ProducerIdAndEpoch(7, 3)
MARKER = Marker(7, 3, 5, True, 2)
Codes = dict[TopicPartition, ErrorCode]


def test_partitions_are_asked_for_by_topic() -> None:
    peers, results = HeldPeers(), list[Codes]()
    PeerTransactions(peers).add_partitions(2, "tx", IDENTITY, [T0, U0, T1], True, results.append)
    [asked] = peers.asked
    [transaction] = asked.request.transactions
    assert (asked.broker_id, transaction.transactional_id, transaction.verify_only) == (2, "tx", True)
    assert (transaction.producer_id, transaction.producer_epoch) == IDENTITY
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0, 1]), ("u", [0])]


def added(transactional_id: str, *codes: int) -> AddPartitionsToTxnResponse:
    """Returns the answer for partitions 0, 1, ... of topic t."""
    results = [AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code) for index, code in enumerate(codes)]
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)]
    )


@pytest.mark.parametrize(
    ("response", "code", "expected"),
    [
        (added("tx", 0, ErrorCode.TRANSACTION_ABORTABLE), 0, (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)),
        (added("tx", 0), 0, (ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION)),
        (added("another", 0, 0), 0, (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NETWORK_EXCEPTION)),
        (added("tx", 0, 0, ErrorCode.PRODUCER_FENCED), 0, (ErrorCode.NONE, ErrorCode.NONE)),
        (added("tx", 0, 12_345), 0, (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)),
        (AddPartitionsToTxnResponse(), 0, (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NETWORK_EXCEPTION)),
        (
            AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            0,
            (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ),
        (None, ErrorCode.BROKER_NOT_AVAILABLE, (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.BROKER_NOT_AVAILABLE)),
    ],
)
def test_codes_of_added_partitions(response: AddPartitionsToTxnResponse | None, code: int, expected: tuple[ErrorCode, ErrorCode]) -> None:
    """The question about a partition that the answer lacks is repeated. A partition that was not in the question is ignored."""
    peers, results = HeldPeers(), list[Codes]()
    PeerTransactions(peers).add_partitions(2, "tx", IDENTITY, [T0, T1], False, results.append)
    peers.asked[0].done(response, code)
    assert results == [dict(zip((T0, T1), expected, strict=True))]


def test_a_marker_is_sent_whole() -> None:
    peers = HeldPeers()
    PeerTransactions(peers).write_markers(2, MARKER, [T1, U0], lambda _codes: None)
    [asked] = peers.asked
    [marker] = asked.request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result) == (7, 3, 5, True)
    assert (asked.broker_id, marker.transaction_version) == (2, 2)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1]), ("u", [0])]


def written(producer_id: int, codes: dict[TopicPartition, int]) -> WriteTxnMarkersResponse:
    topics = [
        WritableTxnMarkerTopicResult(name=name, partitions=[WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)])
        for (name, index), code in codes.items()
    ]
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=producer_id, topics=topics)])


@pytest.mark.parametrize(
    ("response", "code", "expected"),
    [
        (written(7, {T1: 0}), 0, ErrorCode.NONE),
        (written(7, {T1: ErrorCode.NOT_LEADER_OR_FOLLOWER}), 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (written(7, {U0: 0}), 0, ErrorCode.NETWORK_EXCEPTION),
        (written(8, {T1: 0}), 0, ErrorCode.NETWORK_EXCEPTION),
        (written(7, {T1: 12_345}), 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (None, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NETWORK_EXCEPTION),
    ],
)
def test_codes_of_markers(response: WriteTxnMarkersResponse | None, code: int, expected: ErrorCode) -> None:
    """Only a partition for which the answer states success has its marker."""
    peers, results = HeldPeers(), list[Codes]()
    PeerTransactions(peers).write_markers(2, MARKER, [T1], results.append)
    peers.asked[0].done(response, code)
    assert results == [{T1: expected}]
