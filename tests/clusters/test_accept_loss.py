"""Every replica of a partition is damaged: it stays offline until an operator accepts the loss, and loses no more than what is damaged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster, read_partition
from tests.clusters.conftest import running

RECORDS, BATCH = 600, 20


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("loss"), zookeeper)) as made:
        yield made


def write(cluster: Cluster, topic: str, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.addresses, "acks": "all", **cluster.client})
    failed: list[object] = []
    for number in range(start, end):
        value = str(number).encode()
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
        if number % BATCH == BATCH - 1:
            assert producer.flush(WAIT_SECONDS) == 0
    assert failed == []


def read(cluster: Cluster, topic: str) -> list[int]:
    found = read_partition(cluster, topic, 0)
    return [found[offset] for offset in sorted(found)]


def elect(cluster: Cluster, topic: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["partitions", "elect", "--accept-loss", "--topic", topic, "-b", cluster.addresses, *options]
    return subprocess.run([sys.executable, "-m", "ottla", *command], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def flip(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) * 6 // 10] ^= 0x10
    path.write_bytes(data)


def remove(directory: Path) -> None:
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    ("damage", "replicas"),
    [(flip, 3), (remove, 1), pytest.param(flip, 1, marks=pytest.mark.night), pytest.param(remove, 3, marks=pytest.mark.night)],
)
def test_all_replicas_are_damaged_and_the_command_elects_one_of_them(
    cluster: Cluster, damage: Callable[[Path], None], replicas: int
) -> None:
    topic = f"{damage.__name__}-{replicas}"
    cluster.create_topic(topic, 1, replicas)
    cluster.wait_until_healthy(topic)
    write(cluster, topic, 0, RECORDS)
    holders = [broker for broker in cluster.brokers.values() if (broker.data / f"{topic}-0").exists()]
    for broker in cluster.brokers.values():
        os.kill(broker.pid, signal.SIGKILL)  # before any of them notices that another one has been killed
    for broker in cluster.brokers.values():
        broker.kill()
    for broker in holders:
        damage(broker.data / f"{topic}-0")
    # A broker that starts while a dead broker is still registered may follow it, and then truncates its log at the damage immediately
    # (docs/limits.md).
    eventually(lambda: not cluster.registered(), WAIT_SECONDS)
    cluster.start()
    way_on = f"ottla partitions elect --accept-loss --topic {topic} --partition 0"
    for broker in holders:
        eventually(lambda broker=broker: way_on in broker.log_text(), WAIT_SECONDS)  # type: ignore[misc]
    eventually(lambda: "would lead" in elect(cluster, topic).stderr, WAIT_SECONDS)
    refused = elect(cluster, topic)
    assert refused.returncode == 2 and "Add --yes" in refused.stderr
    if replicas == 1:
        assert "its log is damaged or missing, and is cut at the damage" in refused.stderr
    assert cluster.metadata(topic)[0].leader == -1

    done = elect(cluster, topic, "--yes")
    assert done.returncode == 0, done
    try:
        cluster.wait_until_healthy(topic)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.logs()}") from None
    kept = read(cluster, topic)
    assert kept == list(range(len(kept)))
    assert (RECORDS // 2 <= len(kept) < RECORDS) if damage is flip else kept == []
    lines = [line for broker in cluster.brokers.values() for line in broker.log_text().splitlines() if f"{topic}-0" in line]
    assert any("offset" in line and ("cut everything from" in line or "begins again without them" in line) for line in lines), lines
    write(cluster, topic, RECORDS, RECORDS + BATCH)
    assert read(cluster, topic) == [*kept, *range(RECORDS, RECORDS + BATCH)]
    again = elect(cluster, topic)
    assert again.returncode == 0 and "has a leader" in again.stderr
