"""One broker for the whole folder, and the program called in this process: exit code, standard output and standard error."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.cli.main import main
from ottla.client.addresses import VARIABLES
from ottla.testing.broker import Broker


class Result(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Ottla = Callable[..., Result]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"topic-{uuid.uuid4().hex[:12]}")


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hides the profiles and variables of the user who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def offline(capsys: pytest.CaptureFixture[str]) -> Ottla:
    """`offline("log", "dump", path)`: the program as it is."""

    def run(*words: object) -> Result:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def ottla(offline: Ottla, broker: Broker) -> Ottla:
    """The same, connected to the broker."""

    def run(*words: object) -> Result:
        return offline(*words, "-b", broker.bootstrap_server)

    return run
