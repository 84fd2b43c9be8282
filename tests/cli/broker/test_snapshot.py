"""Snapshots of a serving broker, and brokers on what was restored."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

SECONDS_MAX = 60.0


def happens(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS_MAX
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_true


@contextmanager
def writing(broker: Broker) -> Iterator[int]:
    """Records are written all the time; gives the number of those acknowledged before, and sees that more are acknowledged after."""
    is_over = threading.Event()
    written = [0]
    thread = threading.Thread(target=write, args=(broker.direct_server, is_over, written))
    thread.start()
    try:
        assert happens(lambda: written[0] > 100)
        before = written[0]
        yield before
        assert happens(lambda: written[0] > before + 10), "the broker goes on"
    finally:
        is_over.set()
        thread.join()


def test_a_snapshot_of_a_serving_broker_has_every_acknowledged_record(offline: Ottla, tmp_path: Path) -> None:
    """Records are written all the time: of those acknowledged before, each is there, and there is no gap before the last."""
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("orders", 2)
        with writing(broker) as before:
            result = offline("snapshot", tmp_path / "copy", "--data-dir", broker.data_dir, "-o", "json")
            assert result.code == 0, result
        assert result.json()["paused_ms"] > 0
        files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
        assert len(files) > 5 and [path for path in files if path.stat().st_mode & 0o077] == [], "as the broker's own"
    restored = offline("restore", tmp_path / "copy", "--data-dir", tmp_path / "restored")
    assert (restored.code, restored.err) == (0, "")
    assert re.fullmatch(rf"Restored [\d,]+ bytes to {tmp_path}/restored\.\n", restored.out)
    with Broker(data_dir=tmp_path / "restored") as broker:
        numbers = sorted(int(record.value or b"") for record in broker.records("orders"))
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= before
        broker.add_record("orders", "goes on")


def test_a_snapshot_of_a_serving_broker_with_two_directories(offline: Ottla, tmp_path: Path) -> None:
    """What it has of both directories is of one moment: record n+1 is acknowledged after record n, and lies in the other one."""
    with Broker(settings={"log.dirs": named_in(tmp_path / "config", tmp_path / "one", tmp_path / "two")}) as broker:
        broker.create_topic("orders", 2)
        assert [len(list(tmp_path.glob(f"{name}/orders-?"))) for name in ("one", "two")] == [1, 1]
        with writing(broker) as before:
            assert offline("snapshot", tmp_path / "copy", "--config", tmp_path / "config").code == 0
    directories = named_in(tmp_path / "other", tmp_path / "three", tmp_path / "four")
    assert offline("restore", tmp_path / "copy", "--config", tmp_path / "other").code == 0
    with Broker(settings={"log.dirs": directories}) as broker:
        numbers = sorted(int(record.value or b"") for record in broker.records("orders"))
        assert numbers == list(range(len(numbers))) and len(numbers) >= before
        broker.add_record("orders", "goes on")


def test_a_snapshot_that_would_lack_a_directory_is_refused(offline: Ottla, tmp_path: Path) -> None:
    """The broker knows its directories from its command line, and the snapshot is given one of them."""
    with Broker(settings={"log.dirs": f"{tmp_path}/one,{tmp_path}/two"}) as broker:
        broker.create_topic("orders", 2)
        running = offline("snapshot", tmp_path / "copy", "--data-dir", tmp_path / "one")
    stopped = offline("snapshot", tmp_path / "copy", "--data-dir", tmp_path / "one")
    for result in (running, stopped):
        assert (result.code, result.out) == (1, "")
        assert f"the broker's log directory {tmp_path}/two is not named; name all of them by log.dirs of --config" in result.err
    assert not (tmp_path / "copy").exists()


def test_a_snapshot_that_lacks_a_directory_is_not_restored(offline: Ottla, tmp_path: Path) -> None:
    directories = named_in(tmp_path / "config", tmp_path / "one", tmp_path / "two")
    with Broker(settings={"log.dirs": directories}) as broker:
        broker.create_topic("orders", 2)
    assert offline("snapshot", tmp_path / "copy", "--config", tmp_path / "config").code == 0
    (tmp_path / "copy" / "1").rename(tmp_path / "elsewhere")
    named_in(tmp_path / "config", tmp_path / "three", tmp_path / "four")
    for _ in ("a folder is missing", "it is another directory's"):
        result = offline("restore", tmp_path / "copy", "--config", tmp_path / "config")
        assert (result.code, f"{tmp_path}/copy/1 is not the copy of {tmp_path}/two" in result.err) == (1, True), result
        shutil.copytree(tmp_path / "copy" / "0", tmp_path / "copy" / "1", dirs_exist_ok=True)
    assert not (tmp_path / "three").exists() and not (tmp_path / "four").exists()


def named_in(config: Path, *directories: Path) -> str:
    """The value of log.dirs, which is written to a configuration file, too."""
    value = ",".join(map(str, directories))
    config.write_text(f"log.dirs={value}\n")
    return value


def write(address: str, is_over: threading.Event, written: list[int]) -> None:
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.blocking.producer import Producer

    with Cluster(address) as cluster, Producer(cluster) as producer:
        while not is_over.is_set():
            producer.produce("orders", str(written[0]).encode(), partition=written[0] % 2)
            producer.flush()
            written[0] += 1


def test_a_stopped_broker_with_several_directories(offline: Ottla, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    directories = [tmp_path / "one", tmp_path / "two"]
    settings = {"log.dirs": named_in(config, *directories)}
    with Broker(settings=settings) as broker:
        broker.create_topic("orders", 4)
        for number in range(4):
            broker.add_record("orders", str(number), partition=number)
    done = offline("snapshot", tmp_path / "copy", "--config", config)
    assert (done.code, "the broker was not running" in done.out) == (0, True)
    for path in directories:
        assert any(found.name.startswith("orders-") for found in path.iterdir())
        assert offline("restore", tmp_path / "copy", "--config", config).code == 1, "not empty"
        subprocess.run(["rm", "-r", str(path)], check=True)
    assert offline("restore", tmp_path / "copy", "--data-dir", tmp_path / "one").code == 1, "two directories in one"
    assert offline("restore", tmp_path / "copy", "--config", config).code == 0
    with Broker(settings=settings) as broker:
        assert sorted(record.value or b"" for record in broker.records("orders")) == [b"0", b"1", b"2", b"3"]


def test_what_is_refused(offline: Ottla, broker: Broker, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    for target, place, message in (
        (taken, broker.data_dir, "exists already"),
        (tmp_path / "new", tmp_path / "nowhere", "is not a directory"),
        (broker.data_dir / "inside", broker.data_dir, "is inside the data directory"),
        (tmp_path / "new", taken, "is empty or a cluster's"),
        (tmp_path / "no" / "such" / "place", broker.data_dir, "cannot copy"),
    ):
        result = offline("snapshot", target, "--data-dir", place)
        if "no/such" not in str(target):
            assert (result.code, message in result.err) == (1, True), result
    result = offline("restore", taken, "--data-dir", tmp_path / "new")
    assert (result.code, "is not a whole snapshot" in result.err) == (1, True)
    (taken / "snapshot.json").write_text('{"version": 99}')
    assert "of version 99" in offline("restore", taken, "--data-dir", tmp_path / "new").err
    assert broker.topics() is not None, "the broker serves"


def test_a_snapshot_that_is_killed_leaves_a_broker_that_serves(tmp_path: Path) -> None:
    """The copy waits for a reader of a fifo, so that the broker is suspended when the program is killed."""
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("orders")
        os.mkfifo(broker.data_dir / "fifo")
        command = [sys.executable, "-m", "ottla.cli.main", "snapshot", str(tmp_path / "copy"), "-d", str(broker.data_dir)]
        with subprocess.Popen(command) as program:
            assert happens(lambda: state_of(broker.process.pid) in "Tt")
            program.send_signal(signal.SIGKILL)
        assert happens(lambda: state_of(broker.process.pid) not in "Tt")
        assert broker.topics() == ["orders"]
        (broker.data_dir / "fifo").unlink()
    assert not (tmp_path / "copy").exists()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1].decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_snapshot_that_is_ended_leaves_nothing(tmp_path: Path, number: int) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        os.mkfifo(broker.data_dir / "fifo")
        command = [sys.executable, "-m", "ottla.cli.main", "snapshot", str(tmp_path / "copy"), "-d", str(broker.data_dir)]
        with subprocess.Popen(command) as program:
            assert happens(lambda: state_of(broker.process.pid) in "Tt")
            program.send_signal(number)
            assert program.wait(SECONDS_MAX) == 130
        assert happens(lambda: state_of(broker.process.pid) not in "Tt")
        (broker.data_dir / "fifo").unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_snapshot_amid_transactions_has_each_whole_or_not_at_all(offline: Ottla, tmp_path: Path) -> None:
    """A transaction writes to two topics and commits an offset. Of those that had been committed before, each is there; the topics and the
    group agree about the rest, and the next transaction goes on."""
    with Broker(data_dir=tmp_path / "data") as broker:
        for name in ("source", "left", "right"):
            broker.create_topic(name, 1)
        is_over = threading.Event()
        committed = [0]
        thread = threading.Thread(target=transact, args=(broker.direct_server, is_over, committed))
        thread.start()
        snapshots = []
        try:
            for number in range(3):
                target = committed[0] + 20
                assert happens(lambda: committed[0] >= target)  # noqa: B023
                before = committed[0]
                result = offline("snapshot", tmp_path / f"copy-{number}", "--data-dir", broker.data_dir, "-q")
                assert (result.code, result.err) == (0, "")
                snapshots.append((tmp_path / f"copy-{number}", before, committed[0] + 1))
        finally:
            is_over.set()
            thread.join()
    for number, (path, least, most) in enumerate(snapshots):
        assert offline("restore", path, "--data-dir", tmp_path / f"restored-{number}").code == 0
        with Broker(data_dir=tmp_path / f"restored-{number}") as restored:
            count = transactions_in(restored)
            assert least <= count <= most
            transact(restored.direct_server, is_over, [count])
            assert transactions_in(restored) == count + 1


def transact(address: str, is_over: threading.Event, committed: list[int]) -> None:
    """Transactions with the numbers from `committed` on; the one during which it is over is the last."""
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.blocking.producer import Producer

    with Cluster(address) as cluster, Producer(cluster, transactional_id="copier") as producer:
        while True:
            producer.begin()
            for topic in ("left", "right"):
                producer.produce(topic, str(committed[0]).encode(), partition=0)
            producer.send_offsets("copiers", {TopicPartition("source", 0): committed[0] + 1})
            producer.commit()
            committed[0] += 1
            if is_over.is_set():
                return


def transactions_in(broker: Broker) -> int:
    """How many transactions a broker has, of which both topics and the group hold each. One that was being committed is finished first."""
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.core import group_admin

    def numbers(topic: str) -> list[int]:
        return [int(record.value or b"") for record in broker.records(topic)]

    def offset() -> int:
        return group_admin.committed_offsets(cluster, "copiers")[TopicPartition("source", 0)].offset

    with Cluster(broker.direct_server) as cluster:
        happens(lambda: len(numbers("left")) == len(numbers("right")) == offset())
        assert numbers("left") == numbers("right") == list(range(offset()))
        return offset()
