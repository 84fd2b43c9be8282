"""Clients that a process keeps, and errors of the cluster as one line that names an option."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.client import Client, ConnectError, TopicPartition
from ottla.spark import connections
from ottla.spark.connections import FIRST_TRIES, ask, client_of, explained, forget, reported
from ottla.spark.errors import OptionError, PipelineError
from ottla.spark.options import ClusterConnection
from ottla.testing.broker import Broker
from ottla.wire.messages.metadata import MetadataRequest


@pytest.fixture
def connection(broker: Broker) -> Iterator[ClusterConnection]:
    """A connection through the proxy, which can inject faults."""
    made = ClusterConnection(bootstrap=broker.bootstrap_server, timeout_s=5.0)
    yield made
    forget(made)


def test_a_client_is_kept_until_it_is_forgotten(connection: ClusterConnection) -> None:
    first = client_of(connection)
    assert client_of(connection) is first
    forget(connection)
    assert client_of(connection) is not first


def test_a_question_is_asked_again_on_a_new_connection(broker: Broker, connection: ClusterConnection) -> None:
    question = MetadataRequest(topics=[])  # sent directly, because `refresh` would repeat the request itself
    assert ask(connection, "subscribe", lambda client: client.cluster.ask_any(question).brokers)
    assert broker.drop_connections() > 0
    assert ask(connection, "subscribe", lambda client: client.cluster.ask_any(question).brokers)


def test_a_question_is_asked_again_while_connections_break(connection: ClusterConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PAUSE_S_MAX", 0.02)
    tries = []

    def fail(client: Client) -> int:
        tries.append(client)
        if len(tries) < 2 * FIRST_TRIES:
            raise ConnectError("the connection broke")
        return len(tries)

    assert ask(connection, "subscribe", fail) == 2 * FIRST_TRIES


def test_a_cluster_that_was_reached_is_asked_again_after_a_reported_error(
    connection: ClusterConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PAUSE_S_MAX", 0.02)
    client_of(connection)
    forget(connection)  # like after an outage that was longer than the request timeout
    tries, opens = [], connections.connect

    def refuse(bootstrap: str, *rest: Any, **named: Any) -> Client:
        tries.append(bootstrap)
        if len(tries) < 2 * FIRST_TRIES:
            raise ConnectError("connection refused")
        return opens(bootstrap, *rest, **named)

    monkeypatch.setattr(connections, "connect", refuse)
    assert ask(connection, "subscribe", lambda client: client.cluster_id)
    assert len(tries) == 2 * FIRST_TRIES


def test_a_question_is_given_up_when_its_time_is_over(connection: ClusterConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    client, tries = client_of(connection), []
    short = ClusterConnection(bootstrap=connection.bootstrap, timeout_s=0.2)
    monkeypatch.setattr(connections, "client_of", lambda _connection, **_: client)

    def fail(client: Client) -> None:
        tries.append(client)
        raise ConnectError("the connection broke")

    with pytest.raises(PipelineError, match=r"kafka.bootstrap.servers=.*: the connection broke"):
        ask(short, "subscribe", fail)
    assert len(tries) > 1


def test_a_cluster_that_was_never_reached_gets_a_few_quick_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def refuse(bootstrap: str, *_: object, **__: object) -> Client:
        tries.append(bootstrap)
        raise ConnectError("connection refused")

    monkeypatch.setattr(connections, "connect", refuse)
    with pytest.raises(PipelineError, match=r"kafka.bootstrap.servers=nowhere:1: connection refused"):
        ask(ClusterConnection(bootstrap="nowhere:1"), "subscribe", lambda client: client.cluster_id)
    assert tries == ["nowhere:1"] * FIRST_TRIES


@pytest.mark.parametrize(
    ("api", "code", "question", "message"),
    [
        ("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", lambda client: client.list_offsets({TopicPartition("explained", 0): -1}),
         "subscribe: TOPIC_AUTHORIZATION_FAILED: .*explained-0"),
        ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", lambda client: client.committed("g", [TopicPartition("explained", 0)]),
         "group: GROUP_AUTHORIZATION_FAILED"),
    ],
)  # fmt: skip
def test_refusals_name_the_option(
    broker: Broker, connection: ClusterConnection, api: str, code: str, question: Callable[[Client], object], message: str
) -> None:
    if "explained" not in broker.topics():
        broker.create_topic("explained")
    broker.fail_next(api, code)
    with pytest.raises(PipelineError, match=message) as caught:
        ask(connection, "subscribe", question)
    assert "\n" not in str(caught.value)


def test_a_broker_that_is_not_there() -> None:
    nowhere = ClusterConnection(bootstrap="localhost:1")
    with pytest.raises(PipelineError, match=r"kafka.bootstrap.servers=localhost:1: cannot reach localhost:1"), explained(nowhere, "topic"):
        client_of(nowhere)


def test_settings_that_make_no_sense(broker: Broker) -> None:
    given = ClusterConnection(bootstrap=broker.direct_server, security=(("security.protocol", "TLS"),))
    with pytest.raises(OptionError, match=r"kafka.security.protocol, .*: security.protocol=TLS is none of PLAINTEXT"):
        client_of(given)
    with pytest.raises(OptionError, match=r"kafka.bootstrap.servers"):
        client_of(ClusterConnection(bootstrap="localhost:x"))


WORKER = """
import os
from ottla.spark.connections import reported
from ottla.spark.errors import PipelineError
try:
    with reported():
        raise PipelineError("planted")
except PipelineError:
    print(os.environ.get("SPARK_HIDE_TRACEBACK"))
"""


def test_only_sparks_workers_hide_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(PipelineError), reported():
        raise PipelineError("planted")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
    as_worker = "import sys, types; sys.modules['__main__'].__spec__ = types.SimpleNamespace(name='pyspark.daemon')" + WORKER
    for program, shown in ((WORKER, "None"), (as_worker, "1")):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == shown
