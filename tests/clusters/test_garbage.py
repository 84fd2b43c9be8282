"""Malformed nodes in a real ZooKeeper: only the contents of the damaged node are ignored, one line is logged, and no broker overwrites the
node. A malformed `/cluster/id` refuses the start (`test_refusals.py`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

import ottla.client
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client import LATEST, KafkaError
from ottla.testing.zookeeper_process import ZooKeeperProcess
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.clients.broker_process import BrokerProcess, eventually

Make = Callable[..., BrokerProcess]
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
EPOCHS = "/brokers/epochs"
"""Every broker counts as restarted."""

CONTROLLER_EPOCH = "/controller_epoch"


@pytest.fixture
def nodes(zookeeper: ZooKeeperProcess) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.connect)
    client.start()
    root = f"/garbage-{uuid.uuid4()}"
    client.create(root)
    client.chroot = root
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
    """Returns the leader of each topic's only partition."""
    with ottla.client.connect(broker.address) as client:
        return {str(topic.name): topic.partitions[0].leader_id for topic in client.cluster.refresh(None).topics}


def log_end(broker: BrokerProcess, topic: str) -> int:
    with ottla.client.connect(broker.address) as client:
        (found,) = client.list_offsets({TopicPartition(topic, 0): LATEST}).values()
    assert not isinstance(found, Exception), found
    return found.offset


def lines_about(path: str, log: str) -> list[str]:
    """Returns the log messages that name the node."""
    messages = [json.loads(line)["message"] for line in log.splitlines() if line.startswith("{")]
    return [message for message in messages if path in message.split()]


def test_damaged_nodes_cost_what_stood_in_them_and_stay_as_they_are(
    zookeeper: ZooKeeperProcess, make_broker: Make, nodes: KazooClient
) -> None:
    broker = make_broker(
        "broker", broker_id=1, zookeeper_connect=zookeeper.connect + nodes.chroot, zookeeper_session_timeout_ms=2000,
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer", super_users="User:ANONYMOUS", delegation_token_secret_key="x",
    ).start()  # fmt: skip
    with ottla.client.connect(broker.address) as client:
        for topic in ("whole", "lost", "headless"):
            client.create_topic(topic, partitions=1, replication_factor=1)
            write(broker, topic)
    broker.kill()
    whole = {path: nodes.get(path)[0] for path in SKIPPED if nodes.exists(path)}
    for path in (*SKIPPED, *UNREAD, EPOCHS, EVENT, PRODUCER_IDS):
        put(nodes, path, GARBAGE)
    since = len(broker.log_text())
    broker.start()
    check_what_is_refused(broker)
    write(broker, "whole")
    put(nodes, LATE_CHANGE, GARBAGE)
    noted = (*SKIPPED, EPOCHS, EVENT, PRODUCER_IDS, LATE_CHANGE)
    eventually(lambda: all(lines_about(path, broker.log_text()[since:]) for path in noted))
    broker.check_log(since)
    log = broker.log_text()[since:]
    assert {path: lines for path in noted if len(lines := lines_about(path, log)) != 1} == {}
    assert "from the controller is refused" not in log
    damaged = (*SKIPPED, *UNREAD, EPOCHS, PRODUCER_IDS, LATE_CHANGE)
    assert [path for path in damaged if nodes.get(path)[0] != GARBAGE] == []
    assert not nodes.exists(EVENT)
    for path, data in whole.items():
        put(nodes, path, data)
    nodes.delete("/controller")
    eventually(lambda: leaders(broker) == {"whole": 1, "lost": 1, "headless": 1})
    assert [log_end(broker, topic) for topic in ("whole", "lost", "headless")] == [2, 1, 1]


@pytest.fixture
def pair(zookeeper: ZooKeeperProcess, make_broker: Make, nodes: KazooClient) -> list[BrokerProcess]:
    """Two running brokers, and a topic with replicas on both."""
    settings = {"zookeeper_connect": zookeeper.connect + nodes.chroot, "zookeeper_session_timeout_ms": 2000}
    brokers = [make_broker(f"broker-{number}", broker_id=number, **settings) for number in (1, 2)]
    for broker in brokers:
        broker.start()
    with ottla.client.connect(brokers[0].address) as client:
        client.create_topic("whole", partitions=1, replication_factor=2)
    for broker in brokers:
        write(broker, "whole")
    return brokers


def create(broker: BrokerProcess, topic: str) -> ErrorCode:
    """Sends one CreateTopics to this broker, and returns the answer's error."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=2)], timeout_ms=1_000)
    with ottla.client.connect(broker.address) as client:
        return ErrorCode(client.cluster.ask_any(request).topics[0].error_code)


def test_without_an_epoch_there_is_no_controller_and_records_flow(pair: list[BrokerProcess], nodes: KazooClient) -> None:
    """Without the epoch node the controller resigns at its next write, and a broker that starts logs why it waits. The number in this line
    repairs both. Records are still produced.
    """
    garbage = b"\xff\xfe\x00"
    nodes.set(CONTROLLER_EPOCH, garbage)
    for broker in pair:
        assert create(broker, "refused") in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
    write(pair[0], "whole")
    pair[1].kill()
    with ThreadPoolExecutor(1) as executor:
        starting = executor.submit(pair[1].start)
        number = b"1"
        try:
            line = eventually(lambda: lines_about(CONTROLLER_EPOCH, pair[1].log_text()))[-1]
            assert nodes.get(CONTROLLER_EPOCH)[0] == garbage
            number = line.rpartition(" ")[2].encode()
        finally:  # ends the process even if the check has failed
            nodes.set(CONTROLLER_EPOCH, number)
        starting.result()
    eventually(lambda: create(pair[1], "mended") in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))
    eventually(lambda: "mended" in leaders(pair[0]))
    write(pair[0], "whole")
    assert log_end(pair[0], "whole") == 4 and "refused" not in leaders(pair[0])
    for broker in pair:
        broker.check_log()
        assert len(lines_about(CONTROLLER_EPOCH, broker.log_text())) == 1


def check_what_is_refused(broker: BrokerProcess) -> None:
    """Checks the errors that clients get because of the damage."""
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
