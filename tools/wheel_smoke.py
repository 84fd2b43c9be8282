"""Checks an installed wheel: its version, its help, a broker in a program, and a broker on the command line.

`python wheel_smoke.py VERSION` runs with an interpreter that has Ottla installed, in a directory without a source tree.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS_MAX = 120


def ottla(*arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments], input=text, text=True, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        sys.exit(f"ottla {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def broker_in_a_program() -> None:
    from ottla.testing import Broker

    with Broker() as broker:
        broker.add_record("greetings", "hello", key="en")
        assert [(record.key, record.value) for record in broker.records("greetings")] == [(b"en", b"hello")]


def broker_by_the_command_line(directory: Path) -> None:
    command = [sys.executable, "-m", "ottla", "start", "--port", "0", "--data-dir", str(directory / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], SECONDS_MAX)[0], "the broker did not get ready"
        ready = process.stdout.readline().split()
        assert ready[:1] == ["READY"], ready
        ottla("produce", "greetings", "-b", ready[1], text="hello\n")
        assert ottla("consume", "greetings", "-b", ready[1], "--from-beginning", "-e", "-q") == "hello\n"
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main(version: str) -> None:
    import ottla as package

    assert os.getcwd() not in (os.path.dirname(os.path.dirname(package.__file__)), ""), "this is a source tree, not an installed wheel"
    assert version in ottla("--version")
    assert "usage" in ottla("--help").lower()
    broker_in_a_program()
    with tempfile.TemporaryDirectory() as directory:
        broker_by_the_command_line(Path(directory))


if __name__ == "__main__":
    main(sys.argv[1])
