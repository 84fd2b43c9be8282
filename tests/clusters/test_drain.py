"""`ottla partitions drain` and `rebalance` on four brokers: a producer goes on, a killed command is repeated."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster, Load
from tests.clusters.conftest import running

BROKERS = (1, 2, 3, 4)
EMPTIED = 4


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("drain"), zookeeper, size=len(BROKERS))) as made:
        yield made


def command(cluster: Cluster, *words: str) -> list[str]:
    addresses = ",".join(broker.address for broker in cluster.brokers.values() if broker.is_running)
    return [sys.executable, "-m", "ottla", "partitions", *words, "-b", addresses, "-o", "json"]


def run(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    """Returns the rows of a command that must succeed."""
    done = subprocess.run(command(cluster, *words), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["partitions"]
    assert [row for row in rows if row["error"]] == []
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
    topics = cluster.admin().list_topics(timeout=WAIT_SECONDS).topics
    for name in topics:
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        found += answer.result(WAIT_SECONDS).values()
    names = [f"{side}.replication.throttled.{kind}" for side in ("leader", "follower") for kind in ("rate", "replicas")]
    return [entry.value for entry in found if entry.name in names and not entry.is_default]


def test_a_broker_is_emptied_and_filled_again_while_a_producer_goes_on(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        shown = run(cluster, "drain", "--broker", str(EMPTIED))
        assert held(cluster)[EMPTIED] == len(shown) > 0  # nothing has moved

        # Slow enough that the command is killed before its moves have ended; the same command goes on.
        load.flows(500)
        drain = ("drain", "--broker", str(EMPTIED), "--execute", "--yes")
        slow = command(cluster, *drain, "--throttle", "1000")
        first = subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert first.stderr is not None and "the moves go on" in first.stderr.readline()
        first.send_signal(signal.SIGKILL)
        first.wait()
        first.stderr.close()
        assert throttles(cluster)
        assert run(cluster, *drain, "--throttle", "100000000") == []  # waits for what still moves, and removes the throttles
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


def cordon(cluster: Cluster, broker: int, value: str) -> None:
    entry = ConfigEntry("cordoned.log.dirs", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    admin = cluster.admin()
    (answer,) = admin.incremental_alter_configs([resource]).values()
    answer.result(WAIT_SECONDS)


def cordoned_brokers(cluster: Cluster) -> set[int]:
    """Returns the brokers with a cordoned directory, as `ottla logdirs` shows them."""
    addresses = ",".join(broker.address for broker in cluster.brokers.values())
    line = [sys.executable, "-m", "ottla", "logdirs", "-b", addresses, "-o", "json"]
    shown = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    return {broker["broker"] for broker in shown["brokers"] if any(directory["cordoned"] for directory in broker["log_dirs"])}


def test_a_cordoned_broker_gets_no_new_replicas(cluster: Cluster, topic: str) -> None:
    """Not of new topics and not by a plan, whichever broker is the controller. A replica that is assigned to it is placed."""
    cluster.wait_until_healthy(topic)
    run(cluster, "drain", "--broker", str(EMPTIED), "--execute", "--yes")
    cordon(cluster, EMPTIED, "*")
    try:
        eventually(lambda: cordoned_brokers(cluster) == {EMPTIED}, WAIT_SECONDS)
        cluster.create_topic(f"{topic}-eight", partitions=8)
        run(cluster, "rebalance", "--execute", "--yes")
        assert held(cluster)[EMPTIED] == 0
        with pytest.raises(KafkaException, match="because only 3 broker"):
            cluster.create_topic(f"{topic}-four", replicas=4)
        admin = cluster.admin()
        (answer,) = admin.create_topics([NewTopic(f"{topic}-given", 1, replica_assignment=[[EMPTIED]])]).values()
        answer.result(WAIT_SECONDS)
        assert held(cluster)[EMPTIED] == 1
    finally:
        cordon(cluster, EMPTIED, "")
    eventually(lambda: not cordoned_brokers(cluster), WAIT_SECONDS)
    run(cluster, "rebalance", "--execute", "--yes")
    assert held(cluster)[EMPTIED] > 1


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
    with contextlib.suppress(KafkaException):  # made by an earlier case
        cluster.create_topic("refused", partitions=4)
    done = subprocess.run(command(cluster, *words), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == code and text in done.stderr and done.stderr.count("\n") == 1
