"""Values of `sasl.jaas.config`: the entries that are read, and the refusals, whose messages show no secret."""

from __future__ import annotations

import pytest

from ottla.base.settings.jaas import PLAIN, SCRAM, parse_jaas
from ottla.base.settings.setting import SettingError


def test_a_line_of_kafkas_documentation() -> None:
    line = parse_jaas(
        'org.apache.kafka.common.security.plain.PlainLoginModule required \\\n'
        '  username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";'.replace("\\\n", "\n")
    )
    assert line.module == PLAIN and line.users == {"admin": "admin-secret", "alice": "alice-secret"}
    assert (line.options["username"], line.options["password"]) == ("admin", "admin-secret")


def test_quotes_blanks_and_escapes() -> None:
    line = parse_jaas(f"{SCRAM} required username='o\\'hara' password=\"a b;\\\"c\\\\\" token = true ; ")
    assert line.options == {"username": "o'hara", "password": 'a b;"c\\', "token": "true"}
    assert parse_jaas(f'{PLAIN} required "user_a b"="secret";').users == {"a b": "secret"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a JAAS line is"),
        (f"{PLAIN} user_a=topsecret;", "a JAAS line is"),
        (f"{PLAIN} required user_a=topsecret", "semicolon"),
        (f'{PLAIN} required user_a="topsecret', "semicolon"),
        (f"{PLAIN} required user_a=topsecret; {SCRAM} required;", "names one login module"),
        ("com.sun.security.auth.module.Krb5LoginModule required keyTab=topsecret;", "Krb5LoginModule is not served"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason) as refusal:
        parse_jaas(text)
    assert "topsecret" not in str(refusal.value) and "\n" not in str(refusal.value)
