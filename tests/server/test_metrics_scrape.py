"""Every name that boards and alert rules for Kafka ask for, with its labels, in one scrape of a broker process that has clients."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.server.monitoring.metric_families import FAMILIES
from ottla.testing.broker import Broker
from tests.clients.left_open import leaves_nothing_open
from tests.server.metric_names import expected

__all__ = ["leaves_nothing_open"]


@pytest.fixture(scope="module")
def scraped() -> Iterator[set[tuple[str, frozenset[str]]]]:
    """The names and labels of one scrape, while a group has a member and a transaction is open."""
    with Broker(topics=["orders:2"], settings={"ottla.metrics.listen": "127.0.0.1:0"}) as broker:
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
            with urllib.request.urlopen(f"{found[1]}/metrics", timeout=60) as answer:
                text = answer.read().decode()
        producer.abort_transaction(60)
    yield {(sample.name, frozenset(sample.labels)) for family in text_string_to_metric_families(text) for sample in family.samples}


def readable(value: str | frozenset[str]) -> str:
    """The same in every worker of a run, which the order of a set is not."""
    return value if isinstance(value, str) else ",".join(sorted(value))


@pytest.mark.parametrize(("name", "labels"), list(expected()), ids=readable)
def test_every_name_has_a_sample_with_its_labels(scraped: set[tuple[str, frozenset[str]]], name: str, labels: frozenset[str]) -> None:
    assert (name, labels) in scraped


def test_nothing_else_is_exported_but_what_is_documented(scraped: set[tuple[str, frozenset[str]]]) -> None:
    of_tls = {name for name in FAMILIES if name.startswith("ottla_tls_")}  # tests/clients/test_tls.py
    known = {name for name, _ in expected()} | {"ottla_info"} | of_tls
    assert {re.sub(r"_(sum|count)$", "", name) if name not in known else name for name, _ in scraped} <= known
    assert set(FAMILIES) <= known
