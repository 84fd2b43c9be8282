"""How mirrors end: a source that has lost records or is lost itself, and two mirrors into a target that has no MirrorRecords."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import ottla.client
from ottla.base.settings.topics import MIRROR_SOURCE
from ottla.base.types import TopicPartition
from ottla.client.core.transaction_admin import describe_producers, write_abort_marker
from ottla.cloning.mirror import mirror as engine
from ottla.cloning.mirror import reading
from ottla.cloning.mirror.mirror import Mirror, MirrorRequest
from ottla.cloning.mirror.state import State
from ottla.cloning.mirror.survey import survey
from ottla.cloning.plan import CloneError
from ottla.testing.broker import Broker
from ottla.wire.batch_header import iter_batches
from tests.cloning.conftest import ends, stored, write
from tests.cloning.test_clone import happens
from tests.cloning.test_mirror import graduate, has, running, transact


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(engine, "TOPICS_SECONDS", 0.1)


def test_a_source_that_has_lost_records_fails_the_topic(topic: str) -> None:
    """The target keeps them."""
    with Broker() as source, Broker() as target:
        with ottla.client.connect(source.direct_server) as client:
            client.create_topic(topic)
            write(client, topic, 10)
            before = source.mark()
            write(client, topic, 5, first=10)
        with running(source, target, topic) as run, ottla.client.connect(target.direct_server) as there:
            assert happens(lambda: run.state["lag"] == 0 and ends(there, topic) == 15)
            source.rewind(before)
            assert happens(lambda: run.has_ended)
            assert run.state["topics"][0]["error"] == (
                f"{topic}-0 of the source ends at 10, before the target's end 15: it has lost records"
            )
        assert len(target.records(topic)) == 15


def test_a_source_that_is_lost(topic: str) -> None:
    """The topic becomes writable when its setting is removed."""
    with Broker() as target, ottla.client.connect(target.direct_server) as there:
        with Broker() as source, ottla.client.connect(source.direct_server) as client:
            client.create_topic(topic)
            write(client, topic, 10)
            with running(source, target, topic) as run:
                assert happens(lambda: run.state["lag"] == 0)
        there.alter_topic_configs(topic, {}, deletions=[MIRROR_SOURCE])
        write(there, topic, 5, first=10)
        assert [record.value for record in target.records(topic)] == [b"%d" % number for number in range(15)]


def test_two_mirrors_into_another_kafka(topic: str, tmp_path: Path) -> None:
    """Each record is copied once, and one of them ends at the marker of a transaction. Without MirrorRecords a mirror produces; here the
    target is a broker of ours whose client asks for no extensions."""
    with Broker(data_dir=tmp_path / "source") as source, Broker(data_dir=tmp_path / "target") as target:
        with ottla.client.connect(source.direct_server) as client, ottla.client.connect(target.direct_server) as there:
            client.create_topic(topic)
            write(client, topic, 10)
            mirrors = [Producing(source, target, topic) for _ in range(2)]
            try:
                assert happens(lambda: mirrors[0].lag == mirrors[1].lag == 0)
                write(client, topic, 5, first=10)
                assert happens(lambda: mirrors[0].lag == mirrors[1].lag == 0 and ends(there, topic) == 15)
                transact(client, topic, b"15")
                assert happens(lambda: any(one.has_ended for one in mirrors) and ends(there, topic) == 17)
                (ended,) = (one for one in mirrors if one.has_ended)
                assert ended.states[-1]["topics"][0]["error"] == f"another mirror writes {topic!r} to this target"
                write(client, topic, 5, first=16)
                assert happens(lambda: ends(there, topic) == 22)
            finally:
                for one in mirrors:
                    one.stop()
        assert [record.value for record in target.records(topic)] == [b"%d" % number for number in range(21)]


@pytest.mark.parametrize("is_exact", [True, False], ids=["ottla", "another Kafka"])
def test_a_damaged_partition_of_the_source_waits_alone(topic: str, is_exact: bool, tmp_path: Path) -> None:
    """Others go on, the mirror names the batch, and refuses to graduate. When the damage is deleted, the partition goes on."""
    with ExitStack() as stack:
        source, target = (stack.enter_context(Broker(data_dir=tmp_path / name)) for name in ("source", "target"))
        client, there = (stack.enter_context(ottla.client.connect(one.direct_server)) for one in (source, target))
        client.create_topic(topic, partitions=2)
        write(client, topic, 15)
        _, third = [position for position, _ in iter_batches(stored(tmp_path / "source", topic))][1:]
        with (tmp_path / "source" / f"{topic}-0" / f"{0:020}.log").open("r+b") as file:
            file.seek(third - 1)
            file.write(b"?")
        run = stack.enter_context(running(source, target, topic) if is_exact else producing(source, target, topic))
        assert happens(lambda: f"the batch at offset 5 of {topic}-0 is damaged" in str(run.state["topics"]))
        with client.producer() as producer:
            producer.produce(topic, b"another partition", partition=1)
        assert happens(lambda: has(there, topic, 1, partition=1)) and has(there, topic, 5)
        assert run.state["topics"][0]["error"] is None and run.state["topics"][0]["state"] == "mirroring"
        if is_exact:
            waiting, other = survey(client, there, [topic])["topics"][0]["partitions"]
            assert f"damaged at the source: the batch at offset 5 of {topic}-0" in waiting["error"] and waiting["lag"] == 10
            assert other["error"] is None
            words = [sys.executable, "-m", "ottla", "mirror", source.direct_server, target.direct_server, "--topics", topic, "--status"]
            shown = subprocess.run(words, capture_output=True, text=True, check=True)
            assert shown.stderr.startswith(f"{topic}-0 waits alone: damaged at the source") and shown.stderr.count("\n") == 1
        if is_exact:
            with pytest.raises(CloneError, match=f"{topic}-0 is damaged at the source: the batch at offset 5"):
                graduate(source, target, topic)
            client.delete_records({TopicPartition(topic, 0): 10})
            assert happens(lambda: has(there, topic, 15) and run.state["lag"] == 0)
            assert not any(one["error"] for one in run.state["topics"][0]["partitions"])


def test_a_transaction_whose_marker_the_source_no_longer_has(topic: str, tmp_path: Path) -> None:
    """A mirror was stopped between record and marker, and compaction has removed both. The mirror names the transaction, the graduation is
    not refused, and an abort marker ends it."""
    partition = TopicPartition(topic, 0)
    with Broker() as target, ottla.client.connect(target.direct_server, with_extensions=True) as there:
        with Broker(data_dir=tmp_path / "source") as source, ottla.client.connect(source.direct_server) as client:
            client.create_topic(topic)
            producer = client.producer(transactional_id=topic)
            producer.begin()
            producer.produce(topic, b"old", b"key-0", partition=0)
            producer.flush()
            with running(source, target, topic):
                assert happens(lambda: has(there, topic, 1))
            producer.commit()
            producer.close()
            write(client, topic, 10, first=2)
        log = tmp_path / "source" / f"{topic}-0"
        data = stored(tmp_path / "source", topic)
        third = [position for position, _ in iter_batches(data)][2]
        for path in log.glob("0*"):
            path.unlink()
        (log / f"{0:020}.log").write_bytes(data[third:])
        with Broker(data_dir=tmp_path / "source") as source, ottla.client.connect(source.direct_server) as client:
            with running(source, target, topic) as run:
                assert happens(lambda: f"ottla txn abort {topic} --partition 0 --start-offset 0" in str(run.state["notes"]))
                assert has(there, topic, 12)
            graduate(source, target, topic)
        assert [record.value for record in target.records(topic)] == []
        (hanging,) = [one for one in describe_producers(there.cluster, [partition])[partition] if one.current_txn_start_offset >= 0]
        write_abort_marker(
            there.cluster, partition, producer_id=hanging.producer_id, producer_epoch=hanging.producer_epoch,
            coordinator_epoch=hanging.coordinator_epoch,
        )  # fmt: skip
        assert [record.value for record in target.records(topic)] == [b"%d" % number for number in range(2, 12)]


def test_a_graduation_asks_for_the_sources_ends_when_known_ones_are_reached(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after each answer: a request to each broker would cost as much as reading a megabyte."""
    monkeypatch.setattr(reading, "LIMITS", reading.LIMITS._replace(max_bytes=1))
    monkeypatch.setattr(engine, "LOOK_SECONDS", 60.0)
    asked: list[int] = []
    ends_of = Mirror._source_ends
    monkeypatch.setattr(Mirror, "_source_ends", lambda self, partitions: asked.append(1) or ends_of(self, partitions))
    with Broker() as source, Broker() as target, ottla.client.connect(source.direct_server) as client:
        client.create_topic(topic)
        write(client, topic, 200)  # 40 batches, each an answer
        graduate(source, target, topic)
        assert len(asked) <= 5
        assert len(target.records(topic)) == 200


class Producing:
    """A mirror in a thread, whose client of the target asks for no extensions."""

    def __init__(self, source: Broker, target: Broker, topic: str) -> None:
        self.states: list[State] = []
        self._addresses = source.direct_server, source.direct_server, target.direct_server
        self._request = MirrorRequest(topics=[topic], settings={})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        clients = [ottla.client.connect(address) for address in self._addresses]
        try:
            Mirror(*clients, self._request, self.states.append).run(self._is_over.is_set)
        finally:
            for client in clients:
                client.close()

    @property
    def state(self) -> State:
        return self.states[-1] if self.states else {"topics": []}

    @property
    def lag(self) -> int | None:
        found: int | None = self.states[-1]["lag"] if self.states else None
        return found

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


@contextmanager
def producing(source: Broker, target: Broker, topic: str) -> Iterator[Producing]:
    run = Producing(source, target, topic)
    try:
        yield run
    finally:
        run.stop()
