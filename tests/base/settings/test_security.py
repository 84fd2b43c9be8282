"""Names of settings for one listener, and users of PLAIN."""

from __future__ import annotations

import pytest

from ottla.base.settings.jaas import PLAIN, SCRAM
from ottla.base.settings.security import is_family_name, listener_names, plain_users, split_listener_name
from ottla.base.settings.setting import SettingError


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("listener.name.internal.sasl.enabled.mechanisms", ("internal", "", "sasl.enabled.mechanisms")),
        ("listener.name.internal.scram-sha-512.sasl.jaas.config", ("internal", "scram-sha-512", "sasl.jaas.config")),
        ("listener.name.internal.plain.connections.max.reauth.ms", ("internal", "plain", "connections.max.reauth.ms")),
        ("listener.name.internal.gssapi.sasl.jaas.config", None),
        ("listener.name.internal.log.dirs", None),
        ("sasl.jaas.config", None),
    ],
)
def test_names(name: str, parts: tuple[str, str, str] | None) -> None:
    assert split_listener_name(name) == parts
    assert is_family_name(name) == (parts is not None)
    if parts is not None:
        assert name in listener_names(parts[0].upper(), parts[2], parts[1].upper())


def test_users() -> None:
    assert plain_users(None, None) == {}
    assert plain_users(f"{PLAIN} required user_a=1;", " b=2=3  c=4 ") == {"a": "1", "b": "2=3", "c": "4"}
    for jaas, pairs in ((f"{SCRAM} required;", None), (None, "b"), (None, "b="), (None, "=topsecret")):
        with pytest.raises(SettingError) as refusal:
            plain_users(jaas, pairs)
        assert "topsecret" not in str(refusal.value)
