"""Brokers with changed disks behave as docs/cluster.md describes: an old copy of a disk is put back, or a broker lacks one of its
directories. The tests use broker processes and real directories.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from ottla.metadata_store import znodes
from ottla.storage.small_files import BOOT_FILE, META_PROPERTIES_FILE
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import ROOT, eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster, Load, read_partition
from tests.clusters.conftest import running

TOPIC = "kept"
VICTIM, FOLLOWER, THIRD = 2, 3, 1


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, zookeeper)) as started:
        yield started


@pytest.fixture
def with_two_directories(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, zookeeper)
    for broker in made.brokers.values():
        broker.settings.append("log.dirs=" + ",".join(str(broker.data / name) for name in "ab"))
    with running(made):
        yield made


def create(cluster: Cluster, replicas: list[int], min_insync: int) -> None:
    admin = cluster.admin()  # kept in a variable, because a client without references is closed
    topic = NewTopic(TOPIC, 1, replica_assignment=[replicas], config={"min.insync.replicas": str(min_insync)})
    admin.create_topics([topic])[TOPIC].result(WAIT_SECONDS)
    cluster.wait_until_healthy(TOPIC)


def write(cluster: Cluster, *numbers: int) -> None:
    """Writes records with acks=all."""
    producer = Producer({"bootstrap.servers": cluster.addresses, "acks": "all", **cluster.client})
    failed: list[object] = []
    for number in numbers:
        producer.produce(TOPIC, str(number).encode(), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(WAIT_SECONDS) == 0 and failed == []


def state(cluster: Cluster) -> tuple[int, list[int]]:
    """Returns the partition's leader and ISR in ZooKeeper."""
    with cluster.nodes() as client:
        found = json.loads(client.get(znodes.state_path(TOPIC, 0))[0])
    return found["leader"], sorted(found["isr"])


def wait_for_state(cluster: Cluster, leader: int, isr: list[int]) -> None:
    try:
        eventually(lambda: state(cluster) == (leader, isr), WAIT_SECONDS)
    except AssertionError:
        raise AssertionError(f"{state(cluster)}\n{cluster.logs()}") from None


def wait_until_noted(cluster: Cluster, broker_id: int) -> None:
    """Waits until a controller has processed the registration of the broker with its current disk."""
    text = (cluster.brokers[broker_id].data / META_PROPERTIES_FILE).read_text()
    (directory,) = (line.removeprefix("directory.id=") for line in text.splitlines() if line.startswith("directory.id="))

    def is_noted() -> bool:
        with cluster.nodes() as client:
            found = json.loads(client.get(znodes.BROKER_EPOCHS)[0])
            epoch = client.get(znodes.broker_path(broker_id))[1].czxid
        return bool(found["epochs"][str(broker_id)] == epoch and found["directories"][str(broker_id)] == [directory])

    eventually(is_noted, WAIT_SECONDS)


def take_out(cluster: Cluster, broker_id: int) -> Path:
    """Stops a broker cleanly and replaces its disk by an empty one; returns the old disk, which says that all logs were closed cleanly."""
    broker = cluster.brokers[broker_id]
    broker.stop()
    old = broker.data.with_name("old")
    broker.data.rename(old)
    return old


def put_back(cluster: Cluster, broker_id: int, old: Path) -> None:
    data = cluster.brokers[broker_id].data
    shutil.rmtree(data)
    old.rename(data)


def elect(cluster: Cluster, kind: str) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "partitions", "elect", "--election-type", kind, "--topic", TOPIC, "--partition", "0"]
    subprocess.run([*command, "--yes", "-b", cluster.addresses], check=True, capture_output=True, cwd=ROOT)


def test_what_is_on_an_old_disk_comes_back_when_its_broker_is_elected_before_the_others_start(cluster: Cluster) -> None:
    create(cluster, [VICTIM, FOLLOWER], min_insync=1)
    write(cluster, 0)
    cluster.brokers[FOLLOWER].stop()
    wait_for_state(cluster, VICTIM, [VICTIM])
    write(cluster, 1, 2)
    old = take_out(cluster, VICTIM)
    for number in (VICTIM, FOLLOWER):
        cluster.brokers[number].start()
    wait_for_state(cluster, -1, [])
    wait_until_noted(cluster, FOLLOWER)
    assert state(cluster) == (-1, []), "neither the empty disk nor the replica that was left behind leads by itself"
    for number in (VICTIM, FOLLOWER):
        cluster.brokers[number].stop()
    put_back(cluster, VICTIM, old)
    cluster.brokers[VICTIM].start()
    wait_until_noted(cluster, VICTIM)
    assert state(cluster) == (-1, []), "it is not elected by itself: another replica may hold something"
    elect(cluster, "unclean")
    wait_for_state(cluster, VICTIM, [VICTIM])
    cluster.brokers[FOLLOWER].start()
    wait_for_state(cluster, VICTIM, [VICTIM, FOLLOWER])
    assert read_partition(cluster, TOPIC, 0) == {0: 0, 1: 1, 2: 2}
    assert [line for broker in cluster.brokers.values() for line in broker.log_text().splitlines() if '"level": "error"' in line] == []


