"""The program as a whole: help, exit codes, one line for every failure, closed pipes, Ctrl-C, and what it imports."""

from __future__ import annotations

import argparse
import ast
import errno
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.analysis import progress
from ottla.analysis.progress import Progress
from ottla.cli.command import Refused, add_options
from ottla.cli.command_groups import GROUPS, NOUNS, VERBS, canonical, load_commands
from ottla.cli.optional import PARTS, library, part
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.client.fake_broker import FakeBroker, HangUp

PROGRAM = [sys.executable, "-m", "ottla.cli.main"]


def test_help_on_each_level(offline: Ottla) -> None:
    overview = offline("--help")
    assert overview.code == 0
    assert all(f"  {name} " in overview.out for name in GROUPS)
    assert offline().code == 2
    assert offline("topic", "--help").code == 0
    assert offline("topic").code == 2
    one = offline("topic", "list", "--help")
    assert one.code == 0
    assert "--bootstrap-server" in one.out
    assert offline("--version").out.startswith("ottla ")


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("help topic", "topic --help"), ("help topic create", "topic create --help"), ("help -h", "--help"), ("version", "--version"),
        ("topics --help", "topic --help"), ("topics ls --help", "topic list --help"), ("topic rm --help", "topic delete --help"),
        ("acl rm --help", "acl remove --help"), ("topic consume --help", "consume --help"), ("topics produce --help", "produce --help"),
        ("record rm --help", "records delete --help"), ("help topic ls", "topic list --help"),
    ],
)  # fmt: skip
def test_other_words_for_the_same_command(offline: Ottla, words: str, same: str) -> None:
    assert offline(*words.split()) == offline(*same.split())


def test_every_other_word_leads_to_a_command() -> None:
    for word, group in NOUNS.items():
        assert word not in GROUPS and group in GROUPS
        assert set(canonical([word])[1:]) <= set(load_commands(group))
    for verb in (verb for verbs in VERBS.values() for verb in verbs):
        assert any(verb in load_commands(group) for group in GROUPS)


def test_help_as_data_has_every_command(offline: Ottla) -> None:
    tree = offline("--help-json").json()
    assert [command["name"] for command in tree["commands"]] == list(GROUPS)
    topics = next(command for command in tree["commands"] if command["name"] == "topic")
    create = next(command for command in topics["commands"] if command["name"] == "create")
    (partitions,) = [option for option in create["options"] if "--partitions" in option["names"]]
    (quiet,) = [option for option in create["options"] if "--quiet" in option["names"]]
    (output,) = [option for option in create["options"] if "--output" in option["names"]]
    assert (partitions["value"], "value" in quiet, output["value"]) == ("N", False, "FORM")
    assert all(command["help"] for command in tree["commands"])


def test_errors_are_an_object_for_programs(offline: Ottla) -> None:
    for words in (("topic", "lst", "-o", "json"), ("topic", "list", "-b", "127.0.0.1:1", "--output=json")):
        result = offline(*words)
        error = json.loads(result.err)["error"]
        assert error["name"] in ("USAGE", "NETWORK_EXCEPTION")
        assert error["message"]
        assert (result.out, result.err.count("\n")) == ("", 1)


