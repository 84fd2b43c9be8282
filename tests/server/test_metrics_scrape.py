"""One scrape of a broker process with clients has every metric that dashboards and alert rules for Kafka use, with its labels."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.server.monitoring.metric_families import FAMILIES
from ottla.testing.broker import Broker
from tests.clients.broker_process import eventually
from tests.clients.left_open import leaves_nothing_open
from tests.server.metric_names import expected

__all__ = ["leaves_nothing_open"]


@pytest.fixture(scope="module")
def scraped() -> Iterator[set[tuple[str, frozenset[str]]]]:
    """The names and labels of one scrape, while a group has a member, a transaction is open, and clients push their metrics."""
    with Broker(topics=["orders:2"], settings={"ottla.metrics.listen": "127.0.0.1:0"}) as broker:
        with Cluster(broker.direct_server) as cluster:
            admin.alter_configs(cluster, admin.CLIENT_METRICS_RESOURCE, "all", changes={"interval.ms": "100", "metrics": "*"})
        producer = Producer({"bootstrap.servers": broker.direct_server, "transactional.id": "payments"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"x", partition=0)
        producer.commit_transaction(60)
        with closing(broker.consumer("orders", client="confluent-kafka", group_id="readers")) as consumer:
            consumer.commit(message=consumer.poll(60), asynchronous=False)
            producer.begin_transaction()
            producer.produce("orders", b"y", partition=1)
            assert producer.flush(60) == 0
            found = re.search(r"metrics and health on (http://\S+?)[\"\s]", broker.log)
            assert found is not None
            texts: list[str] = []
            eventually(lambda: texts.append(page(f"{found[1]}/metrics")) or "\nottla_client_info{" in texts[-1])
        producer.abort_transaction(60)
    yield {(sample.name, frozenset(sample.labels)) for family in text_string_to_metric_families(texts[-1]) for sample in family.samples}


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def readable(value: str | frozenset[str]) -> str:
    """Returns a name for a test case that is equal in all worker processes of a test run; the order of a set is not."""
    return value if isinstance(value, str) else ",".join(sorted(value))


@pytest.mark.parametrize(("name", "labels"), list(expected()), ids=readable)
def test_every_name_has_a_sample_with_its_labels(scraped: set[tuple[str, frozenset[str]]], name: str, labels: frozenset[str]) -> None:
    assert (name, labels) in scraped


def test_nothing_else_is_exported_but_what_is_documented(scraped: set[tuple[str, frozenset[str]]]) -> None:
    of_tls = {name for name in FAMILIES if name.startswith("ottla_tls_")}  # tests/clients/test_tls.py
    known = {name for name, _ in expected()} | {"ottla_info"} | of_tls
    own = {name for name, _ in scraped if not name.startswith("kafka_client_")}  # which clients push
    assert {re.sub(r"_(sum|count)$", "", name) if name not in known else name for name in own} <= known
    assert set(FAMILIES) <= known
