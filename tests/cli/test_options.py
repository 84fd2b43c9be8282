"""Which source of a client property wins, and how lists of them may be written."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from ottla.cli.broker.start import OPTIONS, read_config
from ottla.cli.command import UsageError, add_options, confirm, merged, parse_pairs
from ottla.cli.command_groups import GROUPS, load_commands
from ottla.cli.options import connect, properties_of, read_properties
from ottla.cli.parser import CONNECTION
from ottla.cli.profile_file import profile_properties
from ottla.cli.secret_arguments import is_secret
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def _args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser, CONNECTION)
    return parser.parse_args(words)


def test_precedence(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=from-file\n")
    environment = {"KAFKA_BOOTSTRAP_SERVERS": "environment:1", "XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "ottla").mkdir()
    (tmp_path / "ottla" / "profiles.toml").write_text('current = "p"\n[profiles.p]\n"bootstrap.servers" = "profile:1"\nacks = "1"\n')

    def servers(*words: str, environment: dict[str, str] = environment) -> str:
        return properties_of(_args(*words), environment)["bootstrap.servers"]

    assert servers(environment={"XDG_CONFIG_HOME": str(tmp_path)}) == "profile:1"
    assert servers() == "environment:1"
    assert servers(environment={**environment, "OTTLA_BOOTSTRAP": "ours:1"}) == "ours:1"
    assert servers("--command-config", str(file)) == "file:1"
    assert servers("--command-config", str(file), "-X", "bootstrap.servers=x:1") == "x:1"
    assert servers("--command-config", str(file), "-X", "bootstrap.servers=x:1", "-b", "option:1") == "option:1"
    everything = properties_of(_args("--command-config", str(file), "-b", "option:1"), environment)
    assert everything == {"bootstrap.servers": "option:1", "client.id": "from-file", "acks": "1"}


@pytest.mark.parametrize("option", ["-b", "--bootstrap-server", "--bootstrap-servers", "--bootstrap", "--brokers"])
def test_names_of_the_bootstrap_option(option: str) -> None:
    assert properties_of(_args(option, "h:1"), {"HOME": "/nowhere", "XDG_CONFIG_HOME": "/nowhere"})["bootstrap.servers"] == "h:1"


@pytest.mark.parametrize("option", ["--command-config", "--producer.config", "--consumer.config", "--admin.config"])
def test_names_of_the_file_option(option: str, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("a=b")
    assert properties_of(_args(option, str(file)), {"XDG_CONFIG_HOME": "/nowhere"}) == {"a": "b"}


def test_librdkafkas_names() -> None:
    found = properties_of(_args("-X", "metadata.broker.list=h:1", "-X", "sasl.mechanisms=PLAIN"), {"XDG_CONFIG_HOME": "/nowhere"})
    assert found == {"bootstrap.servers": "h:1", "sasl.mechanism": "PLAIN"}


def test_precedence_does_not_depend_on_which_name_a_source_uses(tmp_path: Path) -> None:
    environment = {"KAFKA_BOOTSTRAP_SERVERS": "environment:1", "XDG_CONFIG_HOME": "/nowhere"}
    found = properties_of(_args("-X", "metadata.broker.list=x:1", "-b", "option:1"), environment)
    assert found == {"bootstrap.servers": "option:1"}
    (file := tmp_path / "f").write_text("sasl.mechanisms=PLAIN")
    assert properties_of(_args("--command-config", str(file), "-X", "sasl.mechanism=SCRAM-SHA-256"), {"XDG_CONFIG_HOME": "/nowhere"}) == {
        "sasl.mechanism": "SCRAM-SHA-256"
    }


@pytest.mark.parametrize("texts", [["a=1 b=2"], ["a=1,b=2"], ["a=1", "b=2"], [" a=1 , b=2 "]])
def test_lists_in_every_form(texts: list[str]) -> None:
    assert parse_pairs(texts, "-X") == {"a": "1", "b": "2"}


def test_values_with_commas() -> None:
    assert parse_pairs(["cleanup.policy=[compact,delete],x=1"], "-X") == {"cleanup.policy": "compact,delete", "x": "1"}
    assert parse_pairs(["bootstrap.servers=a:1,b:2"], "-X") == {"bootstrap.servers": "a:1,b:2"}
    jaas = "sasl.jaas.config=Module required username=u password='p, q';"
    assert parse_pairs([jaas], "-X") == {"sasl.jaas.config": "Module required username=u password='p, q';"}
    for secret in ("[a, b=c]", "a,b=c", " "):
        assert parse_pairs([f"sasl.password={secret}", "x=1"], "-X") == {"sasl.password": secret, "x": "1"}
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_pairs(["=x"], "-X")


def test_merged_lists() -> None:
    assert merged(["a,b", "c"], None, [" d ,"]) == ["a", "b", "c", "d"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "f"
    binary.write_bytes(b"\xff\xfe")
    for path, message in ((binary, "not a text file"), (tmp_path / "none", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(UsageError, match=message):
            read_properties(str(path))


@pytest.mark.parametrize("words", [("-b", "x:y"), ("-X", "request.timeout.ms=soon"), ("-X", "security.protocol=MAGIC")])
def test_properties_that_make_no_sense(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    with pytest.raises(UsageError):
        connect(_args(*words))


def test_destructive_commands_ask_first() -> None:
    with pytest.raises(UsageError, match="--yes"):
        confirm(argparse.Namespace(yes=False), "Delete it?")
    confirm(argparse.Namespace(yes=True), "Delete it?")


def test_the_older_name_of_the_connection(offline: Ottla, broker: Broker, topic: str) -> None:
    """On our own commands too; elsewhere --broker-list means ids."""
    where = ("--broker-list", broker.bootstrap_server)
    assert offline("produce", topic, "--generate", "3", *where).code == 0
    assert offline("offsets", topic, "-o", "plain", *where).out == f"{topic}:0:3\n"
    assert offline("bench", "consumer", "--topic", topic, "--num-records", "3", *where).code == 0
    read = offline("consume", topic, "-e", "--new-consumer", "-b", broker.bootstrap_server)
    assert (read.code, read.out.count("\n")) == (0, 3)
    assert read.err.startswith("--new-consumer has no effect any more\n")


def test_every_list_and_description_can_be_watched() -> None:
    commands = {f"{name} {verb}": command for name in GROUPS for verb, command in load_commands(name).items() if verb != name}
    listing = [name for name in commands if name.split()[1] in ("list", "describe")]
    assert len(listing) > 10
    assert [name for name in listing if not commands[name].may_watch] == []


# Passwords among arguments are accepted, and each time a line says how to keep them out of the list of processes


SHOWN = "warning: the list of processes shows"


@pytest.mark.parametrize(
    ("words", "name", "way"),
    [
        (("topic", "list", "-X", "sasl.password=hush"), "sasl.password", "--command-config FILE instead of -X"),
        (("topic", "list", "--command-property", "a=b", "ssl.key.password=hush"), "ssl.key.password", "--command-config FILE"),
        (("profile", "create", "p", "sasl.jaas.config=x password=hush;"), "sasl.jaas.config", "--command-config FILE"),
        (("profile", "set", "p", "sasl.oauthbearer.client.credentials.client.secret=hush"), "client.secret", "--command-config FILE"),
        (("config", "alter", "--broker", "0", "--add-config", "ssl.keystore.password=hush"),
         "ssl.keystore.password", "--add-config-file FILE"),
        (("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "a", "--add-config", "SCRAM-SHA-256=[password=hush]"),
         "SCRAM-SHA-256", "`ottla user add`"),
    ],
)  # fmt: skip
def test_a_password_as_an_argument_has_one_line_of_warning(offline: Ottla, words: tuple[str, ...], name: str, way: str) -> None:
    bootstrap = () if words[0] == "profile" else ("--bootstrap-server", "127.0.0.1:1")
    err = offline(*words, *bootstrap).err
    assert err.count(SHOWN) == 1 and name in err and way in err and "hush" not in err


@pytest.mark.parametrize("words", [("topic", "list", "-X", "client.id=a"), ("profile", "create", "p", "ssl.truststore.type=PEM")])
def test_other_arguments_have_none(offline: Ottla, words: tuple[str, ...]) -> None:
    assert SHOWN not in offline(*words).err


def test_a_profile_takes_passwords_from_a_file(offline: Ottla, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("sasl.password=hush\nclient.id=file\n")
    for verb in ("create", "set"):
        made = offline("profile", verb, "p", "client.id=argument", "--command-config", tmp_path / "client.properties")
        assert (made.code, made.err) == (0, "")
    assert profile_properties("p", os.environ) == {"sasl.password": "hush", "client.id": "argument"}


def test_a_broker_says_so_in_its_log() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, OPTIONS)
    secrets = ["sasl.jaas.config=x", "ottla.sasl.plain.users.alice=hush", "listener.name.a.ssl.keystore.password=hush"]
    others = ["listeners=A://:1", "listener.security.protocol.map=A:PLAINTEXT"]
    words = [part for setting in (*secrets, *others) for part in ("--set", setting)]
    notices = [notice for notice in read_config(parser.parse_args(words))[1] if "list of processes" in notice.text]
    assert len(notices) == 1 and notices[0].is_warning and "hush" not in notices[0].text
    assert all(secret.partition("=")[0] in notices[0].text for secret in secrets) and "listeners" not in notices[0].text


def test_which_names_are_secret() -> None:
    assert is_secret("ssl.keystore.key") and is_secret("ssl.keystore.password") and is_secret("SCRAM-SHA-512")
    assert not any(map(is_secret, ("ssl.keystore.location", "sasl.oauthbearer.token.endpoint.url", "ssl.keystore.type", "retention.ms")))
