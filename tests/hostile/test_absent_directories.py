"""A broker with two log directories refuses to start, with one line, if one of them is missing or if both contain the same log (P11)."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.records import Record, encode_batch
from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import World
from tests.clients.wire_client import In, WireClient
from tests.hostile.damage import read, refused

TOPICS = ("one", "two")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Returns a stopped broker with two directories; each has the only partition of a topic with one record."""
    process = BrokerProcess(tmp_path, [*SETTINGS, f"log.dirs={tmp_path}/a,{tmp_path}/b"]).start()
    with WireClient(process.port) as client:
        world = World(client)
        topics = [CreatableTopic(name=topic, num_partitions=1, replication_factor=1) for topic in TOPICS]
        client.ask(CreateTopicsRequest(topics=topics), 7)
        for topic in TOPICS:
            produce(world, topic)
    process.stop()
    assert [len(held_in(tmp_path / name)) for name in "ab"] == [1, 1]
    yield process
    if process.is_running:
        process.stop()


def held_in(directory: Path) -> list[Path]:
    return [directory / f"{topic}-0" for topic in TOPICS if (directory / f"{topic}-0").is_dir()]


def produce(world: World, topic: str) -> None:
    batch = bytes(encode_batch([Record(0, 1, None, topic.encode())]))
    answer = world.client.ask(world.produce(In(9), topic, batch), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def check_all(broker: BrokerProcess) -> None:
    with WireClient(broker.port) as client:
        assert [read(client, topic) for topic in TOPICS] == [([topic.encode()], 0) for topic in TOPICS]


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_directory_that_is_not_mounted_stops_the_start(broker: BrokerProcess, tmp_path: Path, name: str) -> None:
    (tmp_path / name).rename(tmp_path / "unmounted")
    for _ in range(2):
        (line,) = refused(broker)
        assert str(tmp_path / name) in line and ("mount it" in line or "restore the file" in line)
    shutil.rmtree(tmp_path / name)
    (tmp_path / "unmounted").rename(tmp_path / name)
    broker.start()
    check_all(broker)


def test_log_dirs_that_lacks_a_directory_stops_the_start(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.settings[-1] = f"log.dirs={tmp_path}/a"
    (line,) = refused(broker)
    assert f"the log directory {tmp_path}/b (directory.id=" in line
    assert line.endswith(f"to start without its logs, remove {tmp_path}/a/ottla-directories")
    (tmp_path / "a" / "ottla-directories").unlink()
    broker.start()


def test_a_directory_may_be_mounted_elsewhere_and_others_may_be_added(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "b").rename(tmp_path / "moved")
    broker.settings[-1] = f"log.dirs={tmp_path}/a,{tmp_path}/new,{tmp_path}/moved"
    broker.start()
    check_all(broker)
    broker.restart()
    check_all(broker)


def test_a_log_in_two_directories_stops_the_start(broker: BrokerProcess, tmp_path: Path) -> None:
    (held,) = held_in(tmp_path / "b")
    shutil.copytree(held, tmp_path / "a" / held.name)
    (line,) = refused(broker)
    assert f"the log of {held.name} is in {tmp_path}/a/{held.name} and in {tmp_path}/b/{held.name}; compare them" in line
    shutil.rmtree(tmp_path / "a" / held.name)
    broker.start()
    check_all(broker)


def test_a_start_that_was_refused_leaves_no_trace_of_a_new_directory(broker: BrokerProcess, tmp_path: Path) -> None:
    before = broker.settings[-1]
    broker.settings[-1] = f"{before},{tmp_path}/c"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker.port = taken.getsockname()[1]
        (line,) = refused(broker)
        assert "in use" in line
    broker.settings[-1] = before
    broker.start()
    check_all(broker)
