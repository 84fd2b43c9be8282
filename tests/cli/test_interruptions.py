"""Ctrl-C at any moment, closed streams, closed pipes: the right exit code, and nothing left open at the broker."""

from __future__ import annotations

import _thread
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import entry
from ottla.client.blocking.connection import BlockingConnection
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

ROOT = Path(__file__).parents[2]


def shell(broker: Broker, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `ottla` is this program and $B the connection."""
    script = f'ottla() {{ "{sys.executable}" -m ottla.cli.main "$@"; }}; B="-b {broker.bootstrap_server}"; {line}'
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=variables, timeout=300, check=False)


@pytest.fixture
def collected() -> Iterator[None]:
    """Runs the garbage collector after the test only. It then closes a socket whose caller was interrupted before it held the socket, and
    warns. During the test Hypothesis has a callback in each collection, and an interrupt inside such a callback is lost."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def interrupt_at(monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    """Ctrl-C as the client begins to wait for its nth answer. It interrupts the main thread, whichever thread waits."""
    read_frame, seen = BlockingConnection._read_frame, []

    def interrupted(self: BlockingConnection, timeout_s: float) -> memoryview:
        seen.append(1)
        if len(seen) == answer:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            _thread.interrupt_main()
        return read_frame(self, timeout_s)

    monkeypatch.setattr(BlockingConnection, "_read_frame", interrupted)


interrupts = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")


@interrupts
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("answer", [1, 2, 3, 4, 5, 6])
def test_ctrl_c_in_the_middle_of_an_answer_leaves_no_transaction_open(
    ottla: Ottla, topic: str, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    interrupt_at(monkeypatch, answer)
    stopped = ottla("produce", topic, "--generate", "100000", "--transactional-id", f"id-{topic}", "--batch-size", "2000")
    monkeypatch.undo()
    assert (stopped.code, stopped.err) == (130, "")
    transactions = ottla("txn", "list", "-o", "json").json()["transactions"]
    assert [found for found in transactions if found["transactional_id"] == f"id-{topic}" and found["state"] == "Ongoing"] == []
    assert ottla("consume", topic, "-e", "-q", "--isolation-level", "read_committed").out == ""


@interrupts
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("answer", [6, 8, 9])
def test_ctrl_c_in_a_group_leaves_the_group(ottla: Ottla, topic: str, monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    interrupt_at(monkeypatch, answer)
    stopped = ottla("consume", topic, "-g", f"group-{topic}", "-q")
    monkeypatch.undo()
    assert stopped.code == 130
    assert stopped.err in ("", "Processed a total of 0 messages\n")
    groups = ottla("group", "list", "-o", "json").json()["groups"]
    assert [found["state"] for found in groups if found["group"] == f"group-{topic}"] in ([], ["Empty"])


def test_ctrl_c_before_anything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.cli.main.main", interrupted)
    assert entry.main() == 130


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_ends_the_program(broker: Broker, topic: str, tmp_path: Path, unbuffered: str) -> None:
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(60_000)))
    read = f"ottla consume {topic} --from-beginning $B | head -1; echo ${{PIPESTATUS[0]}}"
    done = shell(broker, f"ottla produce {topic} -q -l {tmp_path}/lines $B; {read}", PYTHONUNBUFFERED=unbuffered)
    assert (done.stdout, done.stderr) == ("0\n0\n", "")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("ottla topic list $B >&-", 0),
        ("ottla topic list $B <&- >&- 2>&-", 0),
        ("ottla produce streams $B <&-", 0),
        ("ottla topic list -b 127.0.0.1:1 >&- 2>&-", 3),
        ("ottla produce streams -b 127.0.0.1:1 <&- 2>&-", 3),
        ("ottla topic list $B > /dev/full", 1),
    ],
)
def test_streams_that_are_closed(broker: Broker, line: str, code: int) -> None:
    done = shell(broker, line)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
