"""Runs a standalone Spark cluster on one host: a master and workers, each a process, from the jars of PySpark.

The executors are processes below the workers. The Python of each executor runs in its own directory, so a path through `/proc/self/cwd`
leads to another place in each of them, as if they ran on different hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from tools.spark_processes import kill_and_wait

START_S = 240.0
STOP_S = 30.0
PORT = re.compile(r"Successfully started service '(?:sparkMaster|sparkWorker)' on port (\d+)")
REGISTERED = "Successfully registered with master"
EXECUTOR_MEMORY = "600m"
HOME = "import os, pyspark; print(os.path.dirname(pyspark.__file__))"


class Standalone:
    """Master and workers, one executor of one core each. `stop` ends all of them and their child processes.

    `python` is the interpreter whose PySpark this is, with its variables; its executors use it too. Logs and the directories of executors
    are in `directory`.
    """

    def __init__(
        self,
        directory: Path,
        workers: int = 2,
        *,
        python: str = sys.executable,
        variables: Mapping[str, str] | None = None,
        executor_memory: str = EXECUTOR_MEMORY,
    ) -> None:
        self.directory = directory
        self.url = ""
        self._python = python
        self._variables = dict(os.environ if variables is None else variables)
        self._executor_memory = executor_memory
        self._count = workers
        self._workers: list[psutil.Popen] = []
        self._launched = 0
        self._known: set[psutil.Process] = set()

    def start(self) -> Standalone:
        """Starts everything and waits until the workers are registered."""
        master = self._launch("Master", "master.log")
        self.url = f"spark://127.0.0.1:{self._wait_for(master, 'master.log', PORT)[1]}"
        for _ in range(self._count):
            self._launch_worker()
        for number, worker in enumerate(self._workers):
            self._wait_for(worker, f"worker-{number}.log", re.compile(REGISTERED))
        return self

    def lose_worker(self) -> None:
        """Kills a worker and its child processes with -9, as if its host were lost, and starts another worker."""
        worker = self._workers.pop(0)
        for one in [worker, *self._below(worker)]:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                pass  # it has ended since it was listed
        self._launch_worker()

    def stop(self) -> None:
        """Ends everything."""
        for process in list(self._known):
            self._below(process)
        kill_and_wait(self._known, STOP_S)

    def _below(self, process: psutil.Process) -> list[psutil.Process]:
        try:
            found: list[psutil.Process] = process.children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._known.update(found)
        return found

    def _launch_worker(self) -> None:
        options = ["--cores", "1", "--memory", self._executor_memory, "--work-dir", str(self.directory / "work")]
        self._workers.append(self._launch("Worker", f"worker-{self._launched}.log", *options, self.url))
        self._launched += 1

    def _launch(self, name: str, log_name: str, *arguments: str) -> psutil.Popen:
        found = subprocess.run([self._python, "-c", HOME], env=self._variables, capture_output=True, text=True, check=True)
        home = Path(found.stdout.strip())
        java = shutil.which("java")
        assert java is not None, "Spark needs Java"
        command = [java, "-Xmx256m", "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{name.lower()}.{name}"]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments]
        scala = next(home.glob("jars/scala-library-*.jar")).stem.removeprefix("scala-library-").rpartition(".")[0]
        environment = {
            **self._variables,
            "PYSPARK_PYTHON": self._python,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": scala,
        }
        with (self.directory / log_name).open("wb") as log:
            process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, env=environment)
        self._known.add(process)
        return process

    def _wait_for(self, process: psutil.Popen, log_name: str, wanted: re.Pattern[str]) -> re.Match[str]:
        """Waits for a pattern in a log, and returns its match."""
        deadline = time.monotonic() + START_S
        while (found := wanted.search(text := (self.directory / log_name).read_text(errors="replace"))) is None:
            assert process.poll() is None and time.monotonic() < deadline, f"{log_name}: {text[-3000:]}"
            time.sleep(0.05)
        return found
