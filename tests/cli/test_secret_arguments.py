"""Passwords among arguments are accepted, and each time a line says how to keep them out of the list of processes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from ottla.cli.broker.start import OPTIONS, read_config
from ottla.cli.command import add_options
from ottla.cli.profile_file import profile_properties
from ottla.cli.secret_arguments import is_secret
from tests.cli.conftest import Ottla

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
