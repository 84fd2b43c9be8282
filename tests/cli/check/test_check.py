"""`ottla check eos`: our broker passes whole, and each check fails where its promise is broken."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from ottla.cli.check.eos import time_out, world
from ottla.cli.check.eos.checks import CHECKS
from ottla.cli.check.eos.proxy import Proxy
from ottla.client.addresses import parse_addresses
from ottla.testing.broker import Broker
from tests.cli.check import eos_lies
from tests.cli.conftest import Ottla

NAMES = [check.name for check in CHECKS]


@pytest.fixture(scope="module")
def quick() -> Iterator[Broker]:
    """A broker that looks for forgotten transactions more often than by default."""
    with Broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}) as broker:
        yield broker


def test_our_broker_keeps_every_promise(offline: Ottla, quick: Broker) -> None:
    result = offline("check", "eos", "--bootstrap", quick.get_bootstrap_server(), "-o", "json")
    told = json.loads(result.out)
    assert [(row["check"], row["verdict"]) for row in told["checks"]] == [(name, "pass") for name in NAMES]
    assert told["passed"] is True
    assert result.code == 0
    assert all(row["detail"] for row in told["checks"])
    topics = json.loads(offline("topic", "list", "-b", quick.get_bootstrap_server(), "-o", "json").out)
    assert "ottla-check-eos" not in json.dumps(topics)


@pytest.mark.parametrize(
    ("check", "lie", "words"),
    [
        ("aborted-hidden", eos_lies.ShowsEverything, "got kept-0a, kept-0b, aborted-0a"),
        ("aborted-hidden", eos_lies.CommitsAlways, "got kept-0a, kept-0b, aborted-0a"),
        ("open-holds-back", eos_lies.ShowsEverything, "got before, inside, behind"),
        ("zombie-fenced", eos_lies.PraisesZombies, "could commit"),
        ("offsets", eos_lies.CommitsAlways, "after the abort, offset 5 was returned instead of 1"),
        ("offsets", eos_lies.CallsAllStable, "1 was returned as a stable offset"),
        ("timeout", eos_lies.WaitsForEver, "did not get 'behind'"),
        ("atomicity", eos_lies.CommitsAlways, "records of aborted transactions were read"),
        ("late-end", eos_lies.TakesLateOrders, "it ended the next transaction"),
        ("retry", eos_lies.ForgetsSequences, "instead of 0-0, 0-1"),
    ],
)
def test_a_broken_promise_is_found(
    offline: Ottla, quick: Broker, monkeypatch: pytest.MonkeyPatch, check: str, lie: type[eos_lies.Lie], words: str
) -> None:
    monkeypatch.setattr(world, "READ_SECONDS", 1.5)
    monkeypatch.setattr(time_out, "LOOK_SECONDS", 0)
    monkeypatch.setattr(time_out, "PATIENCE_SECONDS", 0.5)
    with Proxy(parse_addresses(quick.get_bootstrap_server()), lie()) as proxy:
        result = offline("check", "eos", "-b", proxy.address, "--only", check, "-o", "json")
    told = json.loads(result.out)
    (row,) = told["checks"]
    assert (row["check"], row["verdict"]) == (check, "fail")
    assert words in row["detail"]
    assert told["passed"] is False
    assert result.code == 1


def test_what_a_broker_does_not_offer_is_no_failure(offline: Ottla, quick: Broker) -> None:
    with Proxy(parse_addresses(quick.get_bootstrap_server()), eos_lies.IsOld()) as proxy:
        result = offline("check", "eos", "-b", proxy.address, "--only", "late-end", "--only", "aborted-hidden")
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[1][:2] == ["aborted-hidden", "pass"]
    assert rows[2][:3] == ["late-end", "not", "supported"]
    assert result.code == 0


def test_a_broker_that_is_away_is_one_line(offline: Ottla) -> None:
    result = offline("check", "eos", "-b", "127.0.0.1:1")
    assert result.code == 3
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert "cannot reach 127.0.0.1:1" in result.err


def test_without_the_stock_client_it_says_what_to_install(offline: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    result = offline("check", "eos", "-b", "127.0.0.1:1")
    assert result.code == 2
    assert result.err == "error: these checks are made by a stock client: pip install confluent-kafka\n"


def test_the_list_says_what_is_promised(offline: Ottla) -> None:
    lines = offline("check", "eos", "--list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == NAMES
    assert offline("check", "eos", "--only", "nothing").code == 2
