"""The program as a whole: help, exit codes, one line for every failure, closed pipes, Ctrl-C, and what it imports."""

from __future__ import annotations

import errno
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

from ottla.cli.command_groups import ABSENT, GROUPS
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


def test_help_as_data_has_every_command(offline: Ottla) -> None:
    tree = json.loads(offline("--help-json").out)
    assert [command["name"] for command in tree["commands"]] == list(GROUPS)
    topics = next(command for command in tree["commands"] if command["name"] == "topic")
    create = next(command for command in topics["commands"] if command["name"] == "create")
    (partitions,) = [option for option in create["options"] if "--partitions" in option["names"]]
    (quiet,) = [option for option in create["options"] if "--quiet" in option["names"]]
    (output,) = [option for option in create["options"] if "--output" in option["names"]]
    assert (partitions["value"], "value" in quiet, output["value"]) == ("N", False, "FORM")
    assert all(command["help"] for command in tree["commands"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("topics",), "no command 'topics'; did you mean 'topic'? See `ottla --help`.\n"),
        (("topic", "lst"), "no command 'topic lst'; did you mean 'list'? See `ottla topic --help`.\n"),
        (("topic", "list", "--nope"), "unrecognized arguments: --nope; see `ottla topic list --help`\n"),
        (
            ("topic", "create", "a", "--partitons=3", "-z"),
            "arguments: --partitons=3 -z; did you mean --partitions? See `ottla topic create --help`.\n",
        ),
        (("topic", "list", "-o", "xml"), "invalid choice: 'xml'"),
        (("topic", "list", "-b", "host:port:x"), "host:port:x"),
        (("topic", "list", "-b", ""), "no broker is named"),
        (("topic", "list", "-X", "nonsense"), "'nonsense' is not KEY=VALUE"),
        (("topic", "list", "--command-config", "no-such-file"), "cannot read no-such-file"),
        (("topic", "list", "--profile", "none"), "no profile 'none'"),
        (("topic", "list", "-X", "request.timeout.ms=soon"), "soon"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(offline: Ottla, words: tuple[str, ...], message: str) -> None:
    result = offline(*words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_parts_that_do_not_exist_yet_are_refused(offline: Ottla, name: str) -> None:
    result = offline(name, "list", "--anything", "-o", "json")
    assert result.code == 1
    assert json.loads(result.err)["error"]["name"] == "UNSUPPORTED_VERSION"
    assert offline(name, "list").err == f"error: this version does not offer {ABSENT[name]}\n"


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
    assert (result.code, result.out) == (3, "")
    assert "cannot reach 127.0.0.1:1: connection refused" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_broker_that_never_answers(offline: Ottla, words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = offline(*words, "-b", f"127.0.0.1:{listener.getsockname()[1]}", "-X", "request.timeout.ms=150")
    assert (result.code, result.out) == (3, "")
    assert "did not answer within 0." in result.err
    assert result.err.count("\n") == 1


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
        process.communicate(timeout=20)
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
