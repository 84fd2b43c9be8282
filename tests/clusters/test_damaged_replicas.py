"""Bytes are flipped, cut and removed in the files of running brokers. The damaged replica finds the damage, another replica becomes leader,
and the damaged one is repaired. A consumer that checks CRCs gets all records and no wrong ones (P11, docs/damage.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster
from tests.clusters.conftest import running

LEADER, SECOND, THIRD = 1, 2, 3
SEGMENT_BYTES = 20_000


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"ottla.scrub.interval.ms": 500, "replica.fetch.backoff.ms": 500, "auto.leader.rebalance.enable": "false"}
    with running(Cluster(tmp_path_factory.mktemp("damaged"), zookeeper, **settings)) as started:
        yield started


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic led by `LEADER`, with some sealed segments."""
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start()
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-100:]
    admin = cluster.admin()
    config = {"internal.segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1000", "file.delete.delay.ms": "0"}
    topic = NewTopic(name, 1, replica_assignment=[[LEADER, SECOND, THIRD]], config=config)
    admin.create_topics([topic])[name].result(WAIT_SECONDS)
    cluster.wait_until_healthy(name)
    write(cluster, name, 0, 1000)
    return name


def write(cluster: Cluster, topic: str, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.addresses, "acks": "all", "linger.ms": 0, "batch.num.messages": 10, **cluster.client})
    failed: list[object] = []
    for number in range(start, end):
        value = b"%d " % number + b"x" * 90
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(WAIT_SECONDS) == 0 and failed == []


def read(cluster: Cluster, topic: str, end: int) -> list[int]:
    """Reads the numbers of all records with a consumer that checks CRCs and continues after temporary errors."""
    settings = {"group.id": "damage", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer({"bootstrap.servers": cluster.addresses, **settings, **cluster.client})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(found) < end and (not found or found[-1] < end - 1):
        assert time.monotonic() < deadline, f"{len(found)} of {end} records\n{cluster.logs()}"
        message = consumer.poll(1)
        if message is None or (message.error() is not None and message.error().code() == KafkaError._TRANSPORT):
            continue
        assert message.error() is None, message.error()
        found.append(int(message.value().split()[0]))
    consumer.close()
    return found


def segments(cluster: Cluster, broker_id: int, topic: str) -> list[Path]:
    return sorted((cluster.brokers[broker_id].data / f"{topic}-0").glob("*.log"))


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def contents(cluster: Cluster, broker_id: int, topic: str) -> bytes:
    return b"".join(path.read_bytes() for path in segments(cluster, broker_id, topic))


def wait_until_whole(cluster: Cluster, victim: int, topic: str) -> None:
    """Waits until the damaged broker has logged that it found and repaired the damage, and its log equals the logs of the others, byte for
    byte.
    """
    broker = cluster.brokers[victim]
    eventually(lambda: f"{topic}-0 is damaged at" in broker.log_text(), WAIT_SECONDS)
    others = [number for number in cluster.brokers if number != victim and cluster.brokers[number].is_running]

    def is_whole() -> bool:
        is_repaired = f"{topic}-0: repaired" in broker.log_text()
        return is_repaired and all(contents(cluster, victim, topic) == contents(cluster, other, topic) for other in others)

    try:
        eventually(is_whole, WAIT_SECONDS)
    except AssertionError:
        raise AssertionError(cluster.logs()) from None
    cluster.wait_until_healthy(topic)


def in_the_records(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def in_the_first_length(path: Path) -> None:
    flip(path, 9)


def cut_off(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def removed(path: Path) -> None:
    for found in path.parent.glob(f"{path.stem}.*"):
        found.unlink()


def misdirected(path: Path) -> None:
    path.write_bytes(sorted(path.parent.glob("*.log"))[0].read_bytes()[: path.stat().st_size])


@pytest.mark.parametrize("damage", [in_the_records, in_the_first_length, cut_off, removed, misdirected])
@pytest.mark.parametrize("victim", [LEADER, SECOND])
def test_a_sealed_segment_is_repaired_and_a_damaged_leader_leads_no_more(
    cluster: Cluster, topic: str, victim: int, damage: Callable[[Path], None]
) -> None:
    damage(segments(cluster, victim, topic)[2])
    wait_until_whole(cluster, victim, topic)
    assert (cluster.leader_of(topic) == LEADER) is (victim != LEADER)
    write(cluster, topic, 1000, 1100)
    assert read(cluster, topic, 1100) == list(range(1100))


def test_damage_in_the_leaders_active_segment_is_found_by_a_follower_that_comes_to_it(cluster: Cluster, topic: str) -> None:
    cluster.brokers[THIRD].stop()
    write(cluster, topic, 1000, 1050)
    active = segments(cluster, LEADER, topic)[-1]
    flip(active, active.stat().st_size - 200)
    cluster.brokers[THIRD].start()
    wait_until_whole(cluster, LEADER, topic)
    assert cluster.leader_of(topic) in (SECOND, THIRD)
    assert read(cluster, topic, 1050) == list(range(1050))


@pytest.mark.parametrize("victim", [LEADER, SECOND])
def test_damage_in_an_active_segment_without_readers_is_found_by_the_scrub(cluster: Cluster, topic: str, victim: int) -> None:
    write(cluster, topic, 1000, 1050)
    in_the_records(segments(cluster, victim, topic)[-1])
    wait_until_whole(cluster, victim, topic)
    write(cluster, topic, 1050, 1100)
    assert read(cluster, topic, 1100) == list(range(1100))


def test_a_sealed_segment_that_is_gone_at_the_start_is_fetched_again(cluster: Cluster, topic: str) -> None:
    broker = cluster.brokers[SECOND]
    broker.stop()
    removed(segments(cluster, SECOND, topic)[2])
    broker.start()
    wait_until_whole(cluster, SECOND, topic)
    assert read(cluster, topic, 1000) == list(range(1000))


def test_two_replicas_that_are_damaged_at_different_places_repair_each_other(cluster: Cluster, topic: str) -> None:
    in_the_records(segments(cluster, LEADER, topic)[1])
    in_the_records(segments(cluster, SECOND, topic)[3])
    for victim in (LEADER, SECOND):
        wait_until_whole(cluster, victim, topic)
    assert read(cluster, topic, 1000) == list(range(1000))
