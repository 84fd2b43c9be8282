"""Named connections: made, used, changed, deleted; what cannot be read is one line."""

from __future__ import annotations

import json
import os
import stat

import pytest

from ottla.cli.profile_file import profile_properties, profiles_path
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def test_the_life_of_a_profile(offline: Ottla, broker: Broker, topic: str) -> None:
    assert offline("profile", "list", "-o", "json").out.strip().endswith("}")
    assert offline("profile", "create", "here", f"bootstrap.servers={broker.bootstrap_server}", "sasl.password=secret").code == 0
    assert topic in offline("topic", "list").out
    assert offline("profile", "create", "away", "bootstrap.servers=127.0.0.1:1").code == 0
    assert topic in offline("topic", "list").out
    assert offline("topic", "list", "--profile", "away").code == 3
    assert offline("profile", "use", "away").code == 0
    assert offline("topic", "list").code == 3
    assert topic in offline("topic", "list", "-b", broker.bootstrap_server).out
    assert offline("profile", "set", "away", f"bootstrap.servers={broker.bootstrap_server}").code == 0
    assert topic in offline("topic", "list").out
    listed = offline("profile", "list", "-o", "json").out
    assert "secret" not in listed
    assert [row["current"] for row in json.loads(listed)["profiles"]] == [True, False]
    assert offline("profile", "delete", "away").code == 0
    assert [row["name"] for row in offline("profile", "list", "-o", "json").json()["profiles"]] == ["here"]


def test_the_file_is_private(offline: Ottla) -> None:
    offline("profile", "create", "a", "sasl.password=p", "sasl.jaas.config=x y='z, w';")
    path = profiles_path(os.environ)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert profile_properties("a", os.environ) == {"sasl.password": "p", "sasl.jaas.config": "x y='z, w';"}


@pytest.mark.parametrize("words", [("create", "a", "x=1"), ("set", "b", "x=1")])
def test_refusals(offline: Ottla, words: tuple[str, ...]) -> None:
    offline("profile", "create", "a", "x=2")
    assert offline("profile", *words).code == 1
    assert profile_properties("a", os.environ) == {"x": "2"}


def test_names_that_are_not_there(offline: Ottla) -> None:
    offline("profile", "create", "a", "x=2")
    for verb in ("use", "delete"):
        result = offline("profile", verb, "b")
        assert (result.code, result.err) == (2, "error: no profile 'b'; there are: a\n")


@pytest.mark.parametrize("content", [b"[profiles", b"x = '\xff'", b"profiles = 3", b"current = [1]"])
def test_a_broken_file(offline: Ottla, content: bytes) -> None:
    offline("profile", "create", "a", "x=2")
    with open(profiles_path(os.environ), "wb") as file:
        file.write(content)
    result = offline("topic", "list")
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_a_name_is_needed_and_no_secret_is_printed(offline: Ottla) -> None:
    for verb in ("create", "set", "use", "delete"):
        refused = offline("profile", verb, "")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
    made = offline("profile", "create", "p", "sasl.password=hush", "sasl.jaas.config=x password=hush;", "-o", "json")
    assert made.code == 0
    assert "hush" not in made.out + offline("profile", "list", "-o", "json").out


@pytest.mark.parametrize("name", ["\U0001f600", "a\x7fb", 'quo"te', "new\nline", "back\\slash"])
def test_names_of_any_letters_are_found_again(offline: Ottla, name: str) -> None:
    assert offline("profile", "create", name, f"client.id={name.strip()}").code == 0
    (found,) = offline("profile", "list", "-o", "json").json()["profiles"]
    assert (found["name"], found["current"], found["properties"]) == (name, True, {"client.id": name})


def test_a_profile_by_its_broker(offline: Ottla, broker: Broker) -> None:
    assert offline("profile", "create", "local", "-b", broker.bootstrap_server).code == 0
    assert offline("topic", "list", "--profile", "local").code == 0
    assert offline("profile", "set", "local", "-b", "127.0.0.1:1").code == 0
    assert offline("topic", "list", "--profile", "local").code == 3
