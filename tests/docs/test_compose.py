"""Environments that were written for images of Kafka start this broker, and a mistake in one is reported in one line."""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.client.blocking.cluster import Cluster
from tests.docs.pages import DOCS, ROOT, blocks_of

COMPOSE = [block.text for block in blocks_of(DOCS / "configuration.md") if block.language == "yaml"]
IMAGES = ("apache", "confluent", "bitnami")
SECONDS_MAX = 300


class Started(NamedTuple):
    """What a broker said."""

    ready: str
    log: str


def environment_of(compose: str) -> dict[str, str]:
    return {name: value.strip("'") for name, value in re.findall(r"^ {6}([A-Z_]+): (.+)$", compose, re.MULTILINE)}


def on_this_machine(values: dict[str, str], directory: Path) -> dict[str, str]:
    """The same for a machine that has no host `broker`, whose ports may be taken and whose folders are not a container's."""
    ports: dict[str, str] = {}

    def port(found: re.Match[str]) -> str:
        return ":" + ports.setdefault(found[1], str(free_port()))

    moved = {name: re.sub(r":(\d{4,5})\b", port, value).replace("//broker:", "//localhost:") for name, value in values.items()}
    return {**moved, "KAFKA_LOG_DIRS": str(directory / "data")}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def started(directory: Path, values: dict[str, str], *options: str) -> Iterator[Started]:
    """`ottla start` with this environment and nothing of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "OTTLA_", "CLUSTER_ID"))}
    command = [sys.executable, "-m", "ottla.cli.main", "start", "--log-format", "text", *options]
    log = directory / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command, cwd=directory, env={**kept, **values, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], SECONDS_MAX)[0], "the broker said nothing"
            ready = process.stdout.readline()
            yield Started(ready, log.read_text())
        finally:
            process.terminate()
            process.wait(SECONDS_MAX)
            process.stdout.close()


@pytest.mark.parametrize("image", IMAGES)
def test_a_compose_file_for_an_image_of_kafka_starts_us(image: str, tmp_path: Path) -> None:
    written = environment_of(COMPOSE[IMAGES.index(image)])
    values = on_this_machine(written, tmp_path)
    with started(tmp_path, values) as broker:
        assert broker.ready.startswith("READY "), broker.log
        listeners = re.findall(r"(\w+)://[\w.]*:(\d+)", values.get("KAFKA_LISTENERS", values.get("KAFKA_CFG_LISTENERS", "")))
        opened = [port for name, port in listeners if name != "CONTROLLER"]
        for port in opened:
            # Each listener has its own advertised address.
            cluster = Cluster(f"127.0.0.1:{port}", client_id="compose", timeout_s=10)
            cluster.refresh([])
            node = written.get("KAFKA_NODE_ID", written.get("KAFKA_CFG_NODE_ID", ""))
            assert list(cluster.metadata.brokers) == [int(node)]
            assert [str(known.port) for known in cluster.metadata.brokers.values()] == [port]
            assert cluster.metadata.cluster_id == written.get("CLUSTER_ID", written.get("KAFKA_KRAFT_CLUSTER_ID"))
            cluster.close()
        closed = [port for name, port in listeners if name == "CONTROLLER"]
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(closed[0])), timeout=1)
    assert "unknown setting" not in broker.log
    assert "process.roles is known to Kafka and has no effect here" in broker.log


def test_settings_that_are_not_understood_are_reported_and_do_not_stop_the_start(tmp_path: Path) -> None:
    values = {
        "KAFKA_NUM_PARTITONS": "3", "KAFKA_NUM_NETWORK_THREADS": "3", "KAFKA_CLIENT_USERS": "bob", "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_JMX_PORT": "9101", "KAFKA_BOOTSTRAP_SERVERS": "elsewhere:9092",
    }  # fmt: skip
    with started(tmp_path, values, "--port", "0") as broker:
        assert broker.ready.startswith("READY ")
    lines = [line.split(": ", 1)[1] for line in broker.log.splitlines() if "environment: " in line]
    assert sorted(lines) == [
        "environment: KAFKA_HEAP_OPTS, KAFKA_JMX_PORT are for a JVM or an image's scripts and have no effect here",
        "environment: client.users is not served by this version: access is NOT restricted by it",
        "environment: num.network.threads is known to Kafka and has no effect here",
        "environment: unknown setting num.partitons; did you mean num.partitions?",
    ]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"KAFKA_NUM_PARTITIONS": "x"}, "error: Invalid value x for configuration num.partitions: Not a number of type INT (environment)"),
        ({"KAFKA_LISTENERS": "PLAINTEXT:9092"}, "error: Invalid value PLAINTEXT:9092 for configuration listeners: Expected NAME://host:port"),
        ({"KAFKA_ZOOKEEPER_CONNECT": "zk:2181"}, "error: broker.id: with zookeeper.connect each broker needs a number of its own"),
        ({"KAFKA_SUPER_USERS": "User:admin"}, "error: super.users: there is no authorizer, so everyone may do everything; set "),
        ({"KAFKA_LISTENERS": "PLAINTEXT://nowhere.invalid:9092"}, "error: cannot listen on nowhere.invalid:9092: "),
    ],
)  # fmt: skip
def test_a_bad_value_stops_the_start_with_one_line(tmp_path: Path, values: dict[str, str], line: str) -> None:
    with started(tmp_path, values) as broker:
        pass
    said = [text for text in (tmp_path / "log").read_text().splitlines() if " INFO " not in text]
    assert broker.ready == ""
    assert len(said) == 1 and said[0].startswith(line), said


def test_two_brokers_cannot_have_one_port_or_one_directory(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with started(tmp_path / "one", {}, "--port", "0", "--data-dir", str(tmp_path / "data")) as first:
        port = first.ready.split()[1].rpartition(":")[2]
        with started(tmp_path / "two", {}, "--port", port, "--data-dir", str(tmp_path / "other")):
            pass
        assert (tmp_path / "two" / "log").read_text().splitlines()[-1].startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
        with started(tmp_path / "two", {}, "--port", "0", "--data-dir", str(tmp_path / "data")):
            pass
        assert "is in use by another process, usually a broker; stop it first" in (tmp_path / "two" / "log").read_text().splitlines()[-1]
    assert first.ready.startswith("READY ")
