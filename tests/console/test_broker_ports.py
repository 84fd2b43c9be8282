"""Metrics and logs of brokers: of one that was named, of each that exports them, and of those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ottla.analysis.metrics_text import MetricsRefused, metrics_address, scrape
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.console.broker_ports import BrokerPorts, kept_texts
from ottla.server.cores.metrics import merge
from ottla.testing.broker import Broker
from ottla.testing.zookeeper_process import free_port
from tests.clients.broker_process import eventually
from tests.console.world import Visitor, console_of, write


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["orders:1"], settings={"ottla.metrics.listen": f"127.0.0.1:{free_port()}"}) as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_server) as cluster:
        yield cluster


@pytest.fixture
def visitor(broker: Broker) -> Iterator[Visitor]:
    with console_of(broker.bootstrap_server) as visitor:
        yield visitor


def end_transactions(cluster: Cluster) -> None:
    """Commits two transactions, and aborts one."""
    with Producer(cluster, transactional_id="ends") as producer:
        for ends in (producer.commit, producer.commit, producer.abort):
            producer.begin()
            producer.produce("orders", b"v", partition=0)
            producer.flush()
            ends()


def test_rates_of_a_broker(visitor: Visitor, cluster: Cluster) -> None:
    visitor.get("/brokers")
    write(cluster, "orders", *(b"x" * 1000 for _ in range(20)))
    end_transactions(cluster)
    desk = visitor.console.desk
    assert desk is not None
    desk.snapshot.renew()
    (row,) = visitor.json("/brokers.json")["brokers"]
    assert row["bytes_in"] not in (None, "0 B/s") and row["bytes_out"] is not None
    found = visitor.json("/brokers/0/requests.json")
    assert found["version_of_ottla"] and found["expired_sessions_of_zookeeper"] == 0
    assert "Produce" in [one["request"] for one in found["requests"]]
    ends = visitor.json("/transactions.json")
    assert float(ends["committed_in_a_second"]) > float(ends["aborted_in_a_second"]) > 0
    overview = visitor.json("/overview.json")
    assert overview["version_of_ottla"] == found["version_of_ottla"] and "up_for" in overview


def test_ended_transactions_are_counted(cluster: Cluster) -> None:
    address = metrics_address(cluster)

    def counts() -> list[int]:
        lines = [line.split() for line in scrape(address).splitlines() if line.startswith("ottla_transactions_")]
        return [int(value) for _, value in lines]

    before = counts()
    end_transactions(cluster)
    after = eventually(lambda: found if sum(found := counts()) >= sum(before) + 3 else None)
    assert [now - was for now, was in zip(after, before, strict=True)] == [2, 1]


def test_the_log_of_a_broker(visitor: Visitor, broker: Broker, cluster: Cluster) -> None:
    visitor.get("/brokers")
    lines = [one["line"] for one in visitor.json("/brokers/0/log.json")["lines"]]
    assert any("metrics and health on" in line for line in lines)
    assert scrape(metrics_address(cluster), path="/log").splitlines()[-1] == lines[0]


def test_a_broker_without_a_port_says_so() -> None:
    with Broker() as broker, console_of(broker.bootstrap_server) as visitor:
        for path in ("/brokers", "/brokers/0/requests", "/brokers/0/log"):
            assert "start it with --set ottla.metrics.listen" in visitor.get(path), path
        assert "bytes_in" not in visitor.json("/overview.json")


def test_the_log_is_for_users_that_may_describe_configs() -> None:
    settings = {"authorizer.class.name": "acl", "super.users": "User:admin", "ottla.metrics.listen": f"127.0.0.1:{free_port()}"}
    with Broker(users={"admin": "admin-secret", "guest": "guest-secret"}, settings=settings) as broker:
        properties = {"security.protocol": broker.protocol, "sasl.mechanism": broker.config()["sasl.mechanism"]}
        with console_of(broker.bootstrap_server, needs_login=True, properties=properties) as visitor:
            visitor.log_in("guest", "guest-secret")
            assert "users that may DescribeConfigs on the cluster" in visitor.get("/brokers/0/log", 403)
            visitor.log_in("admin", "admin-secret")
            assert "metrics and health on" in visitor.get("/brokers/0/log")


def test_a_port_that_is_named(broker: Broker, cluster: Cluster) -> None:
    ports = BrokerPorts(cluster, [metrics_address(cluster)])
    assert "kafka_network_requestmetrics_requests_total" in ports.read() and list(ports.exported) == [0]
    assert "metrics and health on" in ports.log(0)
    for wrong in ("nowhere", "127.0.0.1:9"):
        with pytest.raises(MetricsRefused, match=wrong):
            BrokerPorts(cluster, [wrong]).read()


def test_the_port_of_a_service_has_the_metrics_of_all_its_brokers(cluster: Cluster) -> None:
    text = scrape(metrics_address(cluster))
    first, second = kept_texts(merge([(0, text), (1, text.replace('broker_id="0"', 'broker_id="1"'))]))
    (alone,) = kept_texts(text)
    assert sorted(first.splitlines()) == sorted(alone.splitlines()) and "ottla_info{" in first
    assert sorted(second.replace('broker_id="1"', 'broker_id="0"').splitlines()) == sorted(alone.splitlines())


def test_a_broker_that_ends_keeps_its_last_counts() -> None:
    """Sums over brokers would jump otherwise."""
    with ExitStack() as stack:
        broker = Broker(settings={"ottla.metrics.listen": f"127.0.0.1:{free_port()}"}).start()
        stack.callback(broker.stop)
        ports = BrokerPorts(stack.enter_context(Cluster(broker.bootstrap_server)))
        ports._cluster.refresh([])
        text = ports.read()
        assert ports.total("bytes_in") is None, "there was no scrape before"
        ports.read()
        assert ports.total("bytes_in") == 0.0
        broker.stop()
        assert ports.read().splitlines()[-1] == text.splitlines()[-1]
        assert ports.exported == {} and ports.total("bytes_in") is None


def test_the_session_of_zookeeper_has_a_tab(visitor: Visitor) -> None:
    visitor.get("/brokers")
    assert '<a href="/brokers/0/requests">Requests, session</a>' in visitor.get("/brokers/0")
    found = visitor.json("/brokers/0/requests.json")
    assert any(name.startswith("session") for name in found), sorted(found)


def test_the_versions_of_apis_are_those_of_the_broker(visitor: Visitor, cluster: Cluster) -> None:
    rows = {row["api"]: row for row in visitor.json("/brokers/0/apis.json")["apis"]}
    link = cluster.connection(0)
    (fetch,) = (one for one in link.api_versions.api_keys if one.api_key == 1)
    assert fetch.max_version > link.version_of(1), "this client does not need the newest versions of Fetch"
    served = f"{fetch.min_version} to {fetch.max_version}"
    assert rows["Fetch"] == {"api": "Fetch", "key": 1, "served": served, "version": link.version_of(1)}
    assert rows["Vote"]["served"] == "not served" and rows["Vote"]["version"] == "none"
