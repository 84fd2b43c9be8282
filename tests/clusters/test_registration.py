"""A broker registers again: immediately after a kill, although its old session still exists, and automatically after its session has
expired.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import READY_SECONDS, ROOT, BrokerProcess, eventually

Make = Callable[..., BrokerProcess]
LONG_SESSION_MS = 600_000


@contextmanager
def client_of(zookeeper: ZooKeeperProcess) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.connect)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def registered(client: KazooClient, chroot: str, broker_id: int) -> tuple[dict[str, Any], Any] | None:
    try:
        data, stat = client.get(f"{chroot}/brokers/ids/{broker_id}")
    except NoNodeError:
        return None
    return json.loads(data), stat


def test_a_killed_broker_registers_again_although_its_session_lives(zookeeper: ZooKeeperProcess, make_broker: Make) -> None:
    broker = make_broker(
        "broker", broker_id=1, zookeeper_connect=f"{zookeeper.connect}/back", zookeeper_session_timeout_ms=LONG_SESSION_MS
    ).start()
    with client_of(zookeeper) as client:
        first = registered(client, "/back", 1)
        assert first is not None and "clean" not in first[0], "a new data directory proves nothing"
        broker.kill()
        left_over = registered(client, "/back", 1)
        assert left_over is not None and left_over[1].czxid == first[1].czxid
        broker.start()
        second = registered(client, "/back", 1)
        assert second is not None and second[1].czxid > first[1].czxid and second[1].ephemeralOwner != first[1].ephemeralOwner
        assert second[0]["clean"] is True, "the machine has not been restarted: the process has lost nothing"
        assert second[0]["incarnation"] == first[0]["incarnation"] != ""
        assert client.get("/back/controller")[1].ephemeralOwner == second[1].ephemeralOwner
        broker.stop()
        assert registered(client, "/back", 1) is None
        (broker.data / ".ottla-boot").unlink()
        broker.start()
        third = registered(client, "/back", 1)
        assert third is not None and third[0]["clean"] is True, "it was stopped cleanly"
        broker.kill()
        (broker.data / ".ottla-boot").write_text("another boot\n")
        broker.start()
        fourth = registered(client, "/back", 1)
        assert fourth is not None and "clean" not in fourth[0], "the machine has been restarted without a clean stop"
    broker.stop()


def test_a_broker_whose_session_has_expired_registers_anew(zookeeper: ZooKeeperProcess, make_broker: Make) -> None:
    broker = make_broker("broker", broker_id=1, zookeeper_connect=f"{zookeeper.connect}/paused", zookeeper_session_timeout_ms=1_000).start()
    with client_of(zookeeper) as client:
        first = registered(client, "/paused", 1)
        assert first is not None
        os.kill(broker.pid, signal.SIGSTOP)
        eventually(lambda: registered(client, "/paused", 1) is None)
        os.kill(broker.pid, signal.SIGCONT)
        eventually(lambda: registered(client, "/paused", 1))
        second = registered(client, "/paused", 1)
        assert second is not None and second[1].czxid > first[1].czxid
        eventually(lambda: client.exists("/paused/controller") is not None)
    broker.stop()


def test_a_broker_whose_id_was_taken_over_registers_when_the_other_is_gone(zookeeper: ZooKeeperProcess, make_broker: Make) -> None:
    broker = make_broker("broker", broker_id=1, zookeeper_connect=f"{zookeeper.connect}/taken", zookeeper_session_timeout_ms=1_000).start()
    with client_of(zookeeper) as client, client_of(zookeeper) as other:
        first = registered(client, "/taken", 1)
        assert first is not None
        os.kill(broker.pid, signal.SIGSTOP)
        eventually(lambda: registered(client, "/taken", 1) is None)
        other.create("/taken/brokers/ids/1", json.dumps({**first[0], "incarnation": "of-another"}).encode(), ephemeral=True)
        os.kill(broker.pid, signal.SIGCONT)
        eventually(lambda: "until it is registered, and tries again in 2 s" in broker.log_text())
        assert broker.log_text().count("is in use: another broker is registered") == 2
        other.stop()
        eventually(lambda: (found := registered(client, "/taken", 1)) is not None and found[0]["incarnation"] == first[0]["incarnation"])
    broker.stop()


def test_a_restart_of_zookeeper_ends_no_session(zookeeper: ZooKeeperProcess, make_broker: Make) -> None:
    broker = make_broker("broker", broker_id=1, zookeeper_connect=f"{zookeeper.connect}/kept", zookeeper_session_timeout_ms=60_000).start()
    with client_of(zookeeper) as client:
        first = registered(client, "/kept", 1)
    zookeeper.restart()
    eventually(lambda: broker.log_text().count("connected to ZooKeeper") == 2)
    with client_of(zookeeper) as client:
        second = registered(client, "/kept", 1)
    assert first is not None and second is not None and second[1].czxid == first[1].czxid
    broker.stop()


BREAK = """
import os, socket
found = socket.getaddrinfo

