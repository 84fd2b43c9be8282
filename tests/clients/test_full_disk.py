"""An operator can repair a single broker with a full disk as docs/operations.md describes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client import ClientError, connect
from ottla.testing.broker import Broker

SECONDS_MAX = 60.0
DISK_MIB = 48


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(path)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        pytest.skip(f"a small disk needs the program mount: {error}")
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_deleting_a_topic_frees_a_full_disk(disk: Path) -> None:
    settings = {"log.segment.delete.delay.ms": 100}
    with Broker(data_dir=disk / "data", topics=["big", "small"], settings=settings) as broker:
        broker.add_record("small", "before")
        with connect(broker.direct_server) as client:
            with pytest.raises(ClientError), client.producer(delivery_timeout_s=1) as producer:
                for _ in range(DISK_MIB * 2):
                    producer.produce("big", b"x" * 900_000)
                    producer.flush()
            assert "goes offline" in broker.log
            client.delete_topic("big")
        deadline = time.monotonic() + SECONDS_MAX
        while "can be written again" not in broker.log:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while True:
            try:
                broker.add_record("small", "after")
                break
            except ClientError:
                assert time.monotonic() < deadline
        assert [record.value for record in broker.records("small")] == [b"before", b"after"]
