"""All machines of a cluster lose their power, and one starts with a new disk: the records of the other brokers are kept. The test kills the
processes and changes the boot ids in their directories. The logs are then not proved to be complete, as after a power failure without
`ottla.flush.on.ack`; but here the written bytes are kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.storage.small_files import BOOT_FILE
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import BrokerProcess
from tests.clusters.cluster import Cluster, Load
from tests.clusters.conftest import running


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, zookeeper)
    with running(made):
        yield made


def forget_boot(broker: BrokerProcess) -> None:
    mark = broker.data / BOOT_FILE
    assert mark.read_text().strip(), "a broker that serves has noted it"
    mark.write_text("another boot\n")


def start_until_registered(broker: BrokerProcess) -> None:
    """Starts a broker with a new directory until it can register: its id is in use until the session of its former process expires."""
    for _ in range(100):
        try:
            broker.start()
        except AssertionError:
            if "is in use" not in broker.log_tail(5):
                raise
        else:
            return
    raise AssertionError(f"{broker.log_tail(5)}")


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.night)])
def test_after_a_power_failure_of_all_a_new_disk_leads_nothing_that_others_hold(cluster: Cluster, is_first: bool) -> None:
    topic = "kept"
    cluster.create_topic(topic)
    cluster.wait_until_healthy(topic)
    with Load(cluster, topic) as load:
        load.flows()
        victim = cluster.leader_of(topic)
        cluster.kill()
        for number, broker in cluster.brokers.items():
            if number == victim:
                shutil.rmtree(broker.data)
            else:
                forget_boot(broker)
        others = [broker for number, broker in cluster.brokers.items() if number != victim]
        replaced = cluster.brokers[victim]
        for broker in [replaced, *others] if is_first else [*others, replaced]:
            start_until_registered(broker)
        load.flows()
        cluster.wait_until_healthy(topic)
    assert load.verdict() == ""
