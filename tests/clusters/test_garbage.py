"""Garbage in the nodes of a real ZooKeeper: each damaged node costs what stood in it, and one line; nothing is written over it.

Garbage in `/cluster/id` refuses the start (`test_refusals.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

import ottla.client
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client import LATEST, KafkaError
from ottla.testing.zookeeper_process import ZooKeeperProcess
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.clients.broker_process import BrokerProcess, eventually

Make = Callable[..., BrokerProcess]
CHROOT = "/garbage"
GARBAGE = b'{"version":'
STATE = "/brokers/topics/headless/partitions/0/state"
SKIPPED = (
    "/brokers/ids/7",
    "/brokers/topics/lost",
    STATE,
    "/config/topics/whole",
    "/config/brokers/1",
    "/config/brokers/<default>",
    "/config/clients/c1",
    "/config/users/u1",
    "/config/users/u1/clients/c2",
    "/config/ips/1.2.3.4",
    "/config/groups/g1",
    "/config/client-metrics/m",
    "/kafka-acl/Topic/whole",
    "/delegation_token/tokens/t1",
)
"""Read when a broker starts."""

UNREAD = (
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/isr_change_notification/isr_change_0000000007",
    "/config/changes/config_change_0000000007",
    "/kafka-acl-changes/acl_changes_0000000007",
    "/delegation_token/token_changes/token_change_0000000007",
)
"""Orders of Kafka's old tools, and changes that were over before the broker started, which no broker reads."""

EVENT = "/log_dir_event_notification/log_dir_event_0000000007"
"""Removed by the controller as every event that it has read."""

LATE_CHANGE = "/config/changes/config_change_0000000008"
"""Written while the broker runs."""

PRODUCER_IDS = "/latest_producer_id_block"
REPLACED = ("/controller_epoch", "/brokers/epochs")
"""Without the first there is no controller, and the version of the node says what it was at least; without the second every broker counts
as restarted, and is noted anew."""


@pytest.fixture
def nodes(zookeeper: ZooKeeperProcess) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.connect)
    client.start()
    client.create(CHROOT)
    client.chroot = CHROOT
    yield client
    client.stop()
    client.close()


def put(nodes: KazooClient, path: str, data: bytes) -> None:
    nodes.ensure_path(path)
    nodes.set(path, data)


def write(broker: BrokerProcess, topic: str) -> None:
    with ottla.client.connect(broker.address) as client, client.producer(is_idempotent=False) as producer:
        producer.produce(topic, b"a")


def leaders(broker: BrokerProcess) -> dict[str, int]:
    """By topic, of the only partition."""
    with ottla.client.connect(broker.address) as client:
        return {str(topic.name): topic.partitions[0].leader_id for topic in client.cluster.refresh(None).topics}


def log_end(broker: BrokerProcess, topic: str) -> int:
    with ottla.client.connect(broker.address) as client:
        (found,) = client.list_offsets({TopicPartition(topic, 0): LATEST}).values()
    assert not isinstance(found, Exception), found
    return found.offset


def lines_about(path: str, log: str) -> list[str]:
    """The messages that name the node."""
    messages = [json.loads(line)["message"] for line in log.splitlines() if line.startswith("{")]
    return [message for message in messages if path in message.split()]


def test_damaged_nodes_cost_what_stood_in_them_and_stay_as_they_are(
    zookeeper: ZooKeeperProcess, make_broker: Make, nodes: KazooClient
) -> None:
    broker = make_broker(
        "broker", broker_id=1, zookeeper_connect=zookeeper.connect + CHROOT, zookeeper_session_timeout_ms=2000,
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer", super_users="User:ANONYMOUS", delegation_token_secret_key="x",
    ).start()  # fmt: skip
    with ottla.client.connect(broker.address) as client:
        for topic in ("whole", "lost", "headless"):
            client.create_topic(topic, partitions=1, replication_factor=1)
            write(broker, topic)
    broker.kill()
    whole = {path: nodes.get(path)[0] for path in SKIPPED if nodes.exists(path)}
    for path in (*SKIPPED, *UNREAD, *REPLACED, EVENT, PRODUCER_IDS):
        put(nodes, path, GARBAGE)
    since = len(broker.log_text())
    broker.start()
    check_what_is_refused(broker)
    write(broker, "whole")
    put(nodes, LATE_CHANGE, GARBAGE)
    noted = (*SKIPPED, *REPLACED, EVENT, PRODUCER_IDS, LATE_CHANGE)
    eventually(lambda: all(lines_about(path, broker.log_text()[since:]) for path in noted))
    broker.check_log(since)
    log = broker.log_text()[since:]
    assert {path: lines for path in noted if len(lines := lines_about(path, log)) != 1} == {}
    assert "from the controller is refused" not in log
    overwritten = [path for path in (*SKIPPED, *UNREAD, PRODUCER_IDS) if nodes.get(path)[0] != GARBAGE]
    assert overwritten == []
    assert nodes.get("/controller_epoch")[0].isdigit() and not nodes.exists(EVENT)
    for path, data in whole.items():
        put(nodes, path, data)
    nodes.delete("/controller")
    eventually(lambda: leaders(broker) == {"whole": 1, "lost": 1, "headless": 1})
    assert [log_end(broker, topic) for topic in ("whole", "lost", "headless")] == [2, 1, 1]


def check_what_is_refused(broker: BrokerProcess) -> None:
    """The errors that clients get because of the damage."""
    with ottla.client.connect(broker.address) as client:
        answer = client.cluster.refresh(["lost", "headless"], auto_create=True)
        lost, headless = (topic for name in ("lost", "headless") for topic in answer.topics if topic.name == name)
        assert (lost.error_code, headless.error_code) == (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE)
        assert (headless.partitions[0].error_code, headless.partitions[0].leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        with pytest.raises(KafkaError, match="its node in the metadata store is damaged") as refused:
            client.create_topic("lost", partitions=1, replication_factor=1)
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        for _ in range(2):
            given = client.cluster.ask_any(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
            assert given.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
