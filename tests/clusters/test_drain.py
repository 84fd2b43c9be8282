"""`ottla partitions drain` and `rebalance` on four brokers work while a producer writes, after a killed command, and for a dead broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster, Load
from tests.clusters.conftest import running

BROKERS = (1, 2, 3, 4)
EMPTIED = 4


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("drain"), zookeeper, size=len(BROKERS))) as made:
        made.create_topic("kept", partitions=4)
        yield made


@pytest.fixture(autouse=True)
def all_run(cluster: Cluster) -> None:
    """Starts brokers that a failed test has stopped."""
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start()


def command(cluster: Cluster, *words: str) -> list[str]:
    addresses = ",".join(broker.address for broker in cluster.brokers.values() if broker.is_running)
    return [sys.executable, "-m", "ottla", "partitions", *words, "-b", addresses, "-o", "json"]


def run(cluster: Cluster, *words: str, refused: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Returns the rows of a command that must succeed, except for the partitions of the topics `refused`."""
    try:
        done = subprocess.run(
            command(cluster, *words), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=WAIT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{error.stderr!r}\n{cluster.logs()}") from None
    assert done.returncode == (1 if refused else 0), done.stderr
    rows = json.loads(done.stdout)["partitions"]
    assert [row["topic"] for row in rows if row["error"]] == list(refused)
    return list(rows)


def replicas(cluster: Cluster) -> list[list[int]]:
    topics = cluster.admin().list_topics(timeout=WAIT_SECONDS).topics.values()
    return [list(partition.replicas) for topic in topics for partition in topic.partitions.values()]


def held(cluster: Cluster) -> Counter[int]:
    return Counter(broker for each in replicas(cluster) for broker in each)


def throttles(cluster: Cluster) -> list[str]:
    found, admin = [], cluster.admin()
    for number in cluster.brokers:
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(number))]).values()
        found += answer.result(WAIT_SECONDS).values()
    names = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    return [entry.value for entry in found if entry.name in names and not entry.is_default]


def test_a_broker_is_emptied_and_filled_again_while_a_producer_goes_on(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        shown = run(cluster, "drain", "--broker", str(EMPTIED))
        assert held(cluster)[EMPTIED] == len(shown) > 0  # no replica has moved

        # The throttle makes the moves slow enough that the command is killed before their end. The same command then continues them.
        load.flows(500)
        drain = ("drain", "--broker", str(EMPTIED), "--execute", "--yes")
        slow = command(cluster, *drain, "--throttle", "1000")
        first = subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert first.stderr is not None and "the moves go on" in first.stderr.readline()
        first.send_signal(signal.SIGKILL)
        first.wait()
        first.stderr.close()
        assert throttles(cluster)
        assert run(cluster, *drain, "--throttle", "100000000") == []
        assert held(cluster)[EMPTIED] == 0 and throttles(cluster) == []
        load.flows()

        run(cluster, "rebalance", "--execute", "--yes")
        counts = held(cluster)
        assert max(counts[broker] for broker in BROKERS) - min(counts[broker] for broker in BROKERS) <= 1
        leaders = Counter(each[0] for each in replicas(cluster))
        assert max(leaders[broker] for broker in BROKERS) - min(leaders[broker] for broker in BROKERS) <= 1
        assert run(cluster, "rebalance", "--execute", "--yes") == []
        load.flows()
    assert load.verdict() == ""


def test_bytes_are_evened_where_replicas_are_even(cluster: Cluster, topic: str) -> None:
    """Two large partitions on one broker: one of them is exchanged for an empty one."""
    name = f"{topic}-large"
    new = NewTopic(name, num_partitions=8, replica_assignment=[[1], [1], [2], [2], [3], [3], [4], [4]])
    admin = cluster.admin()
    admin.create_topics([new])[name].result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": ",".join(broker.address for broker in cluster.brokers.values())})
    for partition in (0, 1) * 24:
        producer.produce(name, bytes(900_000), partition=partition)
    assert producer.flush(WAIT_SECONDS) == 0
    words = command(cluster, "rebalance", "--topic", name)
    shown = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=WAIT_SECONDS)
    assert shown.returncode == 0 and len(json.loads(shown.stdout)["partitions"]) == 2 and "bytes by broker: 1: " in shown.stderr, shown
    run(cluster, "rebalance", "--topic", name, "--execute", "--yes")
    partitions = admin.list_topics(name, timeout=WAIT_SECONDS).topics[name].partitions
    assert sorted(each.replicas[0] for each in partitions.values()) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert partitions[0].replicas != partitions[1].replicas
    admin.delete_topics([name])[name].result(WAIT_SECONDS)  # other tests stop the only broker with a partition of it


def test_a_dead_broker_is_emptied(cluster: Cluster, topic: str) -> None:
    """The replicas of a dead broker are created again on the others, unless it has the only replica."""
    single = f"{topic}-single"
    admin = cluster.admin()
    admin.create_topics([NewTopic(single, 1, replica_assignment=[[EMPTIED]])])[single].result(WAIT_SECONDS)
    cluster.create_topic(f"{topic}-pairs", replicas=2)
    cluster.wait_until_healthy(f"{topic}-pairs")
    run(cluster, "rebalance", "--topic", f"{topic}-pairs", "--execute", "--yes")
    assert held(cluster)[EMPTIED] > 1
    cluster.brokers[EMPTIED].kill()
    eventually(lambda: EMPTIED not in cluster.registered(), WAIT_SECONDS)
    drain = ("drain", "--broker", str(EMPTIED), "--execute", "--yes")
    errors = {row["topic"]: row["error"] for row in run(cluster, *drain, refused=[single])}
    assert errors[single] == "LEADER_NOT_AVAILABLE"
    assert held(cluster)[EMPTIED] == 1
    cluster.brokers[EMPTIED].start()
    assert cluster.leader_of(single) == EMPTIED
    assert [row["topic"] for row in run(cluster, *drain)] == [single]
    assert held(cluster)[EMPTIED] == 0


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("drain", "--broker", "1,2"), 1, "too many for 2 other brokers"),
        (("drain", "--broker", "x"), 2, "--broker is a broker id"),
        (("drain", "--broker", "1", "--to", "9"), 2, "no broker 9 is alive; there are 1, 2, 3, 4"),
        (("drain", "--broker", "1", "--execute"), 2, "Add --yes to skip this question"),
        (("rebalance", "--topic", "absent"), 1, "absent"),
        (("rebalance", "--throttle", "0"), 2, "--throttle is a number of bytes a second"),
    ],
)
def test_refusals_are_one_line(cluster: Cluster, words: tuple[str, ...], code: int, text: str) -> None:
    done = subprocess.run(command(cluster, *words), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == code and text in done.stderr and done.stderr.count("\n") == 1