def test_an_old_disk_that_is_put_back_later_leads_nothing_although_it_was_closed_cleanly(cluster: Cluster) -> None:
    create(cluster, [VICTIM, FOLLOWER, THIRD], min_insync=2)
    write(cluster, 0)
    old = take_out(cluster, VICTIM)
    cluster.brokers[VICTIM].start()
    cluster.wait_until_healthy(TOPIC)
    elect(cluster, "preferred")
    wait_for_state(cluster, VICTIM, [THIRD, VICTIM, FOLLOWER])
    write(cluster, 1, 2)
    for number in (FOLLOWER, THIRD):
        cluster.brokers[number].stop()
    wait_for_state(cluster, VICTIM, [VICTIM])
    cluster.brokers[VICTIM].stop()
    put_back(cluster, VICTIM, old)
    cluster.brokers[VICTIM].start()
    wait_until_noted(cluster, VICTIM)
    assert state(cluster)[0] == -1
    for number in (FOLLOWER, THIRD):
        cluster.brokers[number].start()
    cluster.wait_until_healthy(TOPIC)
    assert state(cluster)[0] in (FOLLOWER, THIRD)
    assert read_partition(cluster, TOPIC, 0) == {0: 0, 1: 1, 2: 2}


@pytest.fixture
def renewing(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, zookeeper, log_flush_offset_checkpoint_interval_ms=300)) as started:
        yield started


def renewals(cluster: Cluster, broker_id: int) -> int:
    """Returns how often the broker has renewed the generation of its directory."""
    with cluster.nodes() as client:
        path = znodes.renewals_path(broker_id)
        found = znodes.read_renewals(client.get(path)[0]) if client.exists(path) else {}
    return sum(renewal.number for renewal in found.values())


def test_a_copy_of_a_running_brokers_disk_that_is_put_back_after_a_kill_leads_nothing(renewing: Cluster) -> None:
    cluster, broker = renewing, renewing.brokers[VICTIM]
    create(cluster, [VICTIM, FOLLOWER, THIRD], min_insync=2)
    write(cluster, 0)
    eventually(lambda: renewals(cluster, VICTIM) > 0, WAIT_SECONDS)
    copy = broker.data.with_name("copy")
    eventually(lambda: subprocess.run(["cp", "-r", broker.data, copy], check=False, capture_output=True).returncode == 0, WAIT_SECONDS)
    copied = renewals(cluster, VICTIM)
    eventually(lambda: renewals(cluster, VICTIM) > copied + 1, WAIT_SECONDS)
    write(cluster, 1, 2)
    cluster.kill()
    put_back(cluster, VICTIM, copy)
    for number in (VICTIM, FOLLOWER, THIRD):
        cluster.brokers[number].start()
    cluster.wait_until_healthy(TOPIC)
    assert f"broker {VICTIM} has an older copy of its log directory" in "".join(each.log_text() for each in cluster.brokers.values())
    assert read_partition(cluster, TOPIC, 0) == {0: 0, 1: 1, 2: 2}


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.night)])
def test_a_broker_that_lacks_one_of_its_directories_after_a_power_failure_of_all_loses_nothing(
    with_two_directories: Cluster, is_first: bool
) -> None:
    """The broker's other directory proves that the existing registration is its own, so it registers immediately, and no record is lost."""
    cluster = with_two_directories
    cluster.create_topic(TOPIC)
    cluster.wait_until_healthy(TOPIC)
    with Load(cluster, TOPIC) as load:
        load.flows()
        victim = cluster.leader_of(TOPIC)
        cluster.kill()
        (log,) = cluster.brokers[victim].data.glob(f"?/{TOPIC}-0")
        shutil.rmtree(log.parent)
        for mark in (found for broker in cluster.brokers.values() for found in broker.data.glob(f"?/{BOOT_FILE}")):
            mark.write_text("another boot\n")
        order = sorted(cluster.brokers, key=lambda number: (number == victim) is not is_first)
        for number in order:
            cluster.brokers[number].start()
        load.flows()
        cluster.wait_until_healthy(TOPIC)
    assert load.verdict() == ""
