"""The console of a broker: the listener that it uses, and the login that it asks for."""

from __future__ import annotations

import re
import time
from urllib.request import urlopen

import pytest

from ottla.testing.broker import Broker

WAIT_SECONDS = 60.0


def line_of(broker: Broker, pattern: str) -> str:
    """Waits for a line of the broker's log that matches `pattern`, and returns the text of the pattern's group."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := re.search(pattern, broker.log)) is None:
        assert time.monotonic() < deadline, broker.log
        time.sleep(0.05)
    return found.group(1)


def test_users_of_a_broker_with_logins_log_in_to_its_console() -> None:
    with Broker(settings={"ottla.console.listen": "127.0.0.1:0"}, users={"alice": "secret"}) as broker:
        answer = urlopen(line_of(broker, r"console at (http://127[0-9.]+:[0-9]+)"), timeout=WAIT_SECONDS)
        assert "Log in to the cluster" in answer.read().decode()


@pytest.mark.parametrize(("listen", "reason"), [("0.0.0.0:0", "0.0.0.0 can be reached from other machines, so users have to log in")])
def test_a_console_that_cannot_be_had_is_one_line(listen: str, reason: str) -> None:
    with Broker(settings={"ottla.console.listen": listen}) as broker:
        assert reason in line_of(broker, r"no console: (.*)")
        assert broker.topics() == []
