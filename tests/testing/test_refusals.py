"""Made-up refusals can be decoded in every version, and have the error in every field for one."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing import refusals
from ottla.testing.faults import code_of, key_of
from ottla.wire.apis import APIS
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load
from ottla.wire.messages import attach_records, fetch, metadata, mirror_records, produce, stage_records
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from ottla.wire.schema import Struct

CODE = 29  # TOPIC_AUTHORIZATION_FAILED

PARTITIONS_OF_A_TRANSACTION = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
REQUESTS: dict[int, Any] = {
    0: produce.ProduceRequest(topic_data=[produce.TopicProduceData(name="t", partition_data=[produce.PartitionProduceData(index=3)])]),
    1: fetch.FetchRequest(topics=[fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition(partition=3)])]),
    2: ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=3)])]),
    8: OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=3)])]),
    9: OffsetFetchRequest(
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[3])], groups=[OffsetFetchRequestGroup(group_id="g")]
    ),
    10: FindCoordinatorRequest(key="g", coordinator_keys=["g"]),
    19: CreateTopicsRequest(topics=[CreatableTopic(name="t")]),
    20: DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], topic_names=["t"]),
    24: AddPartitionsToTxnRequest(
        v3_and_below_topics=PARTITIONS_OF_A_TRANSACTION,
        transactions=[AddPartitionsToTxnTransaction(transactional_id="x", topics=PARTITIONS_OF_A_TRANSACTION)],
    ),
    28: TxnOffsetCommitRequest(
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=3)])]
    ),
    42: DeleteGroupsRequest(groups_names=["g"]),
    20000: stage_records.StageRecordsRequest(
        topics=[stage_records.StageTopic(name="t", partitions=[stage_records.StagePartition(index=3)])]
    ),
    20001: attach_records.AttachRecordsRequest(
        topics=[attach_records.AttachTopic(name="t", partitions=[attach_records.AttachPartition(index=3)])]
    ),
    20004: mirror_records.MirrorRecordsRequest(
        topics=[mirror_records.MirrorTopic(name="t", partitions=[mirror_records.MirrorPartition(index=3)])]
    ),
}
WITHOUT_MIRROR = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "InitProducerId", "EndTxn", "AddOffsetsToTxn", "ListGroups")
CASES = [
    (key, version)
    for key in (*REQUESTS, *map(key_of, WITHOUT_MIRROR))
    for version in range(APIS[key].lowest, APIS[key].highest + 1)
]


def codes_in(value: Any) -> list[int]:
    """Every error code in an answer, at any depth."""
    if isinstance(value, list):
        return [code for item in value for code in codes_in(item)]
    if not isinstance(value, Struct):
        return []
    found = []
    for field in value.__fields__:
        inside = getattr(value, field.name)
        found += [inside] if field.name in ("error_code", "partition_error_code") else codes_in(inside)
    return found


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{APIS[key].name}-{version}" for key, version in CASES])
def test_every_version_has_the_error(key: int, version: int) -> None:
    request_class, response_class = load(key)
    request = REQUESTS.get(key) or request_class()
    answer = refusals.refuse(key, version, request, CODE)
    data = encoder(response_class, version)(answer)
    read, end = decoder(response_class, version)(memoryview(data), 0)
    assert end == len(data)
    assert CODE in codes_in(read)


def test_every_partition_of_a_produce_is_refused() -> None:
    data = [produce.PartitionProduceData(index=index) for index in (4, 7)]
    request = produce.ProduceRequest(topic_data=[produce.TopicProduceData(name="orders", partition_data=data)])
    answer: Any = refusals.refuse(0, 9, request, CODE)
    assert [topic.name for topic in answer.responses] == ["orders"]
    assert [(result.index, result.error_code) for result in answer.responses[0].partition_responses] == [(4, CODE), (7, CODE)]


def test_a_fetch_of_a_session_is_refused_as_a_whole() -> None:
    answer: Any = refusals.refuse(1, 12, fetch.FetchRequest(session_id=5), CODE)
    assert (answer.error_code, answer.responses) == (CODE, [])


def test_metadata_keeps_its_brokers() -> None:
    answer = metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(node_id=1, host="h", port=1)],
        topics=[metadata.MetadataResponseTopic(name="t", partitions=[metadata.MetadataResponsePartition()])],
    )
    altered = refusals.alter(answer, CODE)
    assert len(altered.brokers) == 1
    assert (altered.topics[0].error_code, altered.topics[0].partitions) == (CODE, [])


def test_what_has_no_place_for_an_error_is_known() -> None:
    assert refusals.can_refuse(key_of("Produce"))
    assert refusals.can_refuse(key_of("metadata"))
    assert not refusals.can_refuse(key_of("DescribeGroups"))


def test_names_are_looked_up_with_a_hint() -> None:
    assert code_of("NOT_LEADER_OR_FOLLOWER") == code_of(6) == 6
    with pytest.raises(ValueError, match="did you mean 'Produce'"):
        key_of("Produced")
    with pytest.raises(ValueError, match="did you mean 'NOT_COORDINATOR'"):
        code_of("NOT_COORDINATR")
