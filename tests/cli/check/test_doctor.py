"""The doctor's findings about limits, disks, clocks and addresses."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.cli.check.doctor import (
    FAIL,
    PASS,
    WARN,
    Finding,
    check_clock,
    check_disk,
    check_spark_workers,
    judge_clock,
    judge_open_files,
    judge_partitions,
    judge_room,
    judge_sync,
)
from ottla.testing.broker import Broker
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.cli.conftest import Ottla
from tests.client.fake_broker import FakeBroker


def test_a_healthy_broker(ottla: Ottla, broker: Broker, tmp_path: Path) -> None:
    result = ottla("doctor", "-d", tmp_path, "-o", "json")
    found = result.json()
    checks = {check["check"]: check["status"] for check in found["checks"]}
    assert checks["broker"] == checks["advertised listener of broker 0"] == checks["partitions"] == PASS
    assert {"open files", "disk", "fsync", "clock", "libraries"} <= set(checks)
    assert found["ok"] == (result.code == 0)
    lines = ottla("doctor", "-d", tmp_path).out.splitlines()
    assert len(lines) == len(checks)
    assert all(line.split("  ")[0] in (PASS, WARN, FAIL) for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_is_away(offline: Ottla, tmp_path: Path) -> None:
    result = offline("doctor", "-d", tmp_path, "-b", "127.0.0.1:1")
    assert result.code == 3
    assert "fail  broker: cannot reach 127.0.0.1:1" in result.out
    assert offline("doctor", "-d", tmp_path, "--offline").code == 0


def test_an_advertised_address_without_a_broker(offline: Ottla, tmp_path: Path) -> None:
    def metadata(_body: object, _version: int) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1),
            MetadataResponseBroker(node_id=2, host="no.such.host", port=2),
        ]
        return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1)

    with FakeBroker({3: metadata}) as broker:
        result = offline("doctor", "-d", tmp_path, "-b", broker.address, "-o", "json")
    failed = {check["check"]: check["hint"] for check in result.json()["checks"] if check["status"] == FAIL}
    assert result.code == 1
    assert set(failed) == {"advertised listener of broker 1", "advertised listener of broker 2"}
    assert all("advertised.listeners" in hint for hint in failed.values())


def test_an_advertised_address_of_another_cluster(offline: Ottla, broker: Broker, tmp_path: Path) -> None:
    """Two brokers that advertise one address, or a port that is forwarded to the wrong one: everything answers, nothing works."""
    host, _, port = broker.direct_server.rpartition(":")

    def metadata(_body: object, _version: int) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host=host, port=int(port))], cluster_id="mine", controller_id=1)

    with FakeBroker({3: metadata}) as fake:
        result = offline("doctor", "-d", tmp_path, "-b", fake.address, "-o", "json")
    (failed,) = (check for check in result.json()["checks"] if check["status"] == FAIL)
    assert result.code == 1
    assert "answers cluster" in failed["message"] and "not mine" in failed["message"]


@pytest.mark.parametrize(
    ("finding", "status"),
    [
        (judge_open_files(256, 512), FAIL),
        (judge_open_files(4096, 4096), WARN),
        (judge_open_files(256, 1 << 20), PASS),
        (judge_open_files(1 << 20, 1 << 20), PASS),
        (judge_open_files(-1, -1, is_unlimited=True), PASS),
        (judge_room("d", 1000, 10**12), FAIL),
        (judge_room("d", 10**10, 10**12), WARN),
        (judge_room("d", 5 * 10**11, 10**12), PASS),
        (judge_sync(80.0), WARN),
        (judge_sync(1.0), PASS),
        (judge_clock(60.0, 0), FAIL),
        (judge_clock(0.0, 5), WARN),
        (judge_clock(-5.0, 0), PASS),
        (judge_clock(-5.0, None), PASS),
        (judge_partitions([SimpleNamespace(leader_id=-1, isr_nodes=[], replica_nodes=[1])]), FAIL),
        (judge_partitions([SimpleNamespace(leader_id=1, isr_nodes=[1], replica_nodes=[1, 2])]), WARN),
        (judge_partitions([SimpleNamespace(leader_id=1, isr_nodes=[1], replica_nodes=[1])]), PASS),
    ],
)
def test_judgements(finding: Finding, status: str) -> None:
    assert finding.status == status
    assert bool(finding.hint) == (status != PASS)


def test_files_from_the_future(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("x")
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    assert check_clock(str(tmp_path)).status == FAIL


def test_a_directory_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    found = check_disk(str(tmp_path / "a" / "b"))
    assert str(tmp_path) in found[0].message
    assert [finding.check for finding in found] == ["disk", "fsync"]
    assert not (tmp_path / "a").exists()


def test_a_python_of_spark_s_workers_without_the_format_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (own,) = check_spark_workers({"PATH": os.path.dirname(sys.executable)})
    assert own.status == PASS and own.hint == ""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    (other,) = check_spark_workers({"PATH": str(tmp_path)})
    assert other.status == WARN and str(python) in other.message and "DATA_SOURCE_NOT_FOUND" in other.message
    assert "import ottla.spark" in other.hint and f"PYSPARK_PYTHON={sys.executable}" in other.hint
    (chosen,) = check_spark_workers({"PATH": "", "PYSPARK_DRIVER_PYTHON": "jupyter"})
    assert chosen.status == WARN and chosen.hint.startswith(f"set PYSPARK_DRIVER_PYTHON={sys.executable}")
