"""The bytes of nodes: they are as Kafka writes them, are read back unchanged, and garbage is refused (C2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.cluster_metadata import (
    ALL_BROKERS,
    CONFIG_BROKER,
    CONFIG_CLIENT_METRICS,
    CONFIG_GROUP,
    CONFIG_TOPIC,
    BrokerMetadata,
    LogDirectoryHistory,
    PartitionMetadata,
    TopicMetadata,
)
from ottla.metadata_store import znodes

TOPIC_ID = bytes(range(16))


def test_a_topic_as_kafka_writes_it() -> None:
    moving = PartitionMetadata(
        index=1, leader=1, leader_epoch=0, replicas=(3, 2, 1), isr=(1,), adding_replicas=(3,), removing_replicas=(1,)
    )
    still = PartitionMetadata(index=0, leader=1, leader_epoch=0, replicas=(1, 2), isr=(1,))
    topic = TopicMetadata(name="t", topic_id=TOPIC_ID, partitions=(still, moving))
    data = znodes.topic_bytes(topic)
    assert data == (
        b'{"removing_replicas":{"1":[1]},"partitions":{"0":[1,2],"1":[3,2,1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw",'
        b'"adding_replicas":{"1":[3]},"version":3}'
    )
    read = znodes.read_topic("t", data, 4, {0: still, 1: moving})
    assert read.topic_id == TOPIC_ID
    assert read.version == 4
    assert [(part.replicas, part.adding_replicas, part.removing_replicas) for part in read.partitions] == [
        ((1, 2), (), ()),
        ((3, 2, 1), (3,), (1,)),
    ]


def test_a_partition_as_kafka_writes_it() -> None:
    partition = PartitionMetadata(index=0, leader=1, leader_epoch=2, replicas=(), isr=(1, 2), partition_epoch=9, controller_epoch=3)
    data = znodes.partition_bytes(partition)
    assert data == b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":2,"isr":[1,2]}'
    assert znodes.read_partition(0, data, 9) == partition


def test_what_kafka_does_not_know_stands_in_a_partition_only_where_it_says_something() -> None:
    partition = PartitionMetadata(
        index=0, leader=-1, leader_epoch=2, replicas=(), isr=(1,), partition_epoch=9, controller_epoch=3, eligible=(2, 3), last_leader=1,
        last_known=(4,), emptied=(5, 6),
    )
    data = znodes.partition_bytes(partition)
    assert data.endswith(b'"isr":[1],"eligible":[2,3],"last_leader":1,"last_known":[4],"emptied":[5,6]}')
    assert znodes.read_partition(0, data, 9) == partition
    topic = TopicMetadata(name="t", topic_id=TOPIC_ID, partitions=(replace(partition, replicas=(1, 2, 3)),), version=4)
    assert znodes.read_topic("t", znodes.topic_bytes(topic), 4, {0: partition}) == topic


def test_a_broker_that_came_back_whole_and_its_data_directory() -> None:
    broker = BrokerMetadata(broker_id=1, endpoints={"IN": ("h", 9)}, epoch=5, is_clean=True, directories=("abc", "def"))
    broker = replace(broker, histories={"abc": LogDirectoryHistory("/data", ("g", "h"))}, cordons={"/data": False, "/b": True})
    data = znodes.broker_bytes(broker, {"IN": "PLAINTEXT"}, 77, incarnation="abc,def")
    assert (znodes.read_broker(1, data, 5), znodes.read_incarnation(data)) == (broker, "abc,def")
    assert znodes.read_incarnation(b"{}") == ""


def test_a_broker_as_kafka_writes_it() -> None:
    broker = BrokerMetadata(broker_id=1, endpoints={"IN": ("::1", 9), "OUT": ("h", 10)}, rack="r", epoch=5)
    value = json.loads(znodes.broker_bytes(broker, {"IN": "PLAINTEXT", "OUT": "SSL"}, 77))
    assert value == {
        "features": {},
        "listener_security_protocol_map": {"IN": "PLAINTEXT", "OUT": "SSL"},
        "endpoints": ["IN://[::1]:9", "OUT://h:10"],
        "jmx_port": -1,
        "port": 9,
        "host": "::1",
        "version": 5,
        "timestamp": "77",
        "rack": "r",
    }
    assert znodes.read_broker(1, json.dumps(value).encode(), 5) == broker


def test_small_nodes() -> None:
    assert json.loads(znodes.controller_bytes(3, 1))["brokerid"] == 3
    assert znodes.read_controller_epoch(znodes.controller_epoch_bytes(8)) == 8
    assert znodes.read_cluster_id(znodes.cluster_id_bytes("abc")) == "abc"
    assert znodes.read_quotas(znodes.user_bytes({"producer_byte_rate": 1.5}, {})) == {"producer_byte_rate": 1.5}
    assert znodes.read_config(b"") == {}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (znodes.state_path("t", 3), "/brokers/topics/t/partitions/3/state"),
        (znodes.config_path(CONFIG_BROKER, ALL_BROKERS), "/config/brokers/<default>"),
        (znodes.config_path(CONFIG_TOPIC, "a.b"), "/config/topics/a.b"),
        (znodes.config_path(CONFIG_GROUP, "a/b c"), "/config/groups/a%2Fb%20c"),
        (znodes.config_path(CONFIG_CLIENT_METRICS, "m"), "/config/client-metrics/m"),
        (znodes.quota_path((("client-id", "c"), ("user", "u"))), "/config/users/u/clients/c"),
        (znodes.quota_path((("user", None),)), "/config/users/<default>"),
        (znodes.quota_path((("client-id", "x/y"),)), "/config/clients/x%2Fy"),
        (znodes.quota_path((("ip", "1.2.3.4"),)), "/config/ips/1.2.3.4"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


@given(st.text(st.characters(codec="utf-8")))
def test_names_come_back_from_paths(name: str) -> None:
    assert "/" not in znodes.quoted(name)
    assert znodes.unquoted(znodes.quoted(name)) == name


@pytest.mark.parametrize("text", ["%", "%zz", "%-1", "%4%41", "\ud800%41"])
def test_text_that_is_not_a_quoted_name_is_refused(text: str) -> None:
    with pytest.raises(znodes.NodeError, match="is not a quoted name"):
        znodes.unquoted(text)


READERS: list[Callable[[bytes], object]] = [
    znodes.read_controller_epoch,
    znodes.read_cluster_id,
    znodes.read_config,
    znodes.read_quotas,
    lambda data: znodes.read_topic("t", data, 0, {}),
    lambda data: znodes.read_partition(0, data, 0),
    lambda data: znodes.read_broker(0, data, 0),
]
GARBAGE = [
    b"\xff\xfe",
    b"[",
    b"7.5",
    b"[]",
    b"null",
    b'{"version":1}x',
    b'{"partitions":[1],"topic_id":"AAECAwQFBgcICQoLDA0ODw"}',
    b'{"partitions":{"0":[1],"2":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}',
    b'{"partitions":{"0":["x"]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}',
    b'{"partitions":{},"topic_id":"short"}',
    b'{"leader":"1","leader_epoch":0,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":0,"isr":1,"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":2147483647,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":0,"isr":[2147483648],"controller_epoch":1}',
    b'{"partitions":{"0":[2147483648]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}',
    b'{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1,"eligible":7}',
    b'{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1,"last_known":7}',
    b'{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1,"emptied":{}}',
    b'{"endpoints":["nowhere"]}',
    '{"endpoints":["A://h:²"]}'.encode(),
    b'{"endpoints":["A://h:%s"]}' % (b"9" * 5_000),
    '{"partitions":{"²":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}'.encode(),
    '{"epochs":{"²":7},"directories":{"²":["a"]}}'.encode(),
    b'{"config":[]}',
    b'{"config":{"producer_byte_rate":"fast"}}',
    b'{"features":{"f":"x"}}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("data", GARBAGE)
def test_garbage_is_a_node_error_and_nothing_else(data: bytes) -> None:
    refused = 0
    for read in READERS:
        try:
            read(data)
        except znodes.NodeError:
            refused += 1
    assert refused >= len(READERS) - 2, "garbage was read as something"


@given(st.binary(max_size=60))
def test_random_bytes_are_a_node_error_and_nothing_else(data: bytes) -> None:
    """Every reader refuses random bytes, except the two that accept an empty node or a number."""
    for read in READERS:
        if (read is znodes.read_config or read is znodes.read_quotas) and not data:
            continue
        if read is znodes.read_controller_epoch and data.strip().lstrip(b"+-").replace(b"_", b"").isdigit():
            continue
        with pytest.raises(znodes.NodeError):
            read(data)
