"""Every command with `-o json`: what goes wrong is one object on stderr, whatever it is that goes wrong.

A command of several items shows on stdout, as its result, what became of each; else there is nothing on stdout.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from ottla.cli.examples import Example
from ottla.cli.main import EXIT_NO_CONNECTION, EXIT_REFUSED, EXIT_USAGE, main
from tests.cli.conftest import Ottla, Result
from tests.cli.every_command import COMMANDS, EXAMPLES
from tests.client.fake_broker import FakeBroker

FORMS = (("-o", "json"), ("-ojson",), ("--output=json",))
REPORTS = (
    "check eos", "security check", "doctor", "config check", "cluster health", "why partition", "why reader", "why writer",
)  # fmt: skip
"""Commands whose failures are results: they go to stdout."""
FILES = {
    "orders.json": "{}\n", "orders.csv": "a\n1\n", "export.json": '{"payload": "x"}\n', "password.txt": "secret\n",
    "delete.json": '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1}], "version": 1}',
    "topics.json": '{"topics": [{"topic": "orders"}], "version": 1}',
    "plan.json": '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [0]}]}',
    "order.proto": 'syntax = "proto3"; message Order { string item = 1; }',
}  # fmt: skip

OFFLINE = ("features version-mapping", "features feature-dependencies")
CONNECTED = [
    name
    for name, command in COMMANDS.items()
    if command.has_connection and command.has_output and name not in (*REPORTS, *OFFLINE)
]


def the_object(result: Result, code: int) -> dict[str, str]:
    """The one object that is on stderr."""
    assert (result.code, result.err.count("\n")) == (code, 1), result
    assert result.out == "" or ("error" in result.out and result.json()), result
    found: dict[str, str] = json.loads(result.err)["error"]
    assert set(found) == {"name", "message"} and all(found.values()), found
    return found


def words_of(example: Example) -> list[str]:
    """The words of an example's own program, without pipes and redirections."""
    line = example.line.rpartition("| ")[2].partition(" > ")[0]
    words = shlex.split(line)[1:]
    return words if not any(word in ("-o", "--output") for word in words) else []


def simple_example(name: str) -> list[str]:
    """An example of a command that needs nothing but a broker, and does not choose its output."""
    for example in EXAMPLES[name]:
        words = words_of(example)
        if words and example.needs in ("", "schema") and words[: len(name.split())] == name.split():
            return words
    return []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the examples name."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].has_output])
def test_an_option_that_no_command_has(offline: Ottla, name: str) -> None:
    for form in FORMS:
        assert the_object(offline(*name.split(), "--no-such-option", *form), EXIT_USAGE)["name"] == "USAGE"


@pytest.mark.parametrize("name", [name for name in CONNECTED if simple_example(name)])
def test_a_broker_that_is_away_and_one_that_serves_nothing(offline: Ottla, place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*simple_example(name), "-o", "json", "-X", "request.timeout.ms=300"]
    with (place / "orders.json").open() as stdin, FakeBroker({}) as broker:
        monkeypatch.setattr("sys.stdin", stdin)
        assert the_object(offline(*words, "-b", "127.0.0.1:1"), EXIT_NO_CONNECTION)["name"] == "NETWORK_EXCEPTION"
        result = offline(*words, "-b", broker.address)
    if result.code:
        names = {EXIT_REFUSED: ("UNSUPPORTED_VERSION", "UNKNOWN_TOPIC_OR_PARTITION"), EXIT_USAGE: ("USAGE",)}
        assert the_object(result, result.code)["name"] in names[result.code]


def test_a_file_that_cannot_be_read_or_written(offline: Ottla, place: Path) -> None:
    (place / "closed").mkdir()
    (place / "taken").write_text("")
    assert the_object(offline("config", "check", "closed", "-o", "json"), EXIT_USAGE)["name"] == "USAGE"
    assert the_object(offline("log", "dump", "nowhere", "-o", "json"), EXIT_REFUSED)["name"] == "CORRUPT_FILE"
    assert the_object(offline("shims", "install", "taken/bin", "-o", "json"), EXIT_REFUSED)["name"] == "REFUSED"


def test_output_that_cannot_be_written(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        code = main(["profile", "list", "-o", "json"])
    assert "no space left" in the_object(Result(code, "", capsys.readouterr().err), EXIT_REFUSED)["message"]
