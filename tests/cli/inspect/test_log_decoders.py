"""Records of the internal topics as JSON, in the form of Kafka's dump tool."""

from __future__ import annotations

import json

from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.base.types import TopicPartition
from ottla.cli.inspect.log_decoders import camel, decode_control, decode_record
from ottla.groups.records import group_metadata, group_tombstone
from ottla.sharing import state_records
from ottla.transactions.metadata import TransactionMetadata
from ottla.transactions.records import state_record, tombstone
from ottla.transactions.states import ONGOING
from ottla.wire.codec import encoder
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.control_records import LeaderChangeMessage, Voter
from ottla.wire.messages.group_records import GroupMetadataValue, MemberMetadata
from ottla.wire.messages.share_group_records import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicPartitionsInfo,
)
from ottla.wire.records import Record


def _record(key: bytes, value: bytes | None) -> Record:
    return Record(0, 0, key, value)


def test_a_transactions_state() -> None:
    made = state_record(
        TransactionMetadata(
            transactional_id="tid",
            producer_id=2,
            producer_epoch=0,
            timeout_ms=60_000,
            state=ONGOING,
            partitions=frozenset({TopicPartition("t", 0)}),
            start_timestamp_ms=5,
            update_timestamp_ms=6,
        )
    )
    key, value = decode_record(_record(made.key, made.value), "transactions")
    assert key == '{"type":"0","data":{"transactionalId":"tid"}}'
    assert value == (
        '{"version":"1","data":{"producerId":2,"producerEpoch":0,"transactionTimeoutMs":60000,"transactionStatus":1,'
        '"transactionPartitions":[{"topic":"t","partitionIds":[0]}],"transactionLastUpdateTimestampMs":6,'
        '"transactionStartTimestampMs":5}}'
    )
    gone = tombstone("tid")
    assert decode_record(_record(gone.key, None), "transactions") == (key, "<DELETE>")


def test_a_group_with_what_its_members_say_to_each_other() -> None:
    subscription = b"\0\2" + encoder(ConsumerProtocolSubscription, 2)(ConsumerProtocolSubscription(topics=["t"], user_data=None))
    member = MemberMetadata(member_id="m", subscription=subscription, assignment=b"\xff")
    made = group_metadata("g", GroupMetadataValue(protocol_type="consumer", generation=1, members=[member]))
    key, value = decode_record(_record(made.key, made.value), "offsets")
    assert key == '{"type":"2","data":{"group":"g"}}'
    tree = json.loads(value or "")
    assert tree["version"] == "3"
    shown = tree["data"]["members"][0]
    assert shown["subscription"] == {"topics": ["t"], "userData": None, "ownedPartitions": [], "generationId": -1}
    assert shown["assignment"] == "/w=="
    assert decode_record(_record(group_tombstone("g").key, None), "offsets")[1] == "<DELETE>"


def test_a_share_partitions_state() -> None:
    key = SharePartitionKey("g", bytes(16), 3)
    state = ShareState(2, 1, 5, 0, (StateBatch(5, 6, 0, 1),))
    made = state_records.snapshot_record(key, state_records.Snapshot(4, state, 8, 9))
    shown_key, value = decode_record(_record(made.key, made.value), "shares")
    assert shown_key == '{"type":"0","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":3}}'
    assert value == (
        '{"version":"0","data":{"snapshotEpoch":4,"stateEpoch":2,"leaderEpoch":1,"startOffset":5,"deliveryCompleteCount":0,'
        '"createTimestamp":8,"writeTimestamp":9,"stateBatches":[{"firstOffset":5,"lastOffset":6,"deliveryState":0,"deliveryCount":1}]}}'
    )
    change = ShareState(2, 1, -1, -1)
    made = state_records.update_record(key, state_records.StateUpdate(4, change))
    shown_key, value = decode_record(_record(made.key, made.value), "shares")
    assert shown_key == '{"type":"1","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":3}}'
    assert value == '{"version":"0","data":{"snapshotEpoch":4,"leaderEpoch":1,"startOffset":-1,"stateBatches":[]}}'
    assert decode_record(_record(state_records.tombstone(key).key, None), "shares")[1] == "<DELETE>"


def test_what_a_share_group_has_initialized() -> None:
    topic = TopicPartitionsInfo(topic_id=bytes(16), topic_name="t", partitions=[0, 1])
    key = b"\0\x0f" + encoder(ShareGroupStatePartitionMetadataKey, 0)(ShareGroupStatePartitionMetadataKey(group_id="g"))
    data = ShareGroupStatePartitionMetadataValue(initialized_topics=[topic])
    shown = decode_record(_record(key, b"\0\0" + encoder(ShareGroupStatePartitionMetadataValue, 0)(data)), "offsets")
    assert shown == (
        '{"type":"15","data":{"groupId":"g"}}',
        '{"version":"0","data":{"initializingTopics":[],"initializedTopics":[{"topicId":"AAAAAAAAAAAAAAAAAAAAAA","topicName":"t",'
        '"partitions":[0,1]}],"deletingTopics":[]}}',
    )


def test_unknown_records_are_named_or_shown_as_text() -> None:
    assert decode_record(_record(b"\0\x63x", b"v"), "offsets") == ('{"type":"99","data":"unknown"}', "v")
    assert decode_record(_record(b"\0\0\0\x05x", b"v"), "transactions") == ("\0\0\0\x05x", "v")
    assert decode_record(_record(group_tombstone("g").key, b"\x7f\0"), "offsets")[1] == '{"version":"32512","data":"unknown"}'
    assert decode_record(_record(b"k", None), "offsets") == ("k", None)


def test_control_records_of_a_metadata_log() -> None:
    change = LeaderChangeMessage(leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[Voter(voter_id=1)])
    assert decode_control(2, encoder(LeaderChangeMessage, 0)(change)) == (
        "LeaderChange",
        '{"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}',
    )
    assert decode_control(2, b"\0\0\1") is None
    assert decode_control(99, b"\0\0") is None


def test_names_in_kafkas_form() -> None:
    assert camel("transaction_last_update_timestamp_ms") == "transactionLastUpdateTimestampMs"
