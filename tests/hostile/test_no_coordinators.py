"""Requests about transactions on a broker without `__transaction_state`, because no transaction was ever begun: they must not depend on
this topic.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.framing import load
from ottla.wire.messages import add_partitions_to_txn, produce, txn_offset_commit
from ottla.wire.schema import Request
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_world import World, batch
from tests.clients.wire_client import In, WireClient, error_codes

PRODUCER_ID, TRY_AGAIN = 1_000_000, {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
ADMITTED_BY_OTHERS = {*TRY_AGAIN, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}


def produced(version: int) -> Request:
    records = batch(1, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0, is_transactional=True)
    data = produce.PartitionProduceData(index=0, records=memoryview(records))
    topics = [produce.TopicProduceData(name="plain", partition_data=[data])]
    return produce.ProduceRequest(transactional_id="t", acks=-1, timeout_ms=5000, topic_data=topics)


def committed(version: int) -> Request:
    offset = In(version)(txn_offset_commit.TxnOffsetCommitRequestPartition, partition_index=0, committed_offset=1, committed_metadata="")
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(name="plain", partitions=[offset])]
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", producer_id=PRODUCER_ID, producer_epoch=0, topics=topics
    )


def added(version: int) -> Request:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name="plain", partitions=[0])
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t", v3_and_below_producer_id=PRODUCER_ID, v3_and_below_producer_epoch=0, v3_and_below_topics=[topic]
    )


def offsets_added(version: int) -> Request:
    made: Request = load(25)[0](transactional_id="t", producer_id=PRODUCER_ID, producer_epoch=0, group_id="g")
    return made


def ended(version: int) -> Request:
    made: Request = load(26)[0](transactional_id="t", producer_id=PRODUCER_ID, producer_epoch=0, committed=True)
    return made


@pytest.mark.parametrize("with_groups", [False, True], ids=["no group either", "with groups"])
def test_what_needs_a_transaction_is_refused(own_broker: BrokerProcess, with_groups: bool) -> None:
    """Requests that need a transaction are refused. In an earlier version looking for the partition of a transactional id divided by zero.
    """
    own_broker.start()
    with WireClient(own_broker.port) as client:
        client.ask(World.make_topic(7, "plain"), 7)
        if with_groups:
            client.ask(load(10)[0](key="g", key_type=0), 2)
        requests = [(produced, version) for version in (8, 9, 11, 12)] + [(committed, version) for version in (2, 3, 4, 5)]
        requests += [(added, 3), (offsets_added, 3), (offsets_added, 4), (ended, 3), (ended, 4), (ended, 5)]
        for make, version in requests:
            answer: Any = client.ask(make(version), version)
            codes = set(map(ErrorCode, error_codes(answer)))
            if make is added:
                codes = {ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)}
            assert codes & ADMITTED_BY_OTHERS and ErrorCode.UNKNOWN_SERVER_ERROR not in codes, (make.__name__, version, codes)
    assert own_broker.is_running
