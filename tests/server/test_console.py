"""The console of a broker: the listener that it uses, and the login that it asks for."""

from __future__ import annotations

import json
import re
import time
from urllib.request import urlopen

import pytest

from ottla.client.blocking.cluster import Cluster
from ottla.schemas.registry import header
from ottla.testing.broker import Broker
from tests.console.world import write
from tests.schemas.running_registry import running_registry

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


def test_the_console_of_a_broker_has_the_registry_of_a_setting() -> None:
    with running_registry() as registry:
        registry.schemas[1] = {"schema": '"string"'}
        settings = {"ottla.console.listen": "127.0.0.1:0", "ottla.console.registry": registry.url.replace("//", "//me:p%40w@")}
        with Broker(topics=["framed:1"], settings=settings) as broker:
            with Cluster(broker.bootstrap_server) as cluster:
                write(cluster, "framed", header(1) + b"\x04hi")
            url = line_of(broker, r"console at (http://127[0-9.]+:[0-9]+)")
            (record,) = json.load(urlopen(f"{url}/topics/framed/messages.json?from=earliest", timeout=WAIT_SECONDS))["records"]
            assert (record["value"], record["schema"]) == ('"hi"', "by schema 1")
            assert "p%40w" not in broker.log


@pytest.mark.parametrize(("listen", "reason"), [("0.0.0.0:0", "0.0.0.0 can be reached from other machines, so users have to log in")])
def test_a_console_that_cannot_be_had_is_one_line(listen: str, reason: str) -> None:
    with Broker(settings={"ottla.console.listen": listen}) as broker:
        assert reason in line_of(broker, r"no console: (.*)")
        assert broker.topics() == []
