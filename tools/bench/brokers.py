"""Starts the brokers that the benchmarks measure: Ottla, a bare loop that only receives, checks and writes, and Apache Kafka from Maven.
Each runs in its own process with a free port of the loopback address and a temporary directory. The benchmarks (`loads.py`) read CPU
seconds and resident memory from a `Broker`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.maven import copy_artifacts

_CPU_CLOCK = 2  # CPUCLOCK_SCHED of Linux: the time that the scheduler has counted
READY = re.compile(r"READY (\S+:\d+)")
KAFKA_VERSION = "4.3.0"
START_SECONDS_MAX = 120


@dataclass
class Broker:
    """A running broker. `start_ms` is the time from the start of the process to its READY line."""

    name: str
    address: str
    process: subprocess.Popen[str]
    directory: str
    start_ms: float = 0.0
    replicas: int = 1
    """Replication factor of the topics that a load creates."""
    client: dict[str, str] = field(default_factory=dict)
    """Options that a client needs besides the address: TLS, a login."""

    @property
    def options(self) -> dict[str, str]:
        """Returns librdkafka's options for a connection to the broker."""
        return {"bootstrap.servers": self.address, **self.client}

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.process.pid)

    def resident_mib(self) -> float:
        return resident_mib_of(self.process.pid)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def cpu_seconds_of(pid: int) -> float:
    """Returns the CPU time of a process from its own CPU clock, to the nanosecond (clock_getcpuclockid). The times in /proc are multiples
    of 10 ms, which is as much as a short load costs.
    """
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


def resident_mib_of(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def start_ottla(*options: str, directory: str | None = None) -> Broker:
    folder = directory or tempfile.mkdtemp(prefix="ottla-bench-")
    command = [sys.executable, "-m", "ottla.cli.main", "start", "--data-dir", folder, "--port", "0", "--log-level", "warning", *options]
    return launch("ottla", command, folder)


def start_bare_loop() -> Broker:
    folder = tempfile.mkdtemp(prefix="ottla-bench-bare-")
    return launch("bare", [sys.executable, "-m", "tools.bench.bare_loop", folder], folder)


def launch(name: str, command: list[str], folder: str) -> Broker:
    """Starts a process, and waits for its line `READY host:port`."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    match = READY.match(process.stdout.readline())
    if match is None:
        sys.exit(f"bench: {name} did not start: {' '.join(command)}")
    return Broker(name, match[1], process, folder, (time.perf_counter() - started) * 1000)


# Apache Kafka


def kafka_jars(folder: Path, version: str = KAFKA_VERSION) -> str:
    """Fetches Kafka's jars by Maven, once. Returns the class path."""
    library = folder / "lib"
    if not library.is_dir():
        artifacts = [("org.apache.kafka", "kafka_2.13", version), ("org.slf4j", "slf4j-simple", "1.7.36")]
        copy_artifacts(folder, artifacts, library=library)
    return f"{library}/*"


def start_kafka(jars_folder: Path, *more_settings: str, protocol: str = "PLAINTEXT") -> Broker:
    """Starts one node of Apache Kafka in KRaft mode with a heap of 1 GiB. `protocol` is the security protocol of its client listener."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            sys.exit(f"bench: {program} is needed to run Apache Kafka next to this broker; install a JDK 17 and Maven")
    class_path = kafka_jars(jars_folder)
    folder = tempfile.mkdtemp(prefix="kafka-bench-")
    port, controller_port = free_port(), free_port()
    settings = Path(folder) / "server.properties"
    settings.write_text("\n".join([kafka_settings(folder, port, controller_port, protocol), *more_settings]))
    storage = ["java", "-cp", class_path, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAg", "-c", str(settings)]
    subprocess.run(storage, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    heap = ["-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-server", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    started = time.perf_counter()
    log = open(f"{folder}/stderr", "w")  # noqa: SIM115
    process = subprocess.Popen(["java", *heap, "-cp", class_path, "kafka.Kafka", str(settings)], stdout=log, stderr=log, text=True)
    wait_for_port(port)
    return Broker("kafka", f"127.0.0.1:{port}", process, folder, (time.perf_counter() - started) * 1000)


def kafka_settings(folder: str, port: int, controller_port: int, protocol: str = "PLAINTEXT") -> str:
    return "\n".join([
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
        f"listeners={protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        f"advertised.listeners={protocol}://127.0.0.1:{port}",
        f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "controller.listener.names=CONTROLLER",
        f"inter.broker.listener.name={protocol}",
        f"log.dirs={folder}/data",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "share.coordinator.state.topic.replication.factor=1",
        "share.coordinator.state.topic.min.isr=1",
        "group.share.assignment.interval.ms=0",
        "group.share.min.heartbeat.interval.ms=500",
        "group.share.heartbeat.interval.ms=500",
        "group.initial.rebalance.delay.ms=0",
    ])  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"bench: nothing listens on port {port} after {START_SECONDS_MAX} s")
