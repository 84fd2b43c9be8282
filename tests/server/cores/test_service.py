"""`ottla start --cores` as processes: the parts in server/cores together."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.broker.running import find
from tests.clients.broker_process import eventually

pytestmark = pytest.mark.foreign

READY = re.compile(rb"READY (\S+) broker.id=([0-9,]+) in \d+ ms\n")


class Service:
    """A running service."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "ottla", "start", "--data-dir", str(directory), "--port", "0", "--log-format", "json", *options]
        self.log = directory.parent / "service.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = READY.fullmatch(self.process.stdout.readline())
        assert line is not None, self.log.read_text()
        self.addresses = line[1].decode()
        self.broker_ids = [int(number) for number in line[2].split(b",")]

    def http(self, path: str, credentials: str = "") -> str:
        url = next(entry["message"].split()[-1] for entry in self.entries() if entry["message"].startswith("metrics and health on"))
        headers = {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}"} if credentials else {}
        with urllib.request.urlopen(urllib.request.Request(url + path, headers=headers), timeout=60) as answer:
            return str(answer.read().decode())

    def entries(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def pid_of(self, broker_id: int) -> int:
        found = find(f"{self.directory}/broker.{broker_id}")
        assert found is not None, f"broker {broker_id} does not run"
        return found.pid

    @property
    def directory(self) -> str:
        return str(self.process.args[5])  # type: ignore[index]


@contextmanager
def running(directory: Path, *options: str) -> Iterator[Service]:
    service = Service(directory, *options)
    try:
        yield service
    finally:
        service.process.send_signal(signal.SIGTERM)
        service.process.communicate(timeout=300)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_brokers_are_one_cluster_with_one_page_of_metrics_and_one_stop(directory: Path) -> None:
    with running(directory, "--cores", "2", "--set", "ottla.metrics.listen=127.0.0.1:0") as service:
        assert service.broker_ids == [1, 2] and len(service.addresses.split(",")) == 2
        found = find(str(directory))
        assert found is not None and (found.pid, found.address) == (service.process.pid, service.addresses)
        create_topic(service, "orders", 4)
        produce(service, "orders", 100)
        assert set(leaders(service, "orders")) == {1, 2}
        page = service.http("/metrics")
        assert 'ottla_cores_broker_up{broker="1"} 1' in page and 'kafka_server_replicamanager_leadercount{broker="2"}' in page
        assert json.loads(service.http("/readyz")) == {"status": "ready"}
        assert {os.path.basename(path) for path in map(str, directory.iterdir())} >= {"broker.1", "broker.2", "ottla-cores.sqlite"}
    assert service.process.returncode == 0
    assert "not clean" not in service.log.read_text()
    with running(directory, "--cores", "2") as again:
        assert consumed(again, "orders", 100) == {b"%d" % number for number in range(100)}


def test_the_page_of_metrics_may_have_a_password(directory: Path) -> None:
    given = ["--set", "ottla.metrics.listen=127.0.0.1:0", "--set", "ottla.metrics.credentials=look:here"]
    with running(directory, "--cores", "2", *given) as service:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            service.http("/metrics")
        page = service.http("/metrics", "look:here")
        assert 'kafka_server_replicamanager_leadercount{broker="1"}' in page


def test_a_broker_that_is_killed_starts_again_and_others_lead_meanwhile(directory: Path) -> None:
    with running(directory, "--cores", "2", "--set", "default.replication.factor=2") as service:
        create_topic(service, "orders", 2)
        os.kill(service.pid_of(2), signal.SIGKILL)
        eventually(lambda: set(leaders(service, "orders")) == {1})
        produce(service, "orders", 10)
        eventually(lambda: all(len(one.isrs) == 2 for one in partitions(service, "orders")))
        ended = [entry["message"] for entry in service.entries() if "starts again" in entry["message"]]
        assert ended == ["broker 2 has ended (exit code -9) and starts again in 0.5 s"]


def test_brokers_end_with_their_service(directory: Path) -> None:
    with running(directory, "--cores", "2") as service:
        service.process.kill()
        eventually(lambda: find(f"{directory}/broker.1") is None and find(f"{directory}/broker.2") is None)
    with running(directory, "--cores", "3") as more:
        assert more.broker_ids == [1, 2, 3]


def create_topic(service: Service, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": service.addresses})
    admin.create_topics([NewTopic(topic, count)])[topic].result(60)


def partitions(service: Service, topic: str) -> list[Any]:
    found = AdminClient({"bootstrap.servers": service.addresses}).list_topics(topic, timeout=60)
    return list(found.topics[topic].partitions.values())


def leaders(service: Service, topic: str) -> list[int]:
    return [partition.leader for partition in partitions(service, topic)]


def produce(service: Service, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": service.addresses, "partitioner": "random"})
    failed: list[object] = []
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _message: error and failed.append(error))
    assert producer.flush(60) == 0 and not failed


def consumed(service: Service, topic: str, count: int) -> set[bytes]:
    consumer = Consumer({"bootstrap.servers": service.addresses, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [message.value() for message in consumer.consume(count, timeout=60)]
    consumer.close()
    return set(found)


@pytest.mark.parametrize(
    ("options", "reason", "exit_code"),
    [
        (["--cores", "2", "--set", "ssl.keystore.location=/none", "--set", "listeners=SSL://:0"], "broker \\d did not start", 1),
        (["--cores", "2", "--port", "9092", "--set", "ottla.metrics.listen=127.0.0.1:9093"], "port 9093 would be taken twice", 1),
        (["--cores", "2", "--set", "ottla.metrics.listen=here"], "ottla.metrics.listen=here is not host:port", 1),
        (["--cores", "0"], "--cores is a number above 0", 2),
        (["--cores", "2", "--brokers", "2"], "--cores is a number above 0, for ottla start", 2),
        (["--cores", "2", "--seed-topic", "orders"], "create them when the service is ready", 1),
        (["--cores", "2", "--console-port", "0"], "several brokers start no console", 1),
    ],
)
def test_a_service_that_cannot_start_says_why(directory: Path, options: list[str], reason: str, exit_code: int) -> None:
    result = refused(directory, *options)
    assert re.search(reason, result.stderr) and "Traceback" not in result.stderr
    assert result.returncode == exit_code and result.stdout == ""


def test_directories_are_not_mixed_up(directory: Path) -> None:
    with running(directory, "--cores", "3"):
        pass
    assert "holds the data of several brokers: start them with --cores" in refused(directory).stderr
    fewer = refused(directory, "--cores", "2")
    assert "holds data of broker 3, which would not run: start with broker.id and --cores as before" in fewer.stderr
    single = directory.parent / "single"
    single.mkdir()
    (single / "meta.properties").touch()
    assert "holds the data of one broker: start it without --cores" in refused(single, "--cores", "2").stderr


def refused(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "start", "--data-dir", str(directory), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
