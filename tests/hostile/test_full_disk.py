"""On a full disk (I44) the log directory goes offline and no record is acknowledged, other directories are served, and the directory
recovers when there is space again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.records import Record, encode_batch
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import World
from tests.clients.wire_client import In, WireClient
from tests.hostile.damage import log_lines, numbers_of, read
from tests.hostile.small_disk import SmallDisk

RECORD_BYTES = 500_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "small", tmp_path / "is-full")
    yield made
    made.close()


@pytest.fixture
def broker(tmp_path: Path, disk: SmallDisk, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """Returns a broker with its only directory on the small disk, or with an ordinary directory besides; the test starts it."""
    process = BrokerProcess(tmp_path, SETTINGS)
    if request.param == "one":
        process.data = disk.directory
    else:
        process.settings.append(f"log.dirs={tmp_path / 'roomy'},{disk.directory}")
    yield process
    if process.is_running:
        process.stop()


def topic_of_one_partition(world: World) -> str:
    name = world.fresh("topic")
    request: Any = world.make_topic(7, name)
    request.topics[0].num_partitions = 1
    assert world.client.ask(request, 7).topics[0].error_code == 0
    return name


def send(world: World, topic: str, number: int) -> ErrorCode:
    record = Record(0, int(time.time() * 1000), None, b"%d-%s" % (number, os.urandom(RECORD_BYTES)))
    answer = world.client.ask(world.produce(In(9), topic, bytes(encode_batch([record]))), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def send_until_full(world: World, topic: str, first: int) -> list[int]:
    """Sends numbers until one is refused; returns the acknowledged ones."""
    acknowledged: list[int] = []
    while (code := send(world, topic, first + len(acknowledged))) is ErrorCode.NONE:
        acknowledged.append(first + len(acknowledged))
        assert len(acknowledged) < 200, "the disk does not get full"
    assert code is ErrorCode.KAFKA_STORAGE_ERROR
    return acknowledged


@pytest.mark.parametrize("broker", ["one"], indirect=True)
def test_the_only_directory_goes_offline_and_comes_back(broker: BrokerProcess, disk: SmallDisk) -> None:
    disk.start(broker)
    with WireClient(broker.port) as client:
        world = World(client)
        acknowledged = [number for number in range(5) if send(world, world.topic, number) is ErrorCode.NONE]
        disk.fill()
        acknowledged += send_until_full(world, world.topic, 5)
        assert send(world, world.topic, 1000) is ErrorCode.KAFKA_STORAGE_ERROR
        assert read(client, world.topic)[1] == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(client.ask(world.request(3, 12), 12).topics[0].partitions) == 2
        assert [str(disk.directory) in line for line in log_lines(broker) if "goes offline" in line] == [True]
        disk.clear()
        eventually(lambda: send(world, world.topic, 2000) is ErrorCode.NONE, 20, 0.2)
        values, error = read(client, world.topic)
        assert error == 0 and numbers_of(values) == [*acknowledged, 2000]
        eventually(lambda: client.ask(world.offset_commit(In(8)), 8).topics[0].partitions[0].error_code == 0)


@pytest.mark.parametrize("broker", ["two"], indirect=True)
def test_another_directory_serves_on(broker: BrokerProcess, disk: SmallDisk) -> None:
    disk.start(broker)
    with WireClient(broker.port) as client:
        world = World(client)
        topics = [topic_of_one_partition(world) for _ in range(4)]
        small = [topic for topic in topics if (disk.directory / f"{topic}-0").is_dir()]
        roomy = [topic for topic in topics if topic not in small]
        assert small and roomy
        assert send(world, small[0], 0) is ErrorCode.NONE
        disk.fill()
        if disk.is_real:
            acknowledged = [0, *send_until_full(world, small[0], 1)]
            assert send(world, roomy[0], 1) is ErrorCode.NONE
            assert numbers_of(read(client, roomy[0])[0]) == [1]
        else:
            acknowledged = [0]
            assert send(world, small[0], 1) is ErrorCode.KAFKA_STORAGE_ERROR
        disk.clear()
        eventually(lambda: send(world, small[0], 2000) is ErrorCode.NONE, 20, 0.2)
        assert numbers_of(read(client, small[0])[0]) == [*acknowledged, 2000]
