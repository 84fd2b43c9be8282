"""The processes of the pipeline's demo: a broker that restarts on its port, and a driver that is restarted whenever it dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
STOP_SECONDS_MAX = 120.0
READY_LINE = re.compile(r"READY (\S+):(\d+) ")
BROKER_AWAY_SECONDS = 2.0
OTTLA = [sys.executable, "-m", "ottla.cli.main"]
SPARK_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "900m",
    "spark.driver.memory": "1g",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    # Spark notices a dead executor by its closed connection, and computes its lost blocks again.
    "spark.task.maxFailures": "8",
}


class BrokerProcess:
    """`ottla start` on a directory of its own; after a kill it starts again on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        command = [*OTTLA, "start", "--data-dir", str(self._directory / "broker"), "--port", str(self._port)]
        with (self._directory / "broker.log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, cwd=ROOT)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = READY_LINE.match(line)
        if match is None:
            raise SystemExit(f"demo: the broker did not start; it printed {line!r}, see {self._directory / 'broker.log'}")
        self._port = int(match[2])
        return f"{match[1]}:{self._port}"

    def kill_and_restart(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        time.sleep(BROKER_AWAY_SECONDS)
        self.start()

    def stop(self) -> int:
        """Stops it with a signal. Returns its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """Kills the process if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Driver:
    """Runs `ottla pipeline run`, and starts it again whenever it ends before `stop`."""

    def __init__(self, directory: Path, file: Path, address: str) -> None:
        self._directory = directory
        settings = [word for key, value in SPARK_SETTINGS.items() for word in ("--conf", f"{key}={value}")]
        master = os.environ.get("MASTER", "local-cluster[2,1,1024]")
        self._command = [*OTTLA, "pipeline", "run", str(file), "-b", address, "--master", master, *settings]
        self._environment = {
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # faster start, less CPU on a small machine
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": address,
            "PYTHONPATH": str(ROOT),
            "SPARK_HOME": _spark_home(directory),
        }
        self.starts = 0
        self._is_stopping = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        with (self._directory / "driver.log").open("a") as log:
            log.write(f"--- start {self.starts}\n")
            log.flush()
            return subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=self._directory, env=self._environment, start_new_session=True
            )

    def _supervise(self) -> None:
        while not self._is_stopping.is_set():
            if self._process.poll() is not None:
                _kill_group(self._process.pid)
                self._process = self._start()
            time.sleep(0.2)

    def kill(self) -> None:
        """Kills the driver with its JVM and the executors."""
        _kill_group(self._process.pid)

    def executors(self) -> list[psutil.Process]:
        """The executor processes of Spark's local cluster; in local mode the processes that run Python tasks."""
        found = []
        for process in _descendants(self._process.pid):
            words = _words(process)
            if "CoarseGrainedExecutorBackend" in words:
                found.append(process)
        return found or [process for process in _descendants(self._process.pid) if "pyspark.daemon" in _words(process)]

    def stop(self) -> int:
        """Stops it with a signal, as a service manager does. Returns its exit code."""
        self._is_stopping.set()
        self._thread.join()
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        finally:
            _kill_group(self._process.pid)


def _spark_home(directory: Path) -> str:
    """Makes a folder with links to Spark's files, because a local cluster writes the logs of its executors into Spark's folder."""
    import pyspark

    home = directory / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return str(home)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