def broken(*args, **more):
    if os.path.exists({path!r}):
        raise UnicodeError("label empty or too long")
    return found(*args, **more)

socket.getaddrinfo = broken
"""


def test_an_exception_in_the_thread_of_zookeeper_ends_the_broker(zookeeper: ZooKeeperProcess, make_broker: Make, tmp_path: Path) -> None:
    """An exception in ZooKeeper's thread ends the broker. Without this thread the broker would still serve its partitions, but never
    register again.
    """
    broken = tmp_path / "broken"
    (tmp_path / "sitecustomize.py").write_text(BREAK.format(path=str(broken)))
    broker = make_broker("broker", broker_id=1, zookeeper_connect=f"{zookeeper.connect}/thread")
    broker.prefix = ["env", f"PYTHONPATH={tmp_path}"]
    broker.start()
    broken.touch()
    zookeeper.restart()
    eventually(lambda: not broker.is_running)
    assert "the connection thread has ended: UnicodeError('label empty or too long')" in broker.log_text()


def test_a_broker_stops_while_zookeeper_is_away(need_zookeeper: None, tmp_path: Path, make_broker: Make) -> None:
    with ZooKeeperProcess(tmp_path / "zookeeper") as server:
        broker = make_broker("broker", broker_id=1, zookeeper_connect=server.connect, zookeeper_session_timeout_ms=LONG_SESSION_MS).start()
        server.suspend()
        broker.stop()  # within a time limit far below the session timeout
        assert not broker.is_running
        server.kill()
        server.start()
        broker.start()
        server.kill()
        eventually(lambda: "the connection to ZooKeeper is lost" in broker.log_text())
        broker.stop()


def test_a_start_waits_for_a_zookeeper_that_comes(need_zookeeper: None, tmp_path: Path, make_broker: Make) -> None:
    server = ZooKeeperProcess(tmp_path / "zookeeper")
    late = threading.Timer(1, server.start)
    late.start()
    try:
        broker = make_broker("broker", broker_id=1, zookeeper_connect=server.connect, zookeeper_connection_timeout_ms=100_000).start()
        assert "the connection to ZooKeeper" not in broker.log_text()
        broker.stop()
    finally:
        late.join()
        server.kill()


def test_a_start_that_waits_for_zookeeper_ends_at_sigterm(make_broker: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(READY_SECONDS)
        broker = make_broker(
            "broker", broker_id=1, zookeeper_connect=f"127.0.0.1:{silent.getsockname()[1]}", zookeeper_connection_timeout_ms=100_000
        )
        process = subprocess.Popen(broker.command(), stderr=subprocess.PIPE, text=True, cwd=ROOT)
        with silent.accept()[0]:
            process.terminate()
            said = process.communicate(timeout=READY_SECONDS)[1]
    assert process.returncode == 1 and "stopped by SIGTERM before it was ready" in said and "Traceback" not in said
