"""Compares the costs of an idle broker of Ottla and of Apache Kafka on this machine, one after the other.

`python -m tools.comparison` prints a row for each: process start to ready, memory when idle, installed size on disk, and the checks of
`ottla check eos`. Maven downloads Kafka (as for `make bench-peer`). Its size includes the Java runtime.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.bench import brokers

ROOT = Path(__file__).resolve().parents[1]
IDLE_SECONDS = 5.0


def mebibytes_of(path: Path) -> float:
    return sum(one.lstat().st_size for one in path.rglob("*") if one.is_file()) / 2**20


def java_home() -> Path:
    program = shutil.which("java")
    assert program is not None
    return Path(os.path.realpath(program)).parents[1]


def checks_of(address: str) -> str:
    """Returns how many checks of `check eos` a broker passes."""
    command = [sys.executable, "-m", "ottla.cli.main", "check", "eos", "-b", address, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    outcomes = [one["verdict"] for one in json.loads(done.stdout)["checks"]]
    return f"{outcomes.count('pass')} of {len(outcomes)}"


def row(broker: brokers.Broker, installed: str) -> str:
    try:
        time.sleep(IDLE_SECONDS)
        idle = broker.resident_mib()
        checks = checks_of(broker.address)
    finally:
        broker.stop()
    return f"| {broker.name} | {broker.start_ms:,.0f} ms | {idle:,.0f} MiB | {installed} | {checks} |"


def main() -> None:
    print("| | start | memory, idle | installed | `check eos` |\n| --- | --- | --- | --- | --- |", flush=True)
    print(row(brokers.start_ottla(), "see `make dist`"), flush=True)
    jars = ROOT / "build" / "kafka"
    kafka = brokers.start_kafka(jars)
    print(row(kafka, f"{mebibytes_of(jars):,.0f} MiB + {mebibytes_of(java_home()):,.0f} MiB of Java"), flush=True)


if __name__ == "__main__":
    main()
