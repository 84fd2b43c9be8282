"""What stands behind the Tab key: commands, options, and names from the broker in time or not at all."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time

import pytest

from ottla.cli.completion import SCRIPTS, candidates
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def test_commands_verbs_and_options() -> None:
    assert candidates(["top"]) == ["topic"]
    assert {"list", "create", "delete"} <= set(candidates(["topic", ""]))
    assert candidates(["topic", "desc"]) == ["describe"]
    assert "--isolation-level" in candidates(["consume", "--iso"])
    assert candidates(["topic", "list", "-o", "j"]) == ["json", "jsonl"]
    assert candidates(["completion", "z"]) == ["zsh"]
    assert candidates(["nothing", ""]) == []
    assert candidates(["topic", "nothing", ""]) == []
    assert candidates([""])[0] < candidates([""])[-1]


def test_names_of_topics_and_groups(broker: Broker, topic: str, ottla: Ottla) -> None:
    server = ["-b", broker.bootstrap_server]
    assert candidates(["consume", *server, "--topic", topic[:9]]) == [topic]
    assert topic in candidates(["topic", "describe", *server, ""])
    assert ottla("group", "reset-offsets", "--group", "g-tab", "--topic", topic, "--to-earliest", "--execute").code == 0
    assert candidates(["group", "describe", *server, "--group", "g-t"]) == ["g-tab"]


def test_a_silent_broker_costs_no_more_than_the_deadline() -> None:
    """Somebody listens and never answers: the shell gets its prompt back, with nothing and without an error."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = ["complete-words", "consume", "-b", f"127.0.0.1:{listener.getsockname()[1]}", "--topic", ""]
        code = f"import time; started = time.time(); from ottla.cli.completion import complete; complete({words[1:]!r})"
        started = time.monotonic()
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
        assert time.monotonic() - started < 5
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_nobody_there() -> None:
    assert candidates(["consume", "-b", "127.0.0.1:1", "--topic", ""]) == []
    assert candidates(["consume", "--profile", "none", "--topic", ""]) == []


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_scripts(offline: Ottla, shell: str) -> None:
    script = offline("completion", shell).out
    assert "complete-words" in script
    if shell == "bash" and shutil.which("bash"):
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_bash_completes(offline: Ottla) -> None:
    """The script in a real shell, with the program in its place."""
    program = f'ottla() {{ "{sys.executable}" -m ottla.cli.main "$@"; }}\n'
    line = 'COMP_WORDS=(ottla topic desc); COMP_CWORD=2; _ottla; printf "%s\\n" "${COMPREPLY[@]}"\n'
    found = subprocess.run(["bash", "-c", program + offline("completion", "bash").out + line], capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["describe"]
