"""A worker process answers in order, ends with its owner, and is replaced when it was lost."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from ottla.adapters.movable_time import LastingWorker
from ottla.adapters.worker_process import WorkerProcess, serve
from ottla.base.ports import WorkerLost


def work(order: object) -> object:
    """What the worker of these tests does."""
    if order == "sleep":
        time.sleep(60)
    return (os.getpid(), order)


def main() -> None:
    serve(work)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    monkeypatch.setenv("PYTHONPATH", root)  # the worker must find this module
    process = WorkerProcess("tests.adapters.test_worker_process")
    yield process
    process.close()


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline, "the worker lives on"
        time.sleep(0.005)


def test_one_process_answers_one_order_after_another(worker: WorkerProcess) -> None:
    assert worker.pid is None, "nothing is started before there is work"
    first, second = worker.ask({"a": (1, b"x")}), worker.ask(2)
    assert first == (worker.pid, {"a": (1, b"x")}) and second == (worker.pid, 2)
    pid = worker.pid
    worker.rest()
    assert worker.pid is None and worker.ask(3)[0] != pid


def test_a_killed_worker_is_reported_and_replaced(worker: WorkerProcess) -> None:
    pid = worker.ask(1)[0]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerLost, match=f"{pid} ended before"):
        worker.ask(2)
    assert worker.ask(3)[1] == 3


def test_ctrl_c_is_not_for_the_worker(worker: WorkerProcess) -> None:
    pid = worker.ask(1)[0]
    os.kill(pid, signal.SIGINT)
    assert worker.ask(2) == (pid, 2)


def test_the_worker_ends_with_its_owner_in_the_middle_of_work(worker: WorkerProcess) -> None:
    pid = worker.ask(1)[0]
    process = worker._process
    assert process is not None and process.stdin is not None
    pickle.dump("sleep", process.stdin)
    process.stdin.close()  # which the system does when the owner ends
    wait_until_gone(pid)
    assert process.wait() == 0


def test_close_ends_work_under_way(worker: WorkerProcess) -> None:
    pid = worker.ask(1)[0]
    lost: list[WorkerLost] = []

    def ask() -> None:
        with pytest.raises(WorkerLost) as caught:
            worker.ask("sleep")
        lost.append(caught.value)

    asked = threading.Thread(target=ask)
    asked.start()
    deadline = time.monotonic() + 60
    while not worker._is_asked:
        assert time.monotonic() < deadline
    worker.close()
    asked.join(60)
    wait_until_gone(pid)
    assert len(lost) == 1
    with pytest.raises(WorkerLost, match="stopping"):
        worker.ask(4)


def test_the_worker_of_a_broker_with_a_movable_clock_does_not_rest(worker: WorkerProcess) -> None:
    lasting = LastingWorker(worker._module)
    pid, _ = lasting.ask("first")
    lasting.rest()
    assert lasting.ask("second") == (pid, "second")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerLost):
        lasting.ask("third")
    other, _ = lasting.ask("fourth")
    lasting.close()
    assert other != pid and not is_alive(other)
