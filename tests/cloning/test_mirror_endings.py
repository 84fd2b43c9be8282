"""How mirrors end: a source that has lost records or is lost itself, and two mirrors into a target that has no MirrorRecords."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import ottla.client
from ottla.base.settings.topics import MIRROR_SOURCE
from ottla.cloning.mirror import mirror as engine
from ottla.cloning.mirror.mirror import Mirror, MirrorRequest
from ottla.cloning.mirror.state import State
from ottla.testing.broker import Broker
from tests.cloning.conftest import ends, write
from tests.cloning.test_clone import happens
from tests.cloning.test_mirror import running, transact


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOOK_SECONDS", 0.05)


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
    def lag(self) -> int | None:
        found: int | None = self.states[-1]["lag"] if self.states else None
        return found

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
