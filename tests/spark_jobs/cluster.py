"""Runs `cluster_program.py` with its child processes: starts it, sends it jobs, and kills single processes with -9."""

from __future__ import annotations

import json
import os
import queue
import random
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from tests.spark_jobs.cluster_program import READY, Answer, Job
from tests.spark_jobs.quick_java import SPARK_JAVA
from tools.spark_processes import kill_and_wait

ROOT = Path(__file__).resolve().parents[2]
START_S = 600.0
STOP_S = 60.0


class Cluster:
    """A Spark driver, its executors and their Python workers. `start` after a kill makes a new one."""

    def __init__(self, directory: Path, master: str = "local-cluster[2,1,600]", temporary: str | None = None) -> None:
        """`temporary` is the driver's directory for temporary files, as a path that its executors may or may not see."""
        self.directory = directory
        self.master = master
        self.temporary = temporary or str(directory)
        self.log_path = directory / "cluster.log"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._known: set[psutil.Process] = set()

    def start(self) -> Cluster:
        """Starts the driver and waits until it accepts jobs."""
        command = [sys.executable, "-m", "tests.spark_jobs.cluster_program", self.master, str(self.directory)]
        environment = {**os.environ, "JDK_JAVA_OPTIONS": SPARK_JAVA, "TMPDIR": self.temporary, "PYTHONPATH": str(ROOT)}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.directory, env=environment
            )
        self._lines = queue.Queue()
        threading.Thread(target=_carry_lines, args=(self._process, self._lines), daemon=True).start()
        while (line := self._lines.get(timeout=START_S)) != READY:
            assert line, f"Spark did not start:\n{self.log_tail()}"
        return self

    def submit(self, job: Job) -> None:
        """Begins a job; `answer` returns its result."""
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it was killed; `answer` reports that

    def answer(self, timeout_s: float) -> Answer | None:
        """Returns the answer to the job, None if there is none yet. Raises `EOFError` if the driver has ended."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if not line:
            raise EOFError("the driver has ended")
        found: Answer = json.loads(line)
        return found

    # Its processes

    def kill(self, kind: str, chooser: random.Random) -> bool:
        """Kills the driver, an executor, or a Python worker with -9; False if there is no such process now."""
        if kind == "driver":
            self.kill_driver()
            return True
        chosen = [one for one in self._family() if _is_kind(one, kind)]
        if not chosen:
            return False
        try:
            chooser.choice(sorted(chosen, key=lambda one: one.pid)).kill()
        except psutil.NoSuchProcess:
            return False
        return True

    def kill_driver(self) -> None:
        """Kills the program and its JVM. Executors and their workers still run, and end when they notice it."""
        assert self._process is not None
        for one in self._family():
            try:
                if one.ppid() == self._process.pid:
                    one.kill()
            except psutil.NoSuchProcess:
                pass  # it has ended by itself since it was listed
        self._process.kill()
        self._close()

    def stop(self) -> None:
        """Ends everything."""
        process = self._process
        if process is not None:
            self._family()
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            self._close()
        kill_and_wait(self._known, STOP_S)

    def _close(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass

    def _family(self) -> list[psutil.Process]:
        """Returns all child processes of the driver, and remembers them, so that `stop` ends them in any case."""
        assert self._process is not None
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._known.update(found)
        return found

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


def _is_kind(process: psutil.Process, kind: str) -> bool:
    wanted = {"executor": "CoarseGrainedExecutorBackend", "worker": " -m pyspark."}[kind]
    try:
        return wanted in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _carry_lines(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Puts each line of output into the queue, and an empty line at its end."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.put(line.strip())
    except ValueError:
        pass  # closed after a kill
    lines.put("")
