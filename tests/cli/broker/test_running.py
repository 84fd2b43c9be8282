"""Finding the broker that holds a directory; no other process ever gets a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.adapters.lock import LOCK_FILE, DirectoryLock
from ottla.cli.broker.running import Running, find, note_address, stop
from ottla.cli.command import Refused

HOLDER = """
import sys
from ottla.adapters.lock import DirectoryLock
from ottla.cli.broker.running import note_address
lock = DirectoryLock(sys.argv[1])
note_address([sys.argv[1]], "host:1")
if len(sys.argv) > 2:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("held", flush=True)
sys.stdin.read()
"""


def _hold(directory: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_free_directory_has_no_broker(tmp_path: Path) -> None:
    assert find(str(tmp_path)) is None
    DirectoryLock(str(tmp_path)).release()
    assert find(str(tmp_path)) is None
    assert find(str(tmp_path / "missing")) is None


def test_a_directory_that_may_not_be_read_is_not_called_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not hold for root, as whom tests may run, so the refusal of the system is made up."""
    DirectoryLock(str(tmp_path)).release()

    def refuse(path: str, *_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch, pytest.raises(Refused, match="may not be read by this user"):
        patch.setattr(os, "stat", refuse)
        find(str(tmp_path))


def test_a_holder_is_named_with_its_address_and_stopped(tmp_path: Path) -> None:
    with _hold(tmp_path) as process:
        found = find(str(tmp_path))
        assert found is not None
        assert (found.pid, found.address) == (process.pid, "host:1")
        # In this test the holder is our child, so it stays a zombie until it is waited for.
        stop(found, 10)
        assert process.wait(60) == -signal.SIGTERM
    assert find(str(tmp_path)) is None


def test_a_broker_that_does_not_end_in_time_is_an_error(tmp_path: Path) -> None:
    with _hold(tmp_path, "stubborn") as process:
        found = find(str(tmp_path))
        assert found is not None
        with pytest.raises(Refused, match=r"still runs after 0\.1 s"):
            stop(found, 0.1)
        process.kill()


def test_a_process_that_does_not_hold_the_directory_gets_no_signal(tmp_path: Path) -> None:
    """The lock is held, but the number in the file is this process's, which does not hold it under that name."""
    with _hold(tmp_path) as process:
        for other in (os.getpid(), 0, 2**22 + 1):
            with pytest.raises(Refused, match="cannot be seen from here"):
                stop(Running(str(tmp_path), other, "", 0.0), 1)
        assert process.poll() is None
        process.kill()


def test_an_address_of_a_directory_that_is_gone_is_no_error(tmp_path: Path) -> None:
    note_address([str(tmp_path / "gone"), str(tmp_path)], "host:2")
    assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()} host:2\n"
