"""Brokers that cannot join the cluster refuse to start with one line and the documented exit code, and overwrite nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.testing.zookeeper_process import ZooKeeperProcess, free_port
from tests.clients.broker_process import READY_SECONDS, ROOT, BrokerProcess

REFUSED, NO_CONNECTION = 1, 3
Make = Callable[..., BrokerProcess]


def refusal(broker: BrokerProcess, code: int) -> str:
    """Starts a broker that must end by itself; returns its output without its log."""
    ended = subprocess.run(broker.command(), capture_output=True, text=True, cwd=ROOT, timeout=READY_SECONDS, check=False)
    assert ended.returncode == code and ended.stdout == "", ended.stderr
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1 and lines[0].startswith("error: "), ended.stderr
    return lines[0]


def tree(connect: str, chroot: str) -> dict[str, bytes]:
    """Returns all nodes below a chroot, and their data."""
    client = KazooClient(connect)
    client.start()
    try:
        found, waiting = {}, [chroot]
        while waiting:
            path = waiting.pop()
            found[path] = client.get(path)[0]
            waiting += [f"{path}/{name}" for name in client.get_children(path)]
        return found
    finally:
        client.stop()
        client.close()


def put(connect: str, path: str, data: bytes) -> None:
    client = KazooClient(connect)
    client.start()
    client.create(path, data, makepath=True)
    client.stop()
    client.close()


def test_a_used_id_another_brokers_directory_and_another_cluster_are_refused(
    zookeeper: ZooKeeperProcess, make_broker: Make, tmp_path: Path
) -> None:
    connect = f"{zookeeper.connect}/one"
    first = make_broker("first", broker_id=1, zookeeper_connect=connect).start()
    before = tree(zookeeper.connect, "/one")
    twin = make_broker("twin", broker_id=1, zookeeper_connect=connect)
    assert "broker.id 1 is in use" in refusal(twin, REFUSED)
    assert tree(zookeeper.connect, "/one") == before, "nothing was overwritten"
    directory = tmp_path / "twin"
    left = [path.name for path in directory.rglob("*") if path.name in ("meta.properties", ".kafka_cleanshutdown")]
    assert left == [], "a new directory stays without an owner, and without a proof that nothing was lost"
    twin.settings[0] = "broker.id=3"
    twin.start()
    twin.stop()
    subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "topic", "create", "t", "-p", "1", "-r", "1", "-b", first.address], check=True, cwd=ROOT
    )
    first.stop()
    first.settings[0] = "broker.id=2"
    assert "belongs to broker 1" in refusal(first, REFUSED)
    first.settings[:] = ["broker.id=1", f"zookeeper.connect={zookeeper.connect}/empty"]
    assert "knows no cluster" in refusal(first, REFUSED)
    put(zookeeper.connect, "/other/cluster/id", b'{"version":"1","id":"5LGwQCBtT6uyQJSpIvOvTA"}')
    first.settings[1] = f"zookeeper.connect={zookeeper.connect}/other"
    assert "this broker to 5LGwQCBtT6uyQJSpIvOvTA" in refusal(first, REFUSED)
    assert set(tree(zookeeper.connect, "/other")) == {"/other", "/other/cluster", "/other/cluster/id"}
    first.settings[1] = f"zookeeper.connect={connect}"
    first.start()
    first.stop()


def test_a_zookeeper_that_is_down_is_waited_for_and_then_named(make_broker: Make) -> None:
    connect = f"127.0.0.1:{free_port()}"
    broker = make_broker("broker", broker_id=1, zookeeper_connect=connect, zookeeper_connection_timeout_ms=500)
    assert f"no session with ZooKeeper at {connect} within 500 ms" in refusal(broker, NO_CONNECTION)


@pytest.mark.parametrize("garbage", [b"", b"garbage"])
def test_garbage_in_the_place_of_the_cluster_id_stays_there(zookeeper: ZooKeeperProcess, make_broker: Make, garbage: bytes) -> None:
    chroot = f"/garbage-{len(garbage)}"
    put(zookeeper.connect, f"{chroot}/cluster/id", garbage)
    broker = make_broker("broker", broker_id=1, zookeeper_connect=zookeeper.connect + chroot)
    assert "/cluster/id in the metadata store holds no cluster id" in refusal(broker, REFUSED)
    assert tree(zookeeper.connect, chroot)[f"{chroot}/cluster/id"] == garbage


def test_without_kazoo_the_line_names_what_to_install(zookeeper: ZooKeeperProcess, make_broker: Make, tmp_path: Path) -> None:
    (tmp_path / "kazoo.py").write_text("raise ModuleNotFoundError('no kazoo', name='kazoo')")
    broker = make_broker("broker", broker_id=1, zookeeper_connect=zookeeper.connect)
    broker.prefix = ["env", f"PYTHONPATH={tmp_path}"]
    assert "needs the package kazoo; install it: pip install kazoo" in refusal(broker, REFUSED)
