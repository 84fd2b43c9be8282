"""Java's client and librdkafka push their metrics (KIP-714) to a single broker and to brokers of a cluster."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.conftest import SETTINGS
from tests.clients.java_program import RUN_SECONDS, Java

Series = dict[str, dict[str, float]]
"""Values by name and client instance id; the largest one of several series."""


class Metrics:
    """A broker with a subscription to all metrics, and its HTTP port."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.address = broker.address
        found = eventually(lambda: re.search(r"metrics and health on (http://\S+)", broker.log_text()))
        self._url = f"{found[1]}/metrics"
        self.subscribe({"interval.ms": "200", "metrics": "*"})

    def subscribe(self, settings: dict[str, str]) -> None:
        with Cluster(self.address) as cluster:
            admin.alter_configs(cluster, admin.CLIENT_METRICS_RESOURCE, "all", changes=settings)

    def series(self) -> Series:
        with urllib.request.urlopen(self._url, timeout=60) as answer:
            text = answer.read().decode()
        found: Series = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith(("kafka_client_", "ottla_client_info")):
                    values = found.setdefault(sample.name, {})
                    client = sample.labels["client_instance_id"]
                    values[client] = max(sample.value, values.get(client, sample.value))
        return found

    def value(self, name: str, client: str) -> float:
        return self.series().get(name, {}).get(client, 0)

    def clients(self) -> set[str]:
        return set(self.series().get("ottla_client_info", {}))


@pytest.fixture
def metrics(tmp_path: Path) -> Iterator[Metrics]:
    broker = BrokerProcess(tmp_path, (*SETTINGS, "ottla.metrics.listen=127.0.0.1:0")).start()
    yield Metrics(broker)
    broker.stop()


def counts(metrics: Metrics, name: str, client: str) -> None:
    """Checks that a counter grows from one push to the next."""
    before = eventually(lambda: metrics.value(name, client))
    eventually(lambda: metrics.value(name, client) > before)


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
def test_java(metrics: Metrics, need_program: Callable[[str], str]) -> None:
    command = Java(need_program).command("steps.TelemetryWorker", metrics.address, "telemetry")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdin is not None and worker.stdout is not None
            ids = dict(worker.stdout.readline().split() for _ in range(2))
            counts(metrics, "kafka_client_producer_record_send_total", ids["producer"])
            counts(metrics, "kafka_client_consumer_fetch_manager_records_consumed_total", ids["consumer"])
            assert metrics.clients() == set(ids.values())
            metrics.subscribe({"metrics": "org.apache.kafka.consumer.", "match": "client_id=java-consumer"})
            eventually(lambda: metrics.clients() == {ids["consumer"]})
            worker.stdin.write("\n")
            worker.stdin.flush()
            assert worker.wait(RUN_SECONDS) == 0
        finally:
            worker.kill()
    eventually(lambda: not metrics.clients())


def test_librdkafka(metrics: Metrics) -> None:
    assert push_by_librdkafka(metrics) == {1}
    eventually(lambda: not metrics.clients())


def push_by_librdkafka(metrics: Metrics) -> set[float]:
    """Lets a producer and a consumer push until the largest latencies of both are exported. Returns the number of connections that the
    producer has opened by then.
    """
    producer = Producer({"bootstrap.servers": metrics.address, "client.id": "c-producer"})
    consumer = Consumer({"bootstrap.servers": metrics.address, "client.id": "c-consumer", "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["telemetry"])
    latencies = {"kafka_client_producer_node_request_latency_max", "kafka_client_consumer_fetch_manager_fetch_latency_max"}

    def have_pushed() -> bool:
        producer.produce("telemetry", b"x")
        producer.flush()
        consumer.poll(0.1)
        return latencies <= metrics.series().keys()

    eventually(have_pushed)
    assert len(metrics.clients()) == 2
    opened = set(metrics.series()["kafka_client_producer_connection_creation_total"].values())
    consumer.close()
    return opened
