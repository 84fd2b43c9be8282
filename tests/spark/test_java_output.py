"""The stderr of Java and its workers is copied line by line, without useless lines, as long as they run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from ottla.spark.java_output import INCUBATOR, TRACEBACK, filtered_stderr, without_noise

SAYS = "import sys, os; [sys.stderr.write(text) for text in {texts!r}]; sys.stderr.flush()"



def _program(tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Runs a program, because the test needs its real stderr."""
    script = tmp_path / "program.py"
    script.write_text(
        "import os, subprocess, sys, time\nfrom ottla.spark.java_output import filtered_stderr\n" + textwrap.dedent(body)
    )
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)


STARTED = """
    with filtered_stderr():
        child = subprocess.Popen([sys.executable, "-c", {code!r}])
    sys.stderr.write("own\\n")
    sys.stderr.flush()
    child.wait()
    {after}
    time.sleep(0.5)  # the thread passes on the last lines
"""


def test_the_noise_is_left_out_and_the_rest_arrives(tmp_path: Path) -> None:
    noise = INCUBATOR.decode()
    code = SAYS.format(texts=["first\n", noise, "WARNING: Using incubator modules: another\n", "last without an end"])
    done = _program(tmp_path, STARTED.format(code=code, after=""))
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert sorted(lines) == sorted(["own", "first", "WARNING: Using incubator modules: another", "last without an end"])
    assert lines.index("first") < lines.index("last without an end")


def test_much_output_arrives_and_nothing_blocks(tmp_path: Path) -> None:
    code = "import sys; [sys.stderr.write(f'{n:0100}\\n') for n in range(5000)]"
    done = _program(tmp_path, STARTED.format(code=code, after=""))
    lines = [line for line in done.stderr.splitlines() if line != "own"]
    assert lines == [f"{n:0100}" for n in range(5000)]


def test_without_a_stderr_nothing_happens(tmp_path: Path) -> None:
    body = """
        os.close(2)
        with filtered_stderr():
            print("reached", flush=True)
    """
    done = _program(tmp_path, body)
    assert (done.returncode, done.stdout) == (0, "reached\n")


def test_descriptors_are_closed_when_nothing_was_started() -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc")
    from tests.clients.broker_process import eventually

    before = len(os.listdir("/proc/self/fd"))
    with filtered_stderr():
        pass
    eventually(lambda: len(os.listdir("/proc/self/fd")) == before)
    assert not [thread.name for thread in threading.enumerate() if thread.name == "ottla-java-stderr"]


IDLE = [
    TRACEBACK,
    b'  File "/lib/pyspark/daemon.py", line 264, in manager\n',
    b"    code = worker(sock, authenticated)\n",
    b'  File "/lib/pyspark/daemon.py", line 95, in worker\n',
    b"    outfile.flush()\n",
    b"BrokenPipeError: [Errno 32] Broken pipe\n",
]
OF_USER = [TRACEBACK, b'  File "words.py", line 3, in transform\n', b"    outfile.flush()\n", b"BrokenPipeError: [Errno 32] Broken pipe\n"]


@pytest.mark.parametrize(
    "lines",
    [
        [b"a\n", b"  b\n", b"c"],
        OF_USER,
        [*IDLE[:-1], b"ValueError: not a broken pipe\n", b"BrokenPipeError: a line of its own\n"],
        [TRACEBACK, *OF_USER, b"after\n"],
        IDLE[:3],
        [TRACEBACK, *[b"  " + bytes(100).replace(b"\0", b"x") + b"\n"] * 2000, b"RecursionError\n"],
    ],
    ids=["plain", "of the user", "another error", "two in a row", "without an end", "long"],
)
def test_other_lines_arrive_in_order(lines: list[bytes]) -> None:
    assert b"".join(without_noise(lines)) == b"".join(lines)


def test_the_traceback_of_an_idle_worker_is_left_out() -> None:
    assert b"".join(without_noise([b"a\n", *IDLE, INCUBATOR, *OF_USER, *IDLE, b"b\n"])) == b"".join([b"a\n", *OF_USER, b"b\n"])
