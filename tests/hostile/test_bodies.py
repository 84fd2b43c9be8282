"""Hostile request bodies (B1-B8, A5 and C3 of `test_corpus.py`): wrong lengths, nested arrays with very many elements, names and numbers
out of range.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.served_apis import TABLE
from ottla.wire.codec import encoder
from ottla.wire.framing import load, write_request
from ottla.wire.messages import (
    create_partitions,
    create_topics,
    delete_records,
    fetch,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_requests import ONLY_FROM_BROKERS
from tests.clients.sample_world import World, batch
from tests.clients.wire_client import In, WireClient, error_codes
from tests.hostile.conftest import RSS_GROWTH_BYTES_MAX, serve

Connect = Callable[[], WireClient]
I32_MAX = 2**31 - 1
WRITE_TXN_MARKERS = 27
INVALID_TOPIC = ErrorCode.INVALID_TOPIC_EXCEPTION


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def frame(key: int, version: int, body: bytes) -> bytes:
    return write_request(key, version, 7, "hostile", body)


# Wrong lengths. Metadata 1 has an int32 count; Metadata 9: a compact one; Produce 3: nested arrays; OffsetCommit 2: strings.
CLOSING = {
    "B1 array length -2": frame(3, 1, int32(-2)),
    "B1 array longer than the frame": frame(3, 1, int32(1000) + b"\0\1a"),
    "B1 array length 2^31-1": frame(3, 1, int32(I32_MAX) + b"\0\1a"),
    "B1 compact array length 2^32-1": frame(3, 9, b"\xff\xff\xff\xff\x0f" + bytes(10)),
    "B1 nested array length 2^31-1": frame(0, 3, b"\xff\xff\xff\xff\0\0\0\x0a" + int32(1) + b"\0\1a" + int32(I32_MAX)),
    "B1 records longer than the frame": frame(
        0, 3, b"\xff\xff\xff\xff\0\0\0\x0a" + int32(1) + b"\0\1a" + int32(1) + int32(0) + int32(I32_MAX)
    ),
    "B1 string longer than the frame": frame(8, 2, b"\x7f\xffabc"),
    "B1 null string where there must be one": frame(12, 0, b"\xff\xff" + bytes(8)),
    "B3 varint of six bytes": frame(3, 9, b"\x80\x80\x80\x80\x80\x01" + bytes(10)),
    "B3 varint of eleven bytes": frame(3, 9, b"\x80" * 10 + b"\x01" + bytes(10)),
    "B4 compact null where there must be a string": frame(12, 4, b"\0" + bytes(8)),
    "B5 trailing bytes": frame(18, 0, b"\0"),
    "B5 trailing bytes behind tags": frame(12, 4, encoder(load(12)[0], 4)(load(12)[0](group_id="g", member_id="m")) + bytes(100)),
    "string that is not UTF-8": frame(12, 0, b"\0\2\xff\xfe" + bytes(6)),
}


@pytest.mark.parametrize("data", CLOSING.values(), ids=CLOSING)
def test_lying_lengths_close_the_connection(connect: Connect, data: bytes) -> None:
    client = connect()
    client.send(data)
    assert client.receive() is None


@pytest.mark.parametrize("mebibytes", [1, 99])
@pytest.mark.parametrize("shape", ["names of no bytes", "topics without partitions", "partitions of no bytes"])
def test_a_bomb_of_small_objects(attacked: BrokerProcess, connect: Connect, honest: World, shape: str, mebibytes: int) -> None:
    """B2: a frame with valid lengths and as many small objects as fit into it does not harm the broker."""
    room = mebibytes << 20
    if shape == "names of no bytes":
        count = room // 2
        data = frame(3, 1, int32(count) + bytes(2 * count))
    elif shape == "topics without partitions":
        count = room // 6
        data = frame(0, 3, b"\xff\xff\xff\xff\0\0\0\x0a" + int32(count) + bytes(6 * count))
    else:
        count = room // 2
        data = frame(20, 4, compact(count + 1) + b"\x01" * count + int32(0) + b"\0")
    before = attacked.rss_bytes()
    client = connect()
    client.socket.settimeout(30)
    try:
        client.send(data)
        client.receive()
    except (OSError, TimeoutError):
        pass
    serve(honest)
    assert attacked.rss_bytes() - before < RSS_GROWTH_BYTES_MAX + (mebibytes << 20)


def compact(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def refused(client: WireClient, request: Any, version: int) -> set[str]:
    return {ErrorCode(code).name for code in error_codes(client.ask(request, version))}


NAMES = ["", ".", "..", "a/b", "a\0b", "x" * 250, "ä", "a b", "a\n"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_that_no_topic_may_have(connect: Connect, honest: World, name: str) -> None:
    client = connect()
    assert refused(client, honest.make_topic(7, name), 7) == {INVALID_TOPIC.name}
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    assert refused(client, asked, 8) - {"NONE"} <= {INVALID_TOPIC.name, "UNKNOWN_TOPIC_OR_PARTITION"}
    assert refused(client, honest.produce(In(9), name), 9) <= {INVALID_TOPIC.name, "UNKNOWN_TOPIC_OR_PARTITION"}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"num_partitions": 0}, "INVALID_PARTITIONS"),
        ({"num_partitions": -2}, "INVALID_PARTITIONS"),
        ({"num_partitions": I32_MAX}, None),
        ({"replication_factor": 0}, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": 32767}, "INVALID_REPLICATION_FACTOR"),
        ({"configs": [create_topics.CreatableTopicConfig(name="retention.ms", value="many")]}, "INVALID_CONFIG"),
        ({"configs": [create_topics.CreatableTopicConfig(name="no.such.setting", value="1")]}, "INVALID_CONFIG"),
        ({"configs": [create_topics.CreatableTopicConfig(name="retention.ms", value=None)]}, "INVALID_CONFIG"),
    ],
    ids=str,
)
def test_topics_that_cannot_be(connect: Connect, fields: dict[str, Any], error: str | None) -> None:
    given = {"name": "impossible", "num_partitions": 1, "replication_factor": 1, **fields}
    request = create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic(**given)], timeout_ms=1000)
    found = refused(connect(), request, 7)
    assert len(found) == 1 and "NONE" not in found and (error is None or found == {error})


def test_more_partitions_than_a_machine_has(connect: Connect, honest: World) -> None:
    name = honest.fresh_topic()
    topic = create_partitions.CreatePartitionsTopic(name=name, count=I32_MAX, assignments=None)
    found = refused(connect(), create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=1000), 3)
    assert len(found) == 1 and "NONE" not in found


NUMBERS = [-(2**31), -2, -1, 10_000, I32_MAX]


@pytest.mark.parametrize("number", NUMBERS)
def test_partitions_that_are_not_there(connect: Connect, honest: World, number: int) -> None:
    """B7: every API whose request names partitions answers an unknown partition with an error in its own response."""
    client, topic = connect(), honest.topic
    unknown = {"UNKNOWN_TOPIC_OR_PARTITION"}
    data = produce.TopicProduceData(name=topic, partition_data=[produce.PartitionProduceData(index=number, records=batch())])
    assert refused(client, produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9) == unknown
    wanted = fetch.FetchTopic(topic=topic, partitions=[fetch.FetchPartition(partition=number, partition_max_bytes=100)])
    assert refused(client, fetch.FetchRequest(max_wait_ms=10, min_bytes=1, topics=[wanted]), 12) - {"NONE"} == unknown
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=[list_offsets.ListOffsetsPartition(partition_index=number, timestamp=-1)])
    assert refused(client, list_offsets.ListOffsetsRequest(replica_id=-1, topics=[asked]), 7) == unknown
    cut = delete_records.DeleteRecordsTopic(name=topic, partitions=[delete_records.DeleteRecordsPartition(partition_index=number)])
    assert refused(client, delete_records.DeleteRecordsRequest(topics=[cut], timeout_ms=100), 2) == unknown
    kept = offset_commit.OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
    commit = offset_commit.OffsetCommitRequest(group_id="g", topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[kept])])
    assert refused(client, commit, 8) == unknown


@pytest.mark.parametrize("offset", [-(2**63), -5, 2**40, 2**63 - 1])
def test_offsets_that_are_not_there(connect: Connect, honest: World, offset: int) -> None:
    client, topic = connect(), honest.topic
    wanted = fetch.FetchTopic(topic=topic, partitions=[fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100)])
    assert "OFFSET_OUT_OF_RANGE" in refused(client, fetch.FetchRequest(max_wait_ms=10, min_bytes=1, topics=[wanted]), 12)
    cut = delete_records.DeleteRecordsTopic(
        name=topic, partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    assert refused(client, delete_records.DeleteRecordsRequest(topics=[cut], timeout_ms=100), 2) == {"OFFSET_OUT_OF_RANGE"}


@pytest.mark.parametrize("number", [-(2**31), -1, 0, I32_MAX])
def test_limits_and_timeouts_out_of_range(connect: Connect, honest: World, number: int) -> None:
    """The broker answers soon if there is nothing to wait for. A very long wait affects only its own connection."""
    client = connect()
    partition = fetch.FetchPartition(partition=0, partition_max_bytes=number)
    request = fetch.FetchRequest(
        max_wait_ms=min(number, 1000),
        min_bytes=number,
        max_bytes=number,
        topics=[fetch.FetchTopic(topic=honest.topic, partitions=[partition])],
    )
    assert client.ask(request, 12) is not None
    sent = honest.produce(In(9), honest.topic)
    sent.timeout_ms = number
    assert refused(client, sent, 9) == {"NONE"}
    sent.acks = 7
    assert refused(client, sent, 9) == {"INVALID_REQUIRED_ACKS"}


def test_the_same_topic_or_partition_twice(connect: Connect, honest: World) -> None:
    client, topic = connect(), honest.topic
    twice = [metadata.MetadataRequestTopic(name=topic)] * 2
    assert client.ask(metadata.MetadataRequest(topics=twice), 8) is not None
    part = produce.PartitionProduceData(index=0, records=batch())
    for topics in (
        [produce.TopicProduceData(name=topic, partition_data=[part, part])],
        [produce.TopicProduceData(name=topic, partition_data=[part])] * 2,
    ):
        assert client.ask(produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9) is not None
    wanted = fetch.FetchTopic(topic=topic, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=100)] * 2)
    assert client.ask(fetch.FetchRequest(max_wait_ms=10, min_bytes=1, topics=[wanted, wanted]), 12) is not None
    doubled = [create_topics.CreatableTopic(name="doubled", num_partitions=1, replication_factor=1)] * 2
    assert refused(client, create_topics.CreateTopicsRequest(topics=doubled), 7) == {"INVALID_REQUEST"}


def test_a_hundred_thousand_unknown_topics(attacked: BrokerProcess, connect: Connect, honest: World) -> None:
    """B6, with fewer topics: a Metadata request for many unknown topics creates none of them if auto-creation is off, and other clients are
    served.
    """
    names = [metadata.MetadataRequestTopic(name=f"unknown-{number}") for number in range(100_000)]
    answer = connect().ask(metadata.MetadataRequest(topics=names, allow_auto_topic_creation=False), 8)
    assert len(answer.topics) == 100_000
    serve(honest)


def test_groups_of_hostile_size(connect: Connect, honest: World) -> None:
    """B8: members with 10 MiB of metadata, a thousand protocols or long ids do not harm the broker."""
    client = connect()
    base = {"group_id": "big", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000, "protocol_type": "consumer"}
    protocols = {
        "ten mebibytes": [join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(10 << 20))],
        "a thousand": [join_group.JoinGroupRequestProtocol(name=f"p{number}", metadata=b"x") for number in range(1000)],
        "none": [],
    }
    for name, offered in protocols.items():
        answer = client.ask(join_group.JoinGroupRequest(protocols=offered, **{**base, "group_id": name}), 3)
        assert answer.error_code != 0 or name != "none"
        if answer.error_code == 0:
            assert client.ask(load(13)[0](group_id=name, member_id=answer.member_id), 1).error_code == 0
    one = protocols["a thousand"][:1]
    assert client.ask(join_group.JoinGroupRequest(protocols=one, **{**base, "group_id": ""}), 3).error_code == ErrorCode.INVALID_GROUP_ID
    for field, value in (("session_timeout_ms", -1), ("session_timeout_ms", I32_MAX)):
        answer = client.ask(join_group.JoinGroupRequest(protocols=one, **{**base, field: value}), 3)
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    long = client.ask(join_group.JoinGroupRequest(protocols=one, **{**base, "group_id": "g" * 32_000}), 3)
    assert long.error_code == ErrorCode.INVALID_GROUP_ID


LONG = "n" * 32_000


def test_names_of_thirty_kilobytes(attacked: BrokerProcess, honest: World) -> None:
    """B8: the broker limits the length of ids that clients choose, because it stores them in memory and in logs and repeats them in
    answers.
    """
    with WireClient(attacked.port, client_id=LONG) as client:
        protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=b"x")]
        base = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000, "protocol_type": "consumer", "protocols": protocols}
        joined = client.ask(join_group.JoinGroupRequest(group_id="long-client", **base), 3)
        assert joined.error_code == 0 and len(joined.member_id) < 400, "a client id is cut"
        assert client.ask(load(13)[0](group_id="long-client", member_id=joined.member_id), 1).error_code == 0
        static = join_group.JoinGroupRequest(group_id="long-static", group_instance_id=LONG, **base)
        assert client.ask(static, 5).error_code == ErrorCode.INVALID_REQUEST
        transaction = load(22)[0](transactional_id=LONG, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)
        assert client.ask(transaction, 4).error_code == ErrorCode.INVALID_REQUEST
        beat = {"member_id": LONG, "rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        assert client.ask(load(68)[0](group_id="long-member", **beat), 0).error_code == ErrorCode.INVALID_REQUEST
        shared = load(76)[0](group_id=LONG, member_id="m", subscribed_topic_names=["t"])
        assert client.ask(shared, 1).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_growing_group_is_bounded(own_broker: BrokerProcess) -> None:
    own_broker.settings += ["group.max.size=5"]
    own_broker.start()
    with WireClient(own_broker.port) as client:
        World(client)
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"x")
        request = join_group.JoinGroupRequest(
            group_id="crowd", session_timeout_ms=10_000, rebalance_timeout_ms=1000, protocol_type="consumer", protocols=[protocol]
        )
        joining = [WireClient(own_broker.port) for _ in range(10)]
        for member in joining:
            member.send(member.frame(request, 3))
        codes = sorted(member.answer(11, 3).error_code for member in joining)
        for member in joining:
            member.socket.close()
        # As in Kafka, members that join while others wait are counted together with them; the first member of the group is not included.
        assert set(codes) == {0, ErrorCode.GROUP_MAX_SIZE_REACHED} and codes.count(0) <= 6, codes


def test_the_metadata_of_a_group_is_bounded(own_broker: BrokerProcess) -> None:
    """B8: the metadata of each member is limited, and so is the metadata of all members together."""
    own_broker.settings += ["ottla.group.metadata.max.bytes=2000000"]
    own_broker.start()
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(500_000))
    request = join_group.JoinGroupRequest(
        group_id="talkers", session_timeout_ms=10_000, rebalance_timeout_ms=500, protocol_type="consumer", protocols=[protocol]
    )
    with WireClient(own_broker.port) as client:
        World(client)
    joining = [WireClient(own_broker.port) for _ in range(8)]
    for member in joining:
        member.send(member.frame(request, 3))
    codes = [member.answer(11, 3).error_code for member in joining]
    for member in joining:
        member.socket.close()
    assert set(codes) == {0, ErrorCode.GROUP_MAX_SIZE_REACHED} and 4 <= codes.count(0) <= 5, codes


@pytest.mark.parametrize("key", sorted(ONLY_FROM_BROKERS - {WRITE_TXN_MARKERS}))
def test_clients_may_not_speak_as_brokers(connect: Connect, honest: World, key: int) -> None:
    """A5: the broker refuses every version of the requests that only brokers send. WriteTxnMarkers is not tested here, because operators
    may send it to end hanging transactions (KIP-664).
    """
    for version in range(TABLE[key].min_version, TABLE[key].max_version + 1):
        assert "CLUSTER_AUTHORIZATION_FAILED" in refused(connect(), honest.request(key, version), version)


def test_a_client_may_not_fetch_as_a_replica(connect: Connect, honest: World) -> None:
    """A5, CVE-2018-1288: a client's fetch with a replica id is refused, because it could move the high watermark."""
    client = connect()
    wanted = fetch.FetchTopic(
        topic=honest.topic, topic_id=honest.topic_id, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=100)]
    )
    for version, who in ((12, {"replica_id": 0}), (15, {"replica_state": fetch.ReplicaState(replica_id=0, replica_epoch=1)})):
        topic = In(version)(fetch.FetchTopic, topic=honest.topic, topic_id=honest.topic_id, partitions=wanted.partitions)
        found = refused(client, fetch.FetchRequest(max_wait_ms=10, min_bytes=1, topics=[topic], **who), version)
        assert found - {"NONE"} <= {"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"} and found != {"NONE"}


def test_a_retention_without_end(connect: Connect, honest: World) -> None:
    """Versions 2 to 4 of OffsetCommit have a retention time for the offset; adding it to the current time must not overflow."""
    commit = honest.offset_commit(In(4))
    commit.retention_time_ms = 2**63 - 1
    assert refused(connect(), commit, 4) == {"NONE"}


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_clients_may_not_write_coordinators_records(connect: Connect, honest: World, topic: str) -> None:
    """C3: clients cannot produce to the coordinators' internal topics, in any version of Produce."""
    client = connect()
    for version in (3, 9, 12):
        assert refused(client, honest.produce(In(version), topic), version) == {INVALID_TOPIC.name}
