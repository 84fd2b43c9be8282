"""A broker process of a test's own: start, stop, suspend, snapshots."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.client import KafkaError, connect
from ottla.client.addresses import parse_addresses
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.blocking.readable import readable
from ottla.client.errors import ClientError
from ottla.testing.broker import Broker, unknown_setting
from ottla.testing.cluster import cluster_defaults
from ottla.testing.process import BrokerDidNotStart
from ottla.wire.messages.list_groups import ListGroupsRequest


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_broker_starts_serves_and_leaves_nothing() -> None:
    broker = Broker(topics=["orders:3"], settings={"auto.create.topics.enable": False})
    with broker as started:
        assert started is broker
        home, pid = broker.data_dir.parent, broker.process.pid
        assert broker.topics() == ["orders"]
        assert "READY" in broker.log
    assert not home.exists()
    assert not is_alive(pid)


def test_records_of_past_years_stay_while_tests_run() -> None:
    """By Kafka's retention they go when expired records are first looked for, which was after five minutes."""
    settings = [Broker()._settings, Broker(settings={"num.partitions": 2})._settings, cluster_defaults(3)]
    assert all(int(found["log.retention.check.interval.ms"]) >= 86_400_000 for found in settings)
    assert Broker(settings={"log.retention.check.interval.ms": 100})._settings["log.retention.check.interval.ms"] == "100"


def test_a_given_data_directory_stays(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.add_record("orders", "first")
    with Broker(data_dir=tmp_path / "data") as broker:
        assert [record.value for record in broker.records("orders")] == [b"first"]


def test_the_id_of_another_cluster_is_refused(tmp_path: Path) -> None:
    first, other = "abcdefghijklmnopqrstuv", "vutsrqponmlkjihgfedcba"
    for _ in range(2):
        with Broker(data_dir=tmp_path / "data").with_cluster_id(first) as broker:
            broker.add_record("orders", "x")
    line = f"the cluster that this broker belongs to is {first}, and CLUSTER_ID .ottla.cluster.id. names {other}; leave it out, or"
    with pytest.raises(BrokerDidNotStart, match=line), Broker(data_dir=tmp_path / "data").with_cluster_id(other):
        pass
    with Broker(data_dir=tmp_path / "data") as broker:
        assert len(broker.records("orders")) == 2


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"default.replication.factor": 3}, "default.replication.factor is 3: a broker without zookeeper.connect is alone"),
        ({"ottla.metrics.listen": "127.0.0.1:0", "ottla.metrics.credentials": "secret"}, "ottla.metrics.credentials has no colon"),
    ],
)
def test_a_setting_that_could_never_work_refuses_the_start(settings: dict[str, object], line: str) -> None:
    with pytest.raises(BrokerDidNotStart, match=line) as refused, Broker(settings=settings):
        pass
    assert "secret" not in str(refused.value)


def test_transactional_ids_are_counted_over_all_partitions_of_a_coordinator() -> None:
    settings = {"ottla.transactions.max": 2, "transaction.state.log.num.partitions": 10}
    with Broker(settings=settings) as broker, connect(broker.direct_server) as client:
        for name in ("a", "b"):
            client.transaction(name).initialize()
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            client.transaction("c").initialize()
        client.transaction("a").initialize()


def test_the_reason_is_reported_when_a_broker_does_not_start() -> None:
    broker = Broker(settings={"listeners": "nonsense"})
    with pytest.raises(BrokerDidNotStart, match="listeners"):
        broker.start()


def test_a_broker_that_was_never_started_is_an_error() -> None:
    with pytest.raises(AssertionError, match="is not running"):
        _ = Broker().bootstrap_server
    Broker().stop()


def test_a_run_without_stop_ends_its_broker() -> None:
    code = "import ottla.testing; broker = ottla.testing.Broker().start(); print(broker.process.pid, broker.data_dir)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    pid, data_dir = done.stdout.split()
    assert not is_alive(int(pid))
    assert not Path(data_dir).exists()


def test_a_broker_is_suspended_and_resumed(broker: Broker) -> None:
    connection = BlockingConnection(parse_addresses(broker.direct_server)[0]).open()
    with broker.pause():
        connection.send(ListGroupsRequest())
        assert not readable([connection.fileno()], 0.1)
    assert connection.receive(5).error_code == 0
    connection.close()


