"""Completion: commands, options, and names from the broker in time or not at all."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.completion import SCRIPTS, candidates
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

ROOT = Path(__file__).parents[2]


def test_commands_verbs_and_options() -> None:
    assert candidates(["topi"]) == ["topic"]
    assert {"list", "create", "delete"} <= set(candidates(["topic", ""]))
    assert candidates(["topic", "desc"]) == ["describe"]
    assert "--isolation-level" in candidates(["consume", "--iso"])
    assert candidates(["topic", "list", "-o", "j"]) == ["json", "jsonl"]
    assert candidates(["completion", "z"]) == ["zsh"]
    assert candidates(["--help"]) == ["--help", "--help-json"]
    assert candidates(["topics", "desc"]) == ["describe"]
    assert "--isolation-level" in candidates(["topic", "consume", "--iso"])
    assert candidates(["nothing", ""]) == []
    assert candidates(["topic", "nothing", ""]) == []
    assert candidates([""])[0] < candidates([""])[-1]


def test_names_of_topics_and_groups(broker: Broker, topic: str, ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.completion.DEADLINE_S", 60.0)  # a busy machine may take longer than a person would wait
    server = ["-b", broker.bootstrap_server]
    assert candidates(["consume", *server, "--topic", topic[:-1]]) == [topic]
    assert topic in candidates(["topic", "describe", *server, ""])
    assert ottla("group", "reset-offsets", "--group", "g-tab", "--topic", topic, "--to-earliest", "--execute").code == 0
    assert candidates(["group", "describe", *server, "--group", "g-ta"]) == ["g-tab"]
    assert ottla("share-group", "reset-offsets", "g-tab-shared", "--topic", topic, "--to-earliest", "--execute").code == 0
    assert candidates(["share-group", "describe", *server, "g-ta"]) == ["g-tab-shared"]
    assert candidates(["consume", topic, *server, "--share-group", "g-ta"]) == ["g-tab-shared"]
    assert candidates(["group", "describe", *server, "--group", "g-ta"]) == ["g-tab", "g-tab-shared"]


def test_a_silent_broker_costs_no_more_than_the_deadline() -> None:
    """A server that accepts and never answers: the shell gets its prompt back, without candidates and without an error."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = ["complete-words", "consume", "-b", f"127.0.0.1:{listener.getsockname()[1]}", "--topic", ""]
        code = f"from ottla.cli.completion import complete; complete({words[1:]!r})"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=12, check=False)  # a command's is 15
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_broker_means_no_candidates() -> None:
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


PROGRAM = {
    "fish": 'function ottla; "{python}" -m ottla.cli.main $argv; end\n',
    "zsh": 'ottla() {{ if [[ $1 == complete-words ]]; then "{python}" -m ottla.cli.main "$@"; else print -r -- "RAN" "$*" "."; fi }}\n',
}
"""The program under its name. zsh completes only at a prompt, so its completed line is run."""


@pytest.fixture
def fish(offline: Ottla, tmp_path: Path, need_program: Callable[[str], str]) -> Callable[[str], list[str]]:
    """What fish offers for a line."""
    shell = need_program("fish")
    script = tmp_path / "ottla.fish"
    script.write_text(PROGRAM["fish"].format(python=sys.executable) + offline("completion", "fish").out)

    def complete(line: str) -> list[str]:
        command = [shell, "--no-config", "-c", f"source {script}; cd {tmp_path}; complete -C '{line}'"]
        environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        assert done.stderr == ""
        return [found.partition("\t")[0] for found in done.stdout.splitlines()]

    return complete


def test_fish_completes(fish: Callable[[str], list[str]], broker: Broker, topic: str) -> None:
    assert fish("ottla topic des") == ["describe"]
    assert fish("ottla config describe --entity-type b") == ["brokers", "broker-loggers"]
    assert fish("ottla topic list --exclude-int") == ["--exclude-internal"]
    until = time.monotonic() + 120  # no names are offered when a busy machine takes longer than a person would wait
    while (names := fish(f"ottla consume -b {broker.bootstrap_server} --topic {topic[:10]}")) == [] and time.monotonic() < until:
        continue
    assert names == [topic]
    assert fish("ottla log dump otta") == fish("ottla log dump ./nothing") == []
    assert fish("ottla log dump ottl") == ["ottla.fish"]


def _type_at_zsh(shell: str, script: Path, typed: str) -> str:
    """What a zsh at a terminal has shown once the line that was completed has been run."""
    import pty

    environment = {**os.environ, "HOME": str(script.parent), "ZDOTDIR": str(script.parent), "PYTHONPATH": str(ROOT), "TERM": "dumb"}
    terminal, its_end = pty.openpty()
    command = [shell, "-f", "-i"]
    process = subprocess.Popen(
        command, stdin=its_end, stdout=its_end, stderr=its_end, env=environment, cwd=script.parent, start_new_session=True
    )
    os.close(its_end)
    shown = ""
    try:
        os.write(terminal, f"source {script} && print REA''DY\n".encode())
        for wanted, answer in (("READY", typed + "\t\n"), ("RAN [^.]*\\.", "")):
            while not re.search(wanted, shown) and (ready := select.select([terminal], [], [], 30)[0]):
                shown += os.read(ready[0], 65536).decode(errors="replace")
            os.write(terminal, answer.encode())
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return shown


@pytest.mark.parametrize(
    ("typed", "ran"),
    [
        ("ottla topic des", "topic describe"),
        ("ottla topic list --exclude-int", "topic list --exclude-internal"),
        ("ottla log dump ott", "log dump ottla"),
    ],
)
def test_zsh_completes(offline: Ottla, tmp_path: Path, need_program: Callable[[str], str], typed: str, ran: str) -> None:
    script = tmp_path / "ottla"
    script.write_text(PROGRAM["zsh"].format(python=sys.executable) + offline("completion", "zsh").out)
    shown = _type_at_zsh(need_program("zsh"), script, typed)
    assert f"RAN {ran}" in shown.replace("\r", ""), shown
