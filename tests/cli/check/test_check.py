"""`ottla check eos`: our broker passes all checks, and each check fails on a broker that breaks its promise."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from ottla.cli.check.eos import promises, world
from ottla.cli.check.eos.checks import CHECKS
from ottla.cli.check.eos.proxy import Proxy
from ottla.client.addresses import parse_addresses
from ottla.testing.broker import Broker
from tests.cli.check import faulty_brokers
from tests.cli.conftest import Ottla

NAMES = [check.name for check in CHECKS]


@pytest.fixture(scope="module")
def quick() -> Iterator[Broker]:
    """A broker that checks for timed-out transactions more often than by default."""
    with Broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}) as broker:
        yield broker


def test_our_broker_keeps_every_promise(offline: Ottla, quick: Broker) -> None:
    result = offline("check", "eos", "--bootstrap", quick.get_bootstrap_server(), "-o", "json")
    found = result.json()
    assert [(row["check"], row["verdict"]) for row in found["checks"]] == [(name, "pass") for name in NAMES]
    assert found["passed"] is True
    assert result.code == 0
    assert all(row["detail"] for row in found["checks"])
    topics = offline("topic", "list", "-b", quick.get_bootstrap_server(), "-o", "json").json()
    assert "ottla-check-eos" not in json.dumps(topics)


@pytest.mark.parametrize(
    ("check", "lie", "words"),
    [
        ("aborted-hidden", faulty_brokers.ReadsUncommitted, "got kept-0a, kept-0b, aborted-0a"),
        ("aborted-hidden", faulty_brokers.CommitsAborts, "got kept-0a, kept-0b, aborted-0a"),
        ("open-holds-back", faulty_brokers.ReadsUncommitted, "got before, inside, behind"),
        ("zombie-fenced", faulty_brokers.AnswersFencedWithSuccess, "could commit"),
        ("offsets", faulty_brokers.CommitsAborts, "after the abort, offset 5 was returned instead of 1"),
        ("offsets", faulty_brokers.CallsAllOffsetsStable, "1 was returned as a stable offset"),
        ("timeout", faulty_brokers.IgnoresTimeout, "did not get 'behind'"),
        ("atomicity", faulty_brokers.CommitsAborts, "records of aborted transactions could be read"),
        ("late-end", faulty_brokers.IgnoresEpochOfEnd, "it ended the next transaction"),
        ("retry", faulty_brokers.AcceptsDuplicates, "instead of 0-0, 0-1"),
    ],
)
def test_a_broken_promise_is_found(
    offline: Ottla, quick: Broker, monkeypatch: pytest.MonkeyPatch, check: str, lie: type[faulty_brokers.Lie], words: str
) -> None:
    monkeypatch.setattr(world, "READ_SECONDS", 1.5)
    monkeypatch.setattr(promises, "LOOK_SECONDS", 0)
    monkeypatch.setattr(promises, "PATIENCE_SECONDS", 0.5)
    with Proxy(parse_addresses(quick.get_bootstrap_server()), lie()) as proxy:
        result = offline("check", "eos", "-b", proxy.address, "--only", check, "-o", "json")
    found = result.json()
    (row,) = found["checks"]
    assert (row["check"], row["verdict"]) == (check, "fail")
    assert words in row["detail"]
    assert found["passed"] is False
    assert result.code == 1


def test_what_a_broker_does_not_offer_is_no_failure(offline: Ottla, quick: Broker) -> None:
    with Proxy(parse_addresses(quick.get_bootstrap_server()), faulty_brokers.HasNoFeatures()) as proxy:
        result = offline("check", "eos", "-b", proxy.address, "--only", "late-end", "--only", "aborted-hidden")
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[1][:2] == ["aborted-hidden", "pass"]
    assert rows[2][:3] == ["late-end", "not", "supported"]
    assert result.code == 0


def test_topics_that_cannot_be_created_break_no_promise(offline: Ottla, quick: Broker) -> None:
    """As on a cluster of three while one of its brokers is down: its default asks for three replicas."""
    arguments = ("check", "eos", "-b", quick.get_bootstrap_server(), "--only", "retry", "--replication-factor")
    result = offline(*arguments, "3", "-o", "json")
    found = result.json()
    (row,) = found["checks"]
    assert row["verdict"] == "unclear" and "INVALID_REPLICATION_FACTOR" in row["detail"]
    assert row["detail"].endswith("; choose another one by --replication-factor")
    assert (found["passed"], result.code) == (False, 1)
    assert offline(*arguments, "1", "-o", "json").json()["passed"]


def test_a_broker_that_is_away_is_one_line(offline: Ottla) -> None:
    result = offline("check", "eos", "-b", "127.0.0.1:1")
    assert result.code == 3
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert "cannot reach 127.0.0.1:1" in result.err


def test_without_the_stock_client_the_error_names_what_to_install(offline: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    result = offline("check", "eos", "-b", "127.0.0.1:1")
    assert result.code == 2
    assert result.err == "error: these checks are made by a stock client: pip install confluent-kafka\n"


def test_the_list_names_the_promises(offline: Ottla) -> None:
    lines = offline("check", "eos", "--list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == NAMES
    assert offline("check", "eos", "--only", "nothing").code == 2
