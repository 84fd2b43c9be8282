"""A standalone cluster of Spark as one host can have it: a master and workers, each a process, from the jars that PySpark brings.

The executors are processes below the workers. Their Python runs in a directory of theirs, so that a path through `/proc/self/cwd` leads to
another place in each of them: in this they are like executors on hosts of their own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

START_S = 120.0
STOP_S = 30.0
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PORT = re.compile(r"Successfully started service '(?:sparkMaster|sparkWorker)' on port (\d+)")
REGISTERED = "Successfully registered with master"
EXECUTOR_MEMORY = "600m"


class Standalone:
    """Master and workers, one executor of one core each. `stop` ends all of them and what they have started."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.url = ""
        self._count = workers
        self._workers: list[psutil.Popen] = []
        self._known: set[psutil.Process] = set()

    def start(self) -> Standalone:
        """Starts everything and waits until the workers are registered."""
        master = self._launch("Master", "master.log")
        self.url = f"spark://127.0.0.1:{self._wait_for(master, 'master.log', PORT)[1]}"
        for number in range(self._count):
            memory = ["--cores", "1", "--memory", EXECUTOR_MEMORY, "--work-dir", str(self.directory / "work"), self.url]
            self._workers.append(self._launch("Worker", f"worker-{number}.log", *memory))
        for number, worker in enumerate(self._workers):
            self._wait_for(worker, f"worker-{number}.log", re.compile(REGISTERED))
        return self

    def kill_worker(self) -> None:
        """Kills a worker and all that runs below it with -9, as when its host is lost."""
        worker = self._workers.pop()
        for one in [worker, *self._below(worker)]:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                pass  # it has ended by itself since it was listed

    def stop(self) -> None:
        """Ends everything."""
        for process in list(self._known):
            self._below(process)
        for process in self._known:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        psutil.wait_procs(list(self._known), timeout=STOP_S)

    def _below(self, process: psutil.Process) -> list[psutil.Process]:
        try:
            found: list[psutil.Process] = process.children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._known.update(found)
        return found

    def _launch(self, name: str, log_name: str, *arguments: str) -> psutil.Popen:
        import pyspark

        home = Path(pyspark.__file__).parent
        java = shutil.which("java")
        assert java is not None, "the tests of this folder need Java"
        command = [java, "-Xmx256m", "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{name.lower()}.{name}"]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments]
        scala = next(home.glob("jars/scala-library-*.jar")).stem.removeprefix("scala-library-").rpartition(".")[0]
        environment = {
            **os.environ,
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": scala,
        }
        with (self.directory / log_name).open("wb") as log:
            process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, env=environment)
        self._known.add(process)
        return process

    def _wait_for(self, process: psutil.Popen, log_name: str, wanted: re.Pattern[str]) -> re.Match[str]:
        """The place in a log where what is awaited stands, once it does."""
        deadline = time.monotonic() + START_S
        while (found := wanted.search(text := (self.directory / log_name).read_text(errors="replace"))) is None:
            assert process.poll() is None and time.monotonic() < deadline, f"{log_name}: {text[-3000:]}"
            time.sleep(0.05)
        return found