ASKING = [
    ("topic", "list"),
    ("topic", "describe", "t"),
    ("group", "list"),
    ("group", "describe", "--group", "g"),
    ("cluster", "status"),
    ("cluster", "api-versions"),
    ("features", "describe"),
    ("config", "describe", "--topic", "t"),
    ("offsets", "--topic", "t"),
    ("txn", "list"),
    ("logdirs",),
    ("consume", "t", "-e"),
    ("metrics",),
]


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_broker_that_is_away(offline: Ottla, words: tuple[str, ...]) -> None:
    result = offline(*words, "-b", "127.0.0.1:1")
    assert (result.code, result.out, result.err.count("\n")) == (3, "", 1) and "cannot reach 127.0.0.1:1: connection refused" in result.err


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_broker_that_never_answers(offline: Ottla, words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = offline(*words, "-b", f"127.0.0.1:{listener.getsockname()[1]}", "-X", "request.timeout.ms=150")
    assert (result.code, result.out, result.err.count("\n")) == (3, "", 1) and "did not answer within 0." in result.err


@pytest.fixture(params=[b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08\0\0\0\x63\0\0\0\0", b"\x7f\xff\xff\xff", b""])
def liar(request: pytest.FixtureRequest) -> Iterator[str]:
    """Answers every connection with the same bytes and hangs up."""

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(request.param)

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_broker_that_answers_nonsense(offline: Ottla, liar: str) -> None:
    for words in ASKING[:6]:
        result = offline(*words, "-b", liar, "-X", "request.timeout.ms=2000")
        assert (result.code, result.out) == (3, ""), words
        assert liar in result.err
        assert result.err.count("\n") == 1


def test_a_broker_that_hangs_up_later(offline: Ottla) -> None:
    def hang_up(_body: object, _version: int) -> object:
        raise HangUp

    with FakeBroker({16: hang_up}) as broker:
        result = offline("group", "list", "-b", broker.address, "-X", "request.timeout.ms=500")
    assert (result.code, result.err.count("\n")) == (3, 1)


def test_what_the_broker_does_not_offer(offline: Ottla) -> None:
    with FakeBroker({}) as broker:
        result = offline("txn", "list", "-b", broker.address, "-o", "json")
    assert result.code == 1
    assert json.loads(result.err)["error"]["name"] == "UNSUPPORTED_VERSION"


# Processes


def _environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}


def test_a_closed_pipe_is_no_error(broker: Broker, topic: str, tmp_path: Path) -> None:
    for _ in range(2):
        broker.add_record(topic, "x" * 60_000)
    command = [*PROGRAM, "consume", topic, "-b", broker.bootstrap_server, "--from-beginning", "-F"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == b"x" * 10
        process.stdout.close()
        for _ in range(2):
            broker.add_record(topic, "x" * 60_000)
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_output_that_cannot_be_written(offline: Ottla, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Full(io.StringIO):
        def __init__(self) -> None:
            super().__init__()
            self.file = open(tmp_path / "output", "wb")  # noqa: SIM115

        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def fileno(self) -> int:
            return self.file.fileno()

    full = Full()
    monkeypatch.setattr(sys, "stdout", full)
    result = offline("--help")
    full.file.close()
    assert (result.code, result.err) == (1, "error: the output: no space left on device\n")


def test_what_the_output_cannot_show_is_replaced(tmp_path: Path) -> None:
    environment = {**_environment(tmp_path), "PYTHONIOENCODING": "ascii"}
    command = [*PROGRAM, "profile", "create", "caf\u00e9"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert (result.stdout, result.stderr) == ("profile caf? created\n", "")


def test_ctrl_c_in_the_middle_of_a_follow(broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.add_record(topic, "first")
    command = [*PROGRAM, "consume", topic, "-b", broker.bootstrap_server, "--from-beginning", "-F"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert b"Traceback" not in process.stderr.read()


def test_watch_repeats_until_ctrl_c(broker: Broker, topic: str, tmp_path: Path) -> None:
    command = [*PROGRAM, "topic", "list", "-b", broker.bootstrap_server, "--watch", "0.1", "-o", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(tmp_path)) as process:
        assert process.stdout is not None
        seen = 0
        while seen < 3:
            seen += f'"{topic}"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
        assert process.returncode == 130


HEAVY = ("asyncio", "uvloop", "ssl", "ottla.server.app", "ottla.handlers", "logging", "yaml", "typing_extensions")


@pytest.mark.parametrize("words", [["--help"], ["topic", "list"], ["topic", "describe"], ["group", "list"]], ids=" ".join)
def test_a_command_imports_no_more_than_it_needs(broker: Broker, tmp_path: Path, words: list[str]) -> None:
    """The start-up time is guarded by the imported modules, not by a clock: `--help` loads no command, a question to a broker no server."""
    words = words if words == ["--help"] else [*words, "-b", broker.bootstrap_server]
    code = "import sys; from ottla.cli.main import main; main(sys.argv[1:]); sys.stderr.write(' '.join(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, env=_environment(tmp_path), check=True)
    loaded = set(result.stderr.split())
    assert "ottla.cli.main" in loaded
    assert loaded.isdisjoint(HEAVY)
    if words == ["--help"]:
        assert not any(name.startswith(("ottla.client", "ottla.wire", "ottla.cli.topics.topic")) for name in loaded)


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, env=_environment(tmp_path), check=True)
    assert result.stdout.startswith("ottla ")


# The table of commands: each word has a module of its name, and the module has the command


@pytest.mark.parametrize("name", GROUPS)
def test_a_command_is_found_in_the_module_of_its_name(name: str) -> None:
    names = {part for module in GROUPS[name].modules.split() for part in module.split(".")}
    assert name.replace("-", "_") in names or name == "restore"  # beside `snapshot`, its inverse


@pytest.mark.parametrize("name", GROUPS)
def test_every_word_has_its_commands(name: str) -> None:
    found = load_commands(name)
    for command in found.values():
        assert command.help.endswith((".", "?"))
        add_options(argparse.ArgumentParser(), command.options)
    assert found


# The optional parts: nothing else imports them, and the program says which package a part lacks


ROOT = Path(__file__).parents[2] / "ottla" / "cli"
PACKAGES = sorted({module.partition(".")[0] for module in PARTS.values()})


def importers_of(package: str) -> list[str]:
    """Modules outside a package that import from it when they run."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
        for_types = {node for guard in guards for node in guard.body}
        names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node not in for_types]
        if path.relative_to(ROOT).parts[0] != package and any(name.startswith(f"ottla.cli.{package}") for name in names):
            found.append(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_else_imports_a_part(package: str) -> None:
    assert importers_of(package) == []
    assert importers_of("records") != [], "the search finds imports"


@pytest.mark.parametrize("name", sorted(PARTS))
def test_every_part_can_be_loaded(name: str) -> None:
    assert part(name) is importlib.import_module(f"ottla.cli.{PARTS[name]}")


def test_a_missing_library_is_named_with_its_package() -> None:
    assert library("json").loads("1") == 1
    with pytest.raises(Refused, match="no_such_library cannot be imported; install it: pip install no-such-library"):
        library("no_such_library.part", "no-such-library")


# The progress bar: a line that is overwritten on a terminal, and nothing elsewhere


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """From here on stderr is a terminal. Not a fixture: pytest puts its own stderr in place again when a test begins."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0)
    monkeypatch.setattr(progress, "SHOWN_EVERY_S", 0)
    return made


def test_a_bar_fills_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with Progress("to t", 200) as bar:
        bar.add(50)
        bar.add(150)
    half, full, gone, end = terminal.getvalue().split("\r")[1:]
    assert half == f"to t [{'#' * 7}{' ' * 23}]  25%"
    assert full == f"to t [{'#' * 30}] 100%"
    assert gone == " " * len(full) and not end


def test_without_a_known_end_the_count_is_shown() -> None:
    bar = Progress("to t", 0)
    bar.add(12345)
    assert bar.line() == "to t 12,345"


@pytest.mark.parametrize("reason", ["quiet", "dumb", "no terminal", "too short"])
def test_nothing_is_shown_without_a_terminal(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    terminal = use_terminal(monkeypatch)
    if reason == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    elif reason == "no terminal":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    elif reason == "too short":
        monkeypatch.setattr(progress, "SHOWN_AFTER_S", 60)
    with Progress("to t", 10, is_quiet=reason == "quiet") as bar:
        bar.add(5)
    assert terminal.getvalue() == ""
