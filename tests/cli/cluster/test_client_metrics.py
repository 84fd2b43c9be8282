"""`ottla client-metrics`: subscriptions from the first to the last, and what a client has pushed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.clients.broker_process import eventually

GROUP = "client-metrics"


def test_a_subscription(ottla: Ottla) -> None:
    wanted = ("--interval-ms", "5000", "--metric", "org.a.,org.b.", "--match", "client_id=a.*", "--match", "client_software_name=b")
    assert ottla(GROUP, "alter", "mine", *wanted) == (0, "Altered subscription mine.\n", "")
    described = ottla(GROUP, "describe", "mine", "-o", "json").json()["subscriptions"]
    assert described == [
        {
            "subscription": "mine", "interval_ms": 5000, "metrics": ["org.a.", "org.b."],
            "match": ["client_id=a.*", "client_software_name=b"],
        }
    ]  # fmt: skip
    assert described[0] in ottla(GROUP, "describe", "-o", "json").json()["subscriptions"]
    assert {"subscription": "mine"} in ottla(GROUP, "list", "-o", "json").json()["subscriptions"]
    ottla(GROUP, "alter", "mine", "--interval-ms", "", "--match", "")
    assert ottla(GROUP, "describe", "mine", "-o", "json").json()["subscriptions"][0] == {
        "subscription": "mine", "interval_ms": 300_000, "metrics": ["org.a.", "org.b."], "match": [],
    }  # fmt: skip
    assert ottla(GROUP, "delete", "mine").code == 2, "it asks first"
    assert ottla(GROUP, "delete", "mine", "--yes").out == "Deleted subscription mine.\n"
    for verb in (("describe",), ("delete", "--yes")):
        refused = ottla(GROUP, verb[0], "mine", *verb[1:])
        assert refused.code == 1 and "there is no subscription mine" in refused.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("alter", "x"), 2, "give --interval-ms, --metric or --match"),
        (("alter", "x", "--interval-ms", "1"), 1, "interval must be between 100 and 3600000"),
        (("alter", "x", "--match", "foo=1"), 1, "Illegal client matching pattern: foo=1"),
        (("show",), 1, "exposes no metrics"),
        (("show", "--from", "nowhere"), 2, "is not HOST:PORT"),
    ],
)
def test_refusals(ottla: Ottla, words: tuple[str, ...], code: int, said: str) -> None:
    refused = ottla(GROUP, *words)
    assert refused.code == code and said in refused.err and refused.err.count("\n") == 1


@pytest.fixture
def address() -> Iterator[str]:
    """The address of the metrics of a broker to which a client pushes."""
    with Broker(settings={"ottla.metrics.listen": "127.0.0.1:0"}) as broker:
        found = eventually(lambda: re.search(r"metrics and health on http://(\S+:\d+)", broker.log))
        producer = Producer({"bootstrap.servers": broker.direct_server, "client.id": "etl-1"})
        yield f"{broker.direct_server} {found[1]}"
        del producer


def test_pushed_metrics(offline: Ottla, address: str) -> None:
    server, metrics = address.split()
    assert offline(GROUP, "alter", "all", "--metric", "*", "--interval-ms", "100", "-b", server).code == 0

    def show(*words: str) -> list[dict[str, object]]:
        (rows,) = offline(GROUP, "show", *words, "--from", metrics, "-o", "json").json().values()
        return list(rows)

    (client,) = eventually(show)
    assert client["client_id"] == "etl-1" and client["software"] == "confluent-kafka-python" and client["address"] == "127.0.0.1"
    assert client["broker"] == metrics and client["series"] == len(show("etl-1")) > 5
    by_id = show(str(client["instance_id"]), "--metric", "producer_connection_creation_total")
    assert [(row["metric"], row["labels"]) for row in by_id] == [("kafka_client_producer_connection_creation_total", {})]
    assert by_id[0]["value"] == 1 and by_id[0]["instance_id"] == client["instance_id"]
    assert "etl-1" in offline(GROUP, "show", "--from", metrics).out
    missing = offline(GROUP, "show", "other", "--from", metrics)
    assert missing.code == 1 and "client other pushes no metrics" in missing.err
