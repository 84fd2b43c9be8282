"""`--ottla-console` in pytest runs of their own: on a terminal it waits for Enter, elsewhere one line says why it does not."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO
from urllib.request import urlopen

import pytest

from tests.testing.test_plugin import ROOT, run

FAILS = """
import pytest

@pytest.fixture
def orders(kafka_broker):
    kafka_broker.create_topic("orders")
    kafka_broker.add_record("orders", "left by the test")
    yield
    kafka_broker.delete_topics(["orders"])

def test_orders(kafka_broker, orders):
    assert not kafka_broker.records("orders")

def test_after_it():
    pass
"""

ON_THE_TERMINAL = "import fcntl, pytest, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); raise SystemExit(pytest.main())"
"""Runs pytest on the terminal that is its standard input, so that Ctrl-C there reaches it."""


def test_without_a_terminal_one_line_says_why_it_does_not_wait(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS, "--ottla-console")
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout
    assert "--ottla-console does not wait: standard input is no terminal\n" in done.stdout
    done = run(tmp_path, FAILS, "--ottla-console", "-p", "xdist", "-n", "1")
    assert "--ottla-console does not wait: a worker of pytest-xdist has no terminal; run the test with -n 0\n" in done.stdout


@pytest.fixture
def users_terminal() -> Iterator[tuple[TextIO, int]]:
    """A terminal: the user's end, where a test types, and the end for a process."""
    users, process_end = pty.openpty()
    with open(users, "w", encoding="ascii") as keyboard:
        yield keyboard, process_end
    os.close(process_end)


@pytest.mark.parametrize(("key", "ending"), [("\n", "1 failed, 1 passed"), ("\x03", "KeyboardInterrupt")])
def test_a_failed_test_leaves_a_console_until_the_user_continues(
    tmp_path: Path, users_terminal: tuple[TextIO, int], key: str, ending: str
) -> None:
    keyboard, process_end = users_terminal
    (tmp_path / "test_it.py").write_text(FAILS)
    command = [sys.executable, "-c", ON_THE_TERMINAL, "-q", "-p", "ottla.testing.plugin", "-p", "no:cacheprovider", "--ottla-console"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=process_end, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        seen = ""
        for line in process.stdout:
            seen += line
            if "Press Enter to continue" in line:
                break
        found = re.search(r"console at (http://\S+)", seen)
        assert found, seen
        with urlopen(f"{found.group(1)}/topics/orders/messages?from=earliest", timeout=60) as answer:
            assert "left by the test" in answer.read().decode()
        keyboard.write(key)
        keyboard.flush()
        rest = process.stdout.read()
    assert ending in rest
