"""Which files of a snapshot are links, copies, or left out; and the state of a broker started from one."""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from ottla.adapters.lock import lock
from ottla.client.core.transaction_admin import list_transactions
from ottla.testing import sharing
from ottla.testing.broker import Broker
from ottla.testing.process import has_stopped
from ottla.testing.snapshot import copy_data
from tests.clients.left_open import leaves_nothing_open

__all__ = ["leaves_nothing_open"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "data"
    partition = source / "orders-0"
    partition.mkdir(parents=True)
    for base in (0, 100, 200):
        (partition / f"{base:020}.log").write_bytes(b"batch" * (base + 1))
        (partition / f"{base:020}.index").write_bytes(b"index")
    (partition / f"{50:020}.log.deleted").write_bytes(b"old")
    (partition / f"{0:020}.log.cleaned").write_bytes(b"half of it")
    (source / "gone-0.abc-delete").mkdir()
    store = "ottla-metadata.sqlite"
    for name in ("meta.properties", ".lock", ".compaction.lock", store, f"{store}-wal", f"{store}-shm"):
        (source / name).write_text(name)
    return source


def names_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_files_of_the_process_are_not_copied(source: Path, tmp_path: Path) -> None:
    copy = copy_data(source, tmp_path / "copy")
    top = [name for name in names_in(copy) if "/" not in name]
    assert top == ["meta.properties", "ottla-metadata.sqlite", "ottla-metadata.sqlite-wal"]
    assert sorted(os.listdir(copy)) == [*sorted(["meta.properties", "orders-0", "ottla-metadata.sqlite", "ottla-metadata.sqlite-wal"])]
    assert not any(name.endswith((".deleted", ".cleaned")) for name in names_in(copy))


def test_a_copy_is_no_more_open_than_what_it_is_of(source: Path, tmp_path: Path) -> None:
    """Records and the keys of passwords may be read by the broker's user only, whatever the umask is."""
    source.chmod(0o700)
    for path in source.rglob("*"):
        path.chmod(0o750 if path.is_dir() else 0o640)
    (source / "ottla-metadata.sqlite").chmod(0o600)
    before = os.umask(0o002)
    try:
        copy = copy_data(source, tmp_path / "some" / "copy")
    finally:
        os.umask(before)
    found = [copy, *copy.rglob("*")]
    assert len(found) > 5
    for path in found:
        assert path.stat().st_mode == (source / path.relative_to(copy)).stat().st_mode, path


def test_sealed_segments_are_links_and_the_last_one_is_not(source: Path, tmp_path: Path) -> None:
    copy = copy_data(source, tmp_path / "copy")
    names = [f"orders-0/{base:020}.log" for base in (0, 100, 200)]
    assert [os.path.samefile(source / name, copy / name) for name in names] == [True, True, False]
    assert not os.path.samefile(source / f"orders-0/{0:020}.index", copy / f"orders-0/{0:020}.index")
    assert all((source / name).read_bytes() == (copy / name).read_bytes() for name in names)


def test_appends_to_the_original_do_not_reach_the_copy(source: Path, tmp_path: Path) -> None:
    copy = copy_data(source, tmp_path / "copy")
    last = f"orders-0/{200:020}.log"
    before = (copy / last).read_bytes()
    with (source / last).open("ab") as file:
        file.write(b"later")
    assert (copy / last).read_bytes() == before


def test_without_links_and_fast_copies_there_are_plain_ones(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    copy = copy_data(source, tmp_path / "copy")
    name = f"orders-0/{0:020}.log"
    assert (copy / name).read_bytes() == (source / name).read_bytes()
    assert not os.path.samefile(source / name, copy / name)


def test_a_snapshot_is_never_written_over(source: Path, tmp_path: Path) -> None:
    copy_data(source, tmp_path / "copy")
    with pytest.raises(FileExistsError):
        copy_data(source, tmp_path / "copy")


class Writer:
    """Writes numbers to a topic, one after the other, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 20
        while self.acknowledged < count:
            assert time.monotonic() < deadline and self._thread.is_alive()
            time.sleep(0.002)

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
        while not self._is_over.is_set():
            producer.produce(self._topic, str(self.acknowledged))
            assert producer.flush(60) == 0
            self.acknowledged += 1


def transactional(broker: Broker) -> Any:
    producer = Producer({"bootstrap.servers": broker.bootstrap_server, "transactional.id": "payments"})
    producer.init_transactions(60)
    return producer


def committed_offset(broker: Broker, group: str) -> int:
    with closing(broker.consumer(client="confluent-kafka", group_id=group)) as consumer:
        (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=60)
    return int(found.offset)


def state_of_transaction(broker: Broker) -> list[str]:
    return [entry.state for entry in list_transactions(broker._client())]


def test_a_fork_continues_with_topics_groups_and_transactions_of_that_moment(tmp_path: Path) -> None:
    """Taken during writes; later changes of one broker do not show in the other."""
    with Broker(topics=["orders:1", "numbers:1"]) as broker, Writer(broker.direct_server, "numbers") as writer:
        committing = transactional(broker)
        committing.begin_transaction()
        committing.produce("orders", b"whole")
        committing.commit_transaction(60)
        with closing(broker.consumer("orders", client="confluent-kafka", group_id="readers", enable_auto_commit=False)) as consumer:
            consumer.commit(message=consumer.poll(60), asynchronous=False)
        committing.begin_transaction()
        committing.produce("orders", b"open")
        assert committing.flush(60) == 0
        writer.wait_for(20)

        before = writer.acknowledged
        snapshot = broker.snapshot(tmp_path / "snapshot")
        with Broker.from_snapshot(snapshot) as fork:
            writer.wait_for(before + 20)
            numbers = [record.value for record in fork.records("numbers")]
            assert numbers == [str(number).encode() for number in range(len(numbers))]
            assert before <= len(numbers) < len(broker.records("numbers"))

            assert committed_offset(fork, "readers") == 1
            assert state_of_transaction(fork) == state_of_transaction(broker) == ["Ongoing"]
            committing.commit_transaction(60)
            assert [record.value for record in broker.records("orders")] == [b"whole", b"open"]
            assert [record.value for record in fork.records("orders")] == [b"whole"]

            transactional(fork)  # fences the open transaction of the copy, which is aborted
            fork.add_record("orders", "of the fork")
            assert [record.value for record in fork.records("orders")] == [b"whole", b"of the fork"]
            assert [record.value for record in broker.records("orders")] == [b"whole", b"open"]


def test_snapshots_of_a_shared_broker_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(data_dir=tmp_path / "data") as own:
        shared = sharing.SharedBroker(own.direct_server, own.process.pid, own.data_dir)
        descriptor = os.open(tmp_path / sharing.LOCK_FILE, os.O_RDWR | os.O_CREAT)
        lock(descriptor)
        monkeypatch.setattr(sharing, "LOCK_SECONDS_MAX", 0.0)
        with pytest.raises(TimeoutError, match="another test process"):
            shared.snapshot()
        assert not has_stopped(own.process.pid)
        os.close(descriptor)
        assert (shared.snapshot() / "meta.properties").exists()
