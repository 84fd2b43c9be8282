"""A console beside another process: its address, its end with that process, and one line for each reason why there is none."""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from ottla.adapters.console_process import ConsoleProcess

NOWHERE = ("-b", "127.0.0.1:1", "-X", "security.protocol=PLAINTEXT")
"""No broker listens there: a console starts without one, and its pages say so."""


def test_a_console_is_reported_with_its_address_and_its_end() -> None:
    lines = queue.SimpleQueue[str]()
    console = ConsoleProcess([*NOWHERE, "--port", "0"], lines.put)
    try:
        assert console.wait_until_decided()
        assert lines.get(timeout=60) == f"console at {console.url}"
        with urlopen(f"{console.url}/static/console.css", timeout=60) as answer:
            assert answer.status == 200
        os.kill(console.pid, signal.SIGKILL)
        assert lines.get(timeout=60) == f"the console has ended with code -{signal.SIGKILL}"
    finally:
        console.stop()


def test_a_console_ends_with_its_parent() -> None:
    """The parent is killed, so nothing of its own ends the console."""
    script = (
        "from ottla.adapters.console_process import ConsoleProcess\n"
        f"console = ConsoleProcess([*{NOWHERE!r}, '--port', '0'], lambda line: None)\n"
        "assert console.wait_until_decided()\n"
        "print(console.pid, flush=True)\n"
        "console._thread.join()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watched = os.pidfd_open(pid)
        parent.kill()
    try:
        assert select.select([watched], [], [], 60)[0]
    finally:
        os.close(watched)


def test_a_taken_port_is_one_line() -> None:
    lines = queue.SimpleQueue[str]()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        console = ConsoleProcess([*NOWHERE, "--port", str(port)], lines.put)
        assert not console.wait_until_decided()
        console.stop()
    assert lines.get_nowait() == f"no console: cannot listen on 127.0.0.1:{port}: address already in use; choose another port"
    assert lines.empty()


def test_a_missing_extra_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "starlette.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lines = queue.SimpleQueue[str]()
    console = ConsoleProcess([*NOWHERE, "--port", "0"], lines.put)
    assert not console.wait_until_decided()
    console.stop()
    packages = "'starlette>=1.0' 'uvicorn>=0.40' 'jinja2>=3.1'"
    assert lines.get_nowait() == f"no console: starlette cannot be imported; install it: pip install {packages}"
    assert lines.empty()
