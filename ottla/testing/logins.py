"""Users of a broker for tests, and the options with which each kind of client logs in as one of them.

A broker with users has one listener, with SASL; each user may log in by PLAIN and by SCRAM with the same password. The administrator is a
user more, who may do everything: the conveniences of the fixture log in as it, and so do clients for which no user is named.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.base.settings.setting import SettingError

if TYPE_CHECKING:
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.security import Security

ADMINISTRATOR = "ottla-admin"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = MECHANISMS[1:]
PROTOCOL = "SASL_PLAINTEXT"
_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_OWN = ("listeners", "sasl.enabled.mechanisms", "sasl.jaas.config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    """Passwords by user; not shown."""

    passwords: Mapping[str, str] = field(repr=False)
    mechanism: str = SCRAM[0]
    """By which clients log in unless another is named."""

    def properties(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """The options of librdkafka and of `ottla.client`. `ValueError` for a user or a mechanism that the broker does not have."""
        name = user or ADMINISTRATOR
        chosen = mechanism or self.mechanism
        if name not in self.passwords:
            known = ", ".join(found for found in self.passwords if found != ADMINISTRATOR)
            raise ValueError(f"the broker has no user {name!r}; there are: {known}")
        if chosen not in MECHANISMS:
            raise ValueError(f"the mechanism {chosen!r} is none of {', '.join(MECHANISMS)}")
        return {
            "security.protocol": PROTOCOL, "sasl.mechanism": chosen, "sasl.username": name, "sasl.password": self.passwords[name],
        }  # fmt: skip

    def java_properties(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """The same for clients in Java, and for files of client properties."""
        found = self.properties(user, mechanism)
        module = _MODULES.get(found["sasl.mechanism"], "scram.ScramLoginModule")
        name, password = (_quoted(found[f"sasl.{key}"]) for key in ("username", "password"))
        line = f"org.apache.kafka.common.security.{module} required username={name} password={password};"
        return {"security.protocol": PROTOCOL, "sasl.mechanism": found["sasl.mechanism"], "sasl.jaas.config": line}

    def security(self) -> Security:
        """The administrator's login."""
        from ottla.client.security import Security

        return Security(self.properties(mechanism="PLAIN"))

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """The broker's settings with these users. `ValueError` where one of them contradicts the users."""
        for name in _OWN:
            if name in given:
                raise ValueError(f"users= sets {name} by itself; leave out one of the two")
        found = {**given, "sasl.enabled.mechanisms": ",".join(MECHANISMS)}
        found.update({f"ottla.sasl.plain.users.{name}": password for name, password in self.passwords.items()})
        if given.get("authorizer.class.name"):
            found["super.users"] = ";".join(filter(None, (given.get("super.users"), f"User:{ADMINISTRATOR}")))
        return found

    def store(self, cluster: Cluster) -> None:
        """Adds the SCRAM credentials, once the broker runs."""
        from ottla.client.blocking import scram_admin

        for name, password in self.passwords.items():
            scram_admin.alter_scram(cluster, name, passwords=dict.fromkeys(SCRAM, (password, scram_admin.ITERATIONS)))


def logins_of(users: Mapping[str, str] | None, administrator_password: str = "") -> Logins | None:
    """None where there are no users. `ValueError` for a user who cannot be."""
    if not users:
        return None
    for name, password in users.items():
        if not name or not password or name == ADMINISTRATOR:
            raise ValueError(f"{name!r} cannot be a user: a user has a name and a password, and {ADMINISTRATOR!r} exists already")
    return Logins(passwords={ADMINISTRATOR: administrator_password or secrets.token_urlsafe(18), **users})


def is_secret(setting: str) -> bool:
    """Whether a setting must not be an argument of a process, which every user of the machine can read."""
    return setting.startswith("ottla.sasl.plain.users") or any(word in setting for word in ("password", "jaas", ".key", "secret"))


def properties_text(settings: Mapping[str, Any]) -> str:
    """The settings as a file of Java properties."""
    return "".join(f"{_escaped(name, is_key=True)}={_escaped(str(value))}\n" for name, value in settings.items())


def _escaped(text: str, *, is_key: bool = False) -> str:
    found = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if is_key:
        for letter in " =:#!":
            found = found.replace(letter, f"\\{letter}")
    return f"\\{found}" if found.startswith(" ") else found


def _quoted(text: str) -> str:
    if "\n" in text:
        raise SettingError("a JAAS line has no room for a password of several lines")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
