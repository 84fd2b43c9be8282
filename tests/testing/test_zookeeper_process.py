"""A real ZooKeeper: started, stopped, killed, suspended, restarted on its data; and the refusal on a machine without one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.testing import zookeeper_process
from ottla.testing.zookeeper_process import (
    HOST,
    ZooKeeperDidNotStart,
    ZooKeeperEnsemble,
    ZooKeeperMissing,
    ZooKeeperProcess,
    class_path,
    java,
)

WAIT_SECONDS = 60


def eventually(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.usefixtures("need_zookeeper")
def test_one_server_through_its_life(tmp_path: Path) -> None:
    with ZooKeeperProcess(tmp_path) as server:
        assert server.ask("ruok") == "imok" and "Mode: standalone" in server.ask("srvr")
        port, log = server.port, (server.data / "version-2").iterdir()
        server.restart()
        assert server.port == port and server.ask("isro") == "rw" and list(log)
        server.kill()
        assert not server.is_running and server.ask("ruok") == ""
        server.start()
        server.suspend()
        with socket.create_connection((HOST, server.port), 5) as connection:
            connection.settimeout(0.2)
            connection.sendall(b"ruok")
            with pytest.raises(TimeoutError):
                connection.recv(4)
            server.resume()
            connection.settimeout(WAIT_SECONDS)
            assert connection.recv(4) == b"imok"
        server.suspend()
        server.stop()
        assert not server.is_running


@pytest.mark.usefixtures("need_zookeeper")
def test_a_taken_port_is_replaced(tmp_path: Path) -> None:
    server = ZooKeeperProcess(tmp_path)
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        server.port = taken = other.getsockname()[1]
        with server:
            assert server.port != taken and server.ask("ruok") == "imok"


@pytest.mark.usefixtures("need_zookeeper")
def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperDidNotStart, match=r"ZooKeeper ended: .*Invalid config"):
        ZooKeeperProcess(tmp_path, {"tickTime": "often"}).start()


@pytest.mark.usefixtures("need_zookeeper")
def test_an_ensemble_replaces_its_leader(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        assert ensemble.connect.count(",") == 2
        leader = ensemble.leader()
        assert leader is not None
        leader.kill()
        eventually(lambda: ensemble.leader() not in (None, leader))
        leader.start()
        assert not leader.is_leader


def test_a_machine_without_zookeeper_gets_the_name_of_the_package(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperMissing, match=r"^there is no ZooKeeper here: install the package zookeeper .*$"):
        class_path({}, tmp_path)
    with pytest.raises(ZooKeeperMissing, match=r"^ZOOKEEPER_HOME=.* has no lib/zookeeper"):
        class_path({"ZOOKEEPER_HOME": str(tmp_path)})
    with pytest.raises(ZooKeeperMissing, match="install the package default-jre-headless"):
        java({"PATH": str(tmp_path)})


def test_a_release_of_apache_is_found_by_its_home(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "zookeeper-3.9.2.jar").touch()
    assert class_path({"ZOOKEEPER_HOME": str(tmp_path)}).split(":") == [f"{tmp_path}/lib/*", f"{tmp_path}/*"]


def test_no_port_is_given_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(zookeeper_process, "PORTS", range(taken, taken + 1))
        with pytest.raises(ZooKeeperDidNotStart, match="no free port"):
            zookeeper_process.free_port()
