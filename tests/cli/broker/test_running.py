"""Finding the broker that holds a directory; no other process ever gets a signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.adapters.lock import LOCK_FILE, DirectoryLock
from ottla.cli.broker.running import Running, find, note_address, stop
from ottla.cli.command import Refused
from ottla.testing.broker import Broker
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.records import Record, encode_batch
from tests.cli.conftest import Ottla
from tests.clients.broker_process import STOP_SECONDS, BrokerProcess, eventually
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import World
from tests.clients.wire_client import In, WireClient
from tests.hostile.damage import read

HOLDER = """
import sys
from ottla.adapters.lock import DirectoryLock
from ottla.cli.broker.running import note_address
lock = DirectoryLock(sys.argv[1])
note_address([sys.argv[1]], "host:1")
if len(sys.argv) > 2:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("held", flush=True)
sys.stdin.read()
"""


def _hold(directory: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_free_directory_has_no_broker(tmp_path: Path) -> None:
    assert find(str(tmp_path)) is None
    DirectoryLock(str(tmp_path)).release()
    assert find(str(tmp_path)) is None
    assert find(str(tmp_path / "missing")) is None


def test_a_directory_that_may_not_be_read_is_not_called_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not hold for root, as whom tests may run, so the refusal of the system is made up."""
    DirectoryLock(str(tmp_path)).release()

    def refuse(path: str, *_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch, pytest.raises(Refused, match="may not be read by this user"):
        patch.setattr(os, "stat", refuse)
        find(str(tmp_path))


def test_a_holder_is_named_with_its_address_and_stopped(tmp_path: Path) -> None:
    with _hold(tmp_path) as process:
        found = find(str(tmp_path))
        assert found is not None
        assert (found.pid, found.address) == (process.pid, "host:1")
        # In this test the holder is our child, so it stays a zombie until it is waited for.
        stop(found, 10)
        assert process.wait(60) == -signal.SIGTERM
    assert find(str(tmp_path)) is None


def test_a_broker_that_does_not_end_in_time_is_an_error(tmp_path: Path) -> None:
    with _hold(tmp_path, "stubborn") as process:
        found = find(str(tmp_path))
        assert found is not None
        with pytest.raises(Refused, match=r"still runs after 0\.1 s"):
            stop(found, 0.1)
        process.kill()


def test_a_process_that_does_not_hold_the_directory_gets_no_signal(tmp_path: Path) -> None:
    """The lock is held, but the number in the file is this process's, which does not hold it under that name."""
    with _hold(tmp_path) as process:
        for other in (os.getpid(), 0, 2**22 + 1):
            with pytest.raises(Refused, match="cannot be seen from here"):
                stop(Running(str(tmp_path), other, "", 0.0), 1)
        assert process.poll() is None
        process.kill()


def test_an_address_of_a_directory_that_is_gone_is_no_error(tmp_path: Path) -> None:
    note_address([str(tmp_path / "gone"), str(tmp_path)], "host:2")
    assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()} host:2\n"


# The directories that stop, status and reset are about


def test_the_directory_comes_from_the_configuration_too(offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}\n")
    found = offline("status", "--config", config, "-o", "json").json()
    assert found["data_dir"] == [str(tmp_path / "a"), str(tmp_path / "b")]
    monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path / "c"))
    assert offline("status", "-o", "json").json()["data_dir"] == [str(tmp_path / "c")]
    monkeypatch.delenv("KAFKA_LOG_DIRS")
    monkeypatch.chdir(tmp_path)
    assert offline("status", "-o", "json").json()["data_dir"] == [str(tmp_path / "ottla-data")]
    assert offline("status", "--config", tmp_path / "none").code == 2


# The removal of what a broker left


def test_reset_empties_a_brokers_directory_and_no_other(offline: Ottla, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    (data / "t-0" / "0.log").write_bytes(b"x")
    refused = offline("reset", "-d", data, "--yes")
    assert refused.code == 1
    assert "nothing was removed" in refused.err
    (data / "meta.properties").write_text("version=0\n")
    unasked = offline("reset", "-d", data)
    assert unasked.code == 2
    assert (data / "t-0" / "0.log").exists()
    assert offline("reset", "-d", data, "--force").code == 0
    assert list(data.iterdir()) == []
    assert offline("reset", "-d", data, "--yes", "-o", "json").json() == {"removed": []}


# A broker is found by its data directory and stopped


def test_a_broker_is_found_by_its_directory_and_stopped(offline: Ottla, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data) as broker:
        found = offline("status", "-d", data, "-o", "json").json()
        assert found["running"] is True
        assert found["address"] == broker.direct_server
        assert found["answer_ms"] > 0
        refused = offline("reset", "-d", data, "--yes")
        assert (refused.code, refused.out) == (1, "")
        assert "stop it first" in refused.err
        stopped = offline("stop", "-d", data)
        assert stopped.code == 0
        assert stopped.out.startswith(f"broker {found['pid']} has stopped")
        assert (data / ".kafka_cleanshutdown").exists()
    assert offline("status", "-d", data).code == 1
    again = offline("stop", "-d", data)
    assert (again.code, again.err) == (1, f"error: no broker runs in {data}; name its directory with --data-dir\n")


# The exit codes of the broker's process after a second signal, and of `ottla status` (docs/operations.md)


SHELL = ("sh", "-c", '"$@"; echo "exit code $?"', "sh")
VALUE = b"x" * 60_000
ANSWERS = 400
"""Unread answers with the value: more than the buffers of both sockets hold."""


@contextmanager
def pending_answers(port: int) -> Iterator[None]:
    """A client does not read its answers, so that a clean stop waits for it."""
    with WireClient(port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        world = World(client)
        client.ask(world.make_topic(7, "t"), 7)
        client.ask(world.produce(In(9), "t", bytes(encode_batch([Record(0, 1, None, VALUE)]))), 9)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[wanted])])
        client.send(b"".join(client.frame(request, 11) for _ in range(ANSWERS)))
        yield


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_the_process_at_once(tmp_path: Path, number: signal.Signals, code: int) -> None:
    broker = BrokerProcess(tmp_path, [*SETTINGS, "ottla.shutdown.timeout.ms=86400000"], prefix=SHELL).start()
    found = find(str(broker.data))
    assert found is not None and broker.process is not None
    try:
        with pending_answers(broker.port):
            os.kill(found.pid, number)
            eventually(lambda: ": stopping" in broker.log_text())
            assert find(str(broker.data)) is not None, "it waits for the client"
            os.kill(found.pid, number)
            assert broker.process.communicate(timeout=STOP_SECONDS)[0] == f"exit code {code}\n"
    finally:
        if find(str(broker.data)) is not None:
            os.kill(found.pid, signal.SIGKILL)
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    broker.prefix = []
    broker.start()
    with WireClient(broker.port) as client:
        assert read(client, "t") == ([VALUE], 0)
    broker.stop()


def test_status_says_by_its_exit_code_whether_the_broker_answers(offline: Ottla, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert offline("status", "-d", data).code == 1
    with Broker(data_dir=data) as broker:
        assert offline("status", "-d", data).code == 0
        with broker.pause():
            assert offline("status", "-d", data).code == 3
        assert offline("status", "-d", data).code == 0
    assert offline("status", "-d", data).code == 1
