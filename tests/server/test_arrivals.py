"""Clients that arrive at an address that the listener does not advertise are logged, others are not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

import pytest

from ottla.server.arrivals import ADDRESSES_MAX, Arrivals

NAMES = {"localhost": ["127.0.0.1", "::1"], "kafka.example": ["10.0.0.5"], "two.example": ["10.0.0.5", "10.0.0.6"]}


def resolve(host: str) -> Iterable[str]:
    if host not in NAMES:
        raise OSError(-2, "Name or service not known")
    return NAMES[host]


def lines_of(caplog: pytest.LogCaptureFixture, host: str, *arrivals: tuple[str, str]) -> list[tuple[int, str]]:
    """Returns the log lines for clients that arrive (from, to) at a listener that advertises `host`."""
    caplog.set_level(logging.INFO, "ottla.network")
    door = Arrivals({"OUTSIDE": (host, 9092)}, resolve)
    for client, address in arrivals:
        door.note("OUTSIDE", address, client)
    for thread in threading.enumerate():
        if thread.name == "ottla-arrivals":
            thread.join(60)
    return [(record.levelno, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.5", "10.0.0.5"), ("kafka.example", "10.0.0.5"), ("two.example", "10.0.0.6"), ("localhost", "127.0.0.1"),
        ("kafka.example", "::ffff:10.0.0.5"), ("localhost", "::1%lo"),
    ],
)  # fmt: skip
def test_an_arrival_as_advertised_is_not_logged(caplog: pytest.LogCaptureFixture, host: str, address: str) -> None:
    assert lines_of(caplog, host, ("10.0.0.99", address)) == []


def test_a_loopback_address_advertised_to_another_machine_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    ((level, line),) = lines_of(caplog, "localhost", ("10.0.0.99", "10.0.0.5"), ("10.0.0.98", "10.0.0.5"))
    assert level == logging.WARNING
    assert line == (
        "a client at 10.0.0.99 connected to 10.0.0.5, but OUTSIDE advertises localhost:9092: clients must be able to reach that address, "
        "otherwise set advertised.listeners=OUTSIDE://10.0.0.5:9092"
    )


def test_each_address_is_mentioned_once_and_may_be_meant(caplog: pytest.LogCaptureFixture) -> None:
    found = lines_of(caplog, "kafka.example", ("127.0.0.1", "127.0.0.1"), ("10.0.0.9", "10.0.0.7"), ("10.0.0.8", "10.0.0.7"))
    assert [level for level, _ in found] == [logging.INFO, logging.INFO]
    assert sorted("connected to 127.0.0.1, but" in line for _, line in found) == [False, True]


def test_an_advertised_name_that_does_not_resolve_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ((level, line),) = lines_of(caplog, "nowhere.example", ("10.0.0.9", "10.0.0.5"))
    assert level == logging.WARNING
    assert line == "OUTSIDE advertises nowhere.example:9092, which does not resolve here: Name or service not known"


def test_the_memory_for_addresses_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    many = [("10.0.0.9", f"10.1.{number // 250}.{number % 250}") for number in range(ADDRESSES_MAX + 50)]
    assert len(lines_of(caplog, "kafka.example", *many)) == ADDRESSES_MAX


def test_what_to_set_names_every_listener(caplog: pytest.LogCaptureFixture) -> None:
    """The setting replaces the whole list of advertised listeners, so the suggested value must contain the other listeners unchanged."""
    caplog.set_level(logging.INFO, "ottla.network")
    door = Arrivals({"INSIDE": ("broker", 29092), "OUTSIDE": ("localhost", 9092)}, resolve)
    door.note("OUTSIDE", "::ffff:10.0.0.5", "10.0.0.9")
    for thread in threading.enumerate():
        if thread.name == "ottla-arrivals":
            thread.join(60)
    (record,) = caplog.records
    assert record.getMessage().endswith("otherwise set advertised.listeners=INSIDE://broker:29092,OUTSIDE://10.0.0.5:9092")
