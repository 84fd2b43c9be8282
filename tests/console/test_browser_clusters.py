"""The console in Chromium against a cluster of three brokers with TLS, SASL and ACLs, and against Apache Kafka.

In `make night` only: three walks over all pages take most of a minute of processor time. In every run `test_browser.py` walks over the
pages of one broker, and `test_cluster_pages.py` and `test_access_pages.py` ask for pages of a cluster and of users without a browser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.client import Client
from ottla.client.blocking.producer import Producer
from ottla.client.errors import FencedError
from ottla.console import pages
from ottla.console.visit import PAGES
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.apache_kafka import running_kafka
from tests.clients.certificates import Authority
from tests.clients.java_program import Java
from tests.clusters.secured import PASSWORDS, SCRAM, secured_cluster
from tests.console.test_app import QUERIES
from tests.console.window import Window, console_process
from tools.site.browser import Browser

pytestmark = pytest.mark.night
PLACES = {"topic": "orders", "broker": "1"}


@pytest.fixture(scope="module")
def browser(need_program: Callable[[str], str]) -> Iterator[Browser]:
    need_program("chromium")
    with Browser() as browser:
        yield browser


def walk(window: Window) -> dict[str, str]:
    """Opens every page. Returns the text of each by its path. A page must be sound, or one sentence that says what there is not."""
    pages.load()
    found = {}
    for page in PAGES:
        path = re.sub(r"{(\w+)}", lambda part: PLACES[part.group(1)], page.path)
        window.open(path + QUERIES.get(page.path, ""))
        assert (path, window.faults() + window.accessibility_faults()) == (path, [])
        found[page.path] = window.text()
    return found


def log_in(window: Window, user: str) -> None:
    window.open("/login")
    window.send("/login", user=user, password=PASSWORDS[user])


def test_a_secured_cluster_of_three_brokers(
    browser: Browser, zookeeper: ZooKeeperProcess, tmp_path: Path, need_program: Callable[[str], str]
) -> None:
    authority = Authority(tmp_path, need_program)
    with secured_cluster(tmp_path, zookeeper, authority) as cluster:
        security = ("security.protocol=SASL_SSL", f"ssl.ca.location={authority.ca}", f"sasl.mechanism={SCRAM}")
        options = [word for setting in security for word in ("-X", setting)]
        with console_process(cluster.addresses, *options, "--login") as url:
            window = Window(browser, url)
            log_in(window, "alice")
            assert "Log out alice" in window.text()
            window.open("/topics")
            window.send("/do/topics/create", name="orders", partitions="2", replication="3")
            window.shows("Topic orders was created with 2 partitions.")
            window.open("/topics/orders/messages")
            window.send("/do/topics/orders/produce", key="k", value="over TLS")
            window.shows("over TLS")

            texts = walk(window)
            assert "listeners" in texts["/config"] and "brokers" in texts["/zookeeper"]
            assert "in sync" in texts["/topics/{topic}"] and "bob" in texts["/users"] and "In memory" in texts["/wire"]

            window.open("/acls")
            act_as_bob_may_read(window)
            window.open(f"/cluster/plan?way=replicas&topic=orders&partition=0&replicas={rotated_replicas(window)}")
            window.send("/do/cluster/reassign", typed="reassign")
            window.shows("are being moved")

            window.open("/")
            window.shows("healthy")
            cluster.brokers[2].stop()
            window.shows("under-replicated")  # the open page renews itself
            window.open("/cluster")
            assert "fewer in sync" in window.text()
            cluster.brokers[2].start()
            cluster.wait_until_healthy("orders")
            window.send("/do/cluster/elect")  # the console looks at once after an action
            window.open("/")
            window.shows("healthy")

            window.page.follow("document.querySelector('form[action=\"/logout\"] button').click()")
            log_in(window, "bob")
            texts = walk(window)
            assert "orders" in texts["/topics"] and "users that may Alter the cluster" in texts["/wire"]
            window.open("/topics/orders/messages")
            window.send("/do/topics/orders/produce", value="not allowed")
            assert "AUTHORIZATION_FAILED" in window.text() and window.faults() == []


def act_as_bob_may_read(window: Window) -> None:
    """Gives bob the rights of a consumer by the wizard, which shows the rules first."""
    window.open("/acls/wizard?role=consumer&principal=User:bob&topic=orders&group=readers")
    (action,) = window.forms()
    window.send(action)
    assert "bob" in window.text() and window.faults() == []


def rotated_replicas(window: Window) -> str:
    """Returns other replicas for partition 0 of orders than it has: the same brokers in another order."""
    rows = window.page.evaluate("fetch('/topics/orders.json').then(answer => answer.json()).then(found => found.partitions)")
    first, *others = rows[0]["replicas"]
    return ",".join(map(str, [*others, first]))


def test_apache_kafka(browser: Browser, tmp_path: Path, need_program: Callable[[str], str]) -> None:
    with running_kafka(Java(need_program), tmp_path) as (address, kafka), console_process(address) as url:
        window = Window(browser, url)
        window.open("/topics")
        window.send("/do/topics/create", name="orders", partitions="1", cleanup="compact")
        window.shows("Topic orders was created.")
        kafka.commit("shop", {TopicPartition("orders", 0): 0})
        window.open("/topics/orders/messages")
        window.send("/do/topics/orders/produce", key="k", value='{"amount": 5}')  # the console looks at once after an action
        window.shows('{"amount": 5}')
        producer = hold(kafka)

        texts = walk(window)
        assert "only Ottla's brokers record the frames" in texts["/wire"] and "ZooKeeper is not shown" in texts["/zookeeper"]
        assert "compact" in texts["/topics"] and "holder" in texts["/transactions"] and "shop" in texts["/groups"]
        assert "Bytes and latencies are not shown" in texts["/"] and "base_offset" in texts["/topics/{topic}/log/batch"]
        assert "no member" in texts["/group"] or "no members" in texts["/group"]

        window.open("/group/reset?name=shop&scenario=to_latest")
        window.send("/do/group/reset", typed="shop")
        window.shows("The offsets of shop were reset.")
        window.open("/transaction?id=holder")
        window.send("/do/transaction/fence", typed="holder")
        window.shows("The producer of holder is fenced")
        with pytest.raises(FencedError), producer:
            producer.commit()
        window.open("/config/change?kind=topics&name=orders&setting=retention.ms&value=12345")
        window.send("/do/config/change")
        window.shows("retention.ms of topic orders is set to 12345")
        window.open("/topics/orders")
        window.send("/do/topics/orders/delete", typed="orders")
        window.shows("Topic orders was deleted.")
        assert window.faults() == []


def hold(kafka: Client) -> Producer:
    """Leaves a transaction open."""
    producer = kafka.producer(transactional_id="holder", transaction_timeout_ms=600_000)
    producer.begin()
    producer.produce("orders", b"held back", key=b"h", partition=0)
    producer.flush()
    return producer
