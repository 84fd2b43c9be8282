"""The reaper: what it ends and removes, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import reaper_process
from ottla.testing.reaper import Reaper, reaper

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
SECONDS_MAX = 60.0


def happens(condition: Callable[[], bool]) -> bool:
    """Waits until it is true, or the time is up."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_true


@pytest.fixture
def sleepers() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes that sleep; those left over end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**environment: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(SLEEP, env={**os.environ, **environment}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_it_kills_and_removes_when_its_pipe_is_closed(tmp_path: Path, sleepers: Callable[..., subprocess.Popen[bytes]]) -> None:
    owner = Reaper()
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    for path in (kept, gone):
        owner.add_directory(path)
        path.mkdir()
    owner.forget_directory(kept)
    ours, suspended, other = sleepers(**owner.environment), sleepers(**owner.environment), sleepers()
    suspended.send_signal(signal.SIGSTOP)
    owner.close()
    assert ours.wait(SECONDS_MAX) == suspended.wait(SECONDS_MAX) == -signal.SIGKILL
    assert happens(lambda: not gone.exists())
    assert kept.exists()
    assert other.poll() is None


def test_it_waits_for_another_process_too(sleepers: Callable[..., subprocess.Popen[bytes]]) -> None:
    controller = sleepers()
    owner = Reaper(after_pid=controller.pid)
    ours = sleepers(**owner.environment)
    owner.close()
    with pytest.raises(subprocess.TimeoutExpired):
        ours.wait(0.3)
    controller.kill()
    assert ours.wait(SECONDS_MAX) == -signal.SIGKILL


def test_without_proc_it_kills_what_was_named(
    monkeypatch: pytest.MonkeyPatch, sleepers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    first, second = sleepers(), sleepers()
    monkeypatch.setattr(reaper_process.os.path, "isdir", lambda _: False)
    monkeypatch.setattr(reaper_process, "is_there", lambda pid: first.poll() is None)
    reaper_process.kill_all("another token", [first.pid])
    assert first.poll() == -signal.SIGKILL
    assert second.poll() is None


def test_signals_that_end_the_others_do_not_end_it(tmp_path: Path) -> None:
    owner = Reaper()
    directory = tmp_path / "gone"
    owner.add_directory(directory)
    directory.mkdir()
    assert happens(lambda: "SigIgn" in Path(f"/proc/{owner.pid}/status").read_text() and ignores(owner.pid, signal.SIGTERM))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(owner.pid, number)
    owner.close()
    assert happens(lambda: not directory.exists())


def ignores(pid: int, number: int) -> bool:
    mask = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:")).split()[1]
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_a_killed_reaper_is_no_failure(tmp_path: Path) -> None:
    owner = Reaper()
    os.kill(owner.pid, signal.SIGKILL)
    os.waitpid(owner.pid, 0)
    owner.add_directory(tmp_path)
    owner.forget_directory(tmp_path)
    owner.close()
    assert tmp_path.exists()


def test_a_fork_does_not_keep_the_reaper_waiting(tmp_path: Path) -> None:
    """A child that lives longer than its parent would hold the other end of the pipe."""
    code = """if True:
        import os, sys, time
        from ottla.testing.reaper import temporary_directory
        path = temporary_directory("ottla-")
        if os.fork() == 0:
            os.close(1)
            time.sleep(600)
        print(path, os.getpid(), flush=True)
        os.kill(os.getpid(), 9)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert process.stdout is not None
    try:
        said = process.stdout.readline().split()
        process.wait(SECONDS_MAX)
        assert happens(lambda: not Path(said[0]).exists())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


def test_a_process_has_one() -> None:
    assert reaper() is reaper()
