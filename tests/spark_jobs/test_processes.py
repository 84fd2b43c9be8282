"""The processes of a Spark application are ended, even if one of them has just ended by itself."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tools.spark_processes import kill_and_wait


@pytest.mark.parametrize("error", [FileNotFoundError("pidfd_open"), psutil.NoSuchProcess(1)])
def test_a_process_that_is_just_ending_is_waited_for_again(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    waits = []
    wait_procs = psutil.wait_procs

    def fails_once(*arguments: object, **named: object) -> object:
        waits.append(named["timeout"])
        if len(waits) == 1:
            raise error
        return wait_procs(*arguments, **named)

    monkeypatch.setattr(psutil, "wait_procs", fails_once)
    try:
        running = psutil.Process(process.pid)
        kill_and_wait([running], 60)
        assert len(waits) == 2 and not running.is_running()
    finally:
        process.kill()
        process.wait()
