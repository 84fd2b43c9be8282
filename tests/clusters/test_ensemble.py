"""A cluster under load on three ZooKeeper servers: their leader is killed; then their majority is lost, so that only one read-only server
is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.testing.zookeeper_process import ZooKeeperEnsemble, ZooKeeperProcess
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster, Load
from tests.clusters.conftest import running
from tests.clusters.test_refusals import NO_CONNECTION, refusal

SESSION_TIMEOUT_MS = 90_000
"""Longer than any election and than the tests: a registration that is gone is a fault, and nothing goes on because one has ended."""
WAIT_MS = 500
"""How long a start waits for a server that takes writes."""
REASON = "it must be running, have a quorum of its servers, and take writes"


@pytest.fixture(scope="module")
def ensemble(need_zookeeper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"), jvm_options=["-Dreadonlymode.enabled=true"]) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(ensemble: ZooKeeperEnsemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), ensemble, zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS)
    with running(made):
        yield made


def leader_of(ensemble: ZooKeeperEnsemble) -> ZooKeeperProcess:
    eventually(ensemble.leader, WAIT_SECONDS)
    found = ensemble.leader()
    assert found is not None
    return found


def times_connected(cluster: Cluster) -> dict[int, int]:
    return {number: broker.log_text().count("connected to ZooKeeper") for number, broker in cluster.brokers.items()}


def files_of(broker: BrokerProcess) -> dict[str, bytes]:
    """Returns the contents of the broker's data directory, without the lock file with its process id."""
    return {path.name: path.read_bytes() for path in broker.data.glob("*") if path.is_file() and path.name != ".lock"}


def test_the_ensembles_leader_is_killed(cluster: Cluster, ensemble: ZooKeeperEnsemble, topic: str) -> None:
    """All brokers lose their connections while the remaining servers elect a leader. No broker loses its session, and records are produced
    all the time.
    """
    epochs, connected = cluster.epochs(), times_connected(cluster)
    with Load(cluster, topic) as load:
        victim = leader_of(ensemble)
        victim.kill()
        load.flows()
        eventually(lambda: all(count > connected[number] for number, count in times_connected(cluster).items()), WAIT_SECONDS)
        cluster.create_topic(f"{topic}-after")
        cluster.wait_until_healthy(f"{topic}-after")
        assert leader_of(ensemble) is not victim and cluster.epochs() == epochs
        victim.start()
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""
    assert cluster.epochs() == epochs, "every broker has kept its registration"


def test_without_a_majority_brokers_serve_on_and_none_can_start(
    cluster: Cluster, ensemble: ZooKeeperEnsemble, topic: str, make_broker: Callable[..., BrokerProcess]
) -> None:
    """The last server answers only reads. Registered brokers still acknowledge records. A new broker and a restarted one refuse to start
    and change nothing. The killed broker was the controller; it is replaced when ZooKeeper accepts writes again, not when its session
    timeout has passed.
    """
    epochs, victim = cluster.epochs(), cluster.controller()
    with Load(cluster, topic) as load:
        last, *others = ensemble.servers
        for server in others:
            server.kill()
        eventually(lambda: last.ask("isro") == "ro", WAIT_SECONDS)
        load.flows(300)
        settings = {"zookeeper_connect": ensemble.connect + cluster.chroot, "zookeeper_connection_timeout_ms": WAIT_MS}
        newcomer = make_broker("new", broker_id=4, **settings)
        said = f"error: no session with ZooKeeper at {ensemble.connect} within {WAIT_MS} ms: {REASON}"
        assert refusal(newcomer, NO_CONNECTION) == said
        assert "meta.properties" not in files_of(newcomer), "the directory has no owner yet"
        killed = cluster.brokers[victim]
        killed.kill()
        files = files_of(killed)
        killed.settings.append(f"zookeeper.connection.timeout.ms={WAIT_MS}")
        assert refusal(killed, NO_CONNECTION) == said
        assert files_of(killed) == files
        killed.settings.pop()
        for server in others:
            server.launch()
        for server in others:
            server.wait_until_ready()
        assert epochs[victim] == cluster.epochs()[victim], "its session lives"
        load.flows()
        killed.start()
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""
    now = cluster.epochs()
    assert all((now[number] > epochs[number]) is (number == victim) for number in (1, 2, 3)), "who ran on has kept its registration"