def test_a_suspended_broker_can_be_stopped() -> None:
    with Broker() as broker:
        pid = broker.process.pid
        broker.pause()
    assert not is_alive(pid)


def test_a_snapshot_holds_what_was_there_and_nothing_that_came_later(tmp_path: Path) -> None:
    with Broker(settings={"log.segment.bytes": 1 << 20}) as broker:
        for number in range(20):
            broker.add_record("orders", "x" * 100_000, key=str(number))
        snapshot = broker.snapshot(tmp_path / "snapshot")
        broker.add_record("orders", "later")
        broker.add_record("other", "later")
        segments = sorted((snapshot / "orders-0").glob("*.log"))
        assert len(segments) > 1
        assert os.path.samefile(segments[0], broker.data_dir / "orders-0" / segments[0].name)
        with Broker.from_snapshot(snapshot) as fork, Broker.from_snapshot(snapshot) as twin:
            assert fork.topics() == twin.topics() == ["orders"]
            assert [record.key for record in fork.records("orders")] == [str(number).encode() for number in range(20)]
            fork.add_record("orders", "of the fork")
            assert len(fork.records("orders")) == 21
            assert len(twin.records("orders")) == 20
        assert len(broker.records("orders")) == 21


def test_a_snapshot_of_a_suspended_broker(broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.add_record(topic, "there")
    with broker.pause():
        snapshot = broker.snapshot(tmp_path / "snapshot")
    assert (snapshot / f"{topic}-0").is_dir()
    assert broker.records(topic)


def test_reset_ends_a_pause() -> None:
    with Broker(topics=["t"]) as broker:
        broker.pause()
        broker.reset()
        assert broker.topics() == []


def test_a_killed_broker_closes_its_connections() -> None:
    with Broker() as broker:
        connection = BlockingConnection(parse_addresses(broker.bootstrap_server)[0]).open()
        broker.process.kill()
        with pytest.raises(ClientError):
            connection.request(ListGroupsRequest())
        connection.close()


def test_faults_of_a_killed_broker_end_although_its_clock_is_frozen() -> None:
    with Broker() as broker:
        broker.clock.freeze()
        broker.process.kill()
        broker.end_faults()
        assert not broker.clock.is_frozen


def test_lines_written_for_testcontainers_work() -> None:
    """Changing the import is enough: `from ottla.testing import Broker as KafkaContainer`."""
    container = Broker("confluentinc/cp-kafka:7.6.0", port=9094).with_kraft().with_cluster_id("abcdefghijklmnopqrstuv")
    container.with_name("kafka").with_exposed_ports(9093).with_network(object()).with_network_aliases("kafka")
    container.with_kwargs(mem_limit="1g")
    container.maybe_emulate_amd64()
    container.with_env("KAFKA_NUM_PARTITIONS", "3").with_envs(KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:9094", KAFKA_PROCESS_ROLES="broker")
    with container.start(timeout=30) as kafka:
        host, port = kafka.get_container_host_ip(), kafka.get_exposed_port(9094)
        assert kafka.get_bootstrap_server() == f"{host}:{port}"
        kafka.add_record("t", "x")
        assert len(kafka._ends("t", "LATEST", True)) == 3
        assert b"READY" in kafka.get_logs()[1]
        assert "abcdefghijklmnopqrstuv" in (kafka.data_dir / "meta.properties").read_text()
    assert container.direct_server == ""


def test_a_user_of_plain_is_a_known_setting() -> None:
    assert unknown_setting("ottla.sasl.plain.users.alice") == ""


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("KAFKA_NUM_PARTITONS", "'KAFKA_NUM_PARTITONS' has no effect: unknown setting 'num.partitons'; did you mean 'num.partitions'?"),
        ("KAFKA_MADE_UP", "'KAFKA_MADE_UP' has no effect: unknown setting 'made.up'"),
        ("KAFKA_HEAP_OPTS", "'KAFKA_HEAP_OPTS' has no effect: it is for a JVM or for an image's scripts"),
        ("TZ", "'TZ' has no effect: settings begin with KAFKA_"),
    ],
)
def test_a_variable_without_effect_is_warned_of(variable: str, message: str) -> None:
    with pytest.warns(UserWarning) as warned:
        Broker().with_env(variable, "1")
    assert [str(warning.message) for warning in warned] == [message]
    assert warned[0].filename == __file__
