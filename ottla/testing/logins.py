"""Users and certificates of a broker for tests, and the client options for logging in as one of the users.

A broker with users has one listener, with SASL. Each user may log in by PLAIN and by SCRAM with the same password. Clients without a named
user log in as the administrator, who may do everything. With TLS the broker has a certificate for this machine, signed by its own
authority.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.settings.setting import SettingError

if TYPE_CHECKING:
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.security import Security

ADMINISTRATOR = "ottla-admin"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = MECHANISMS[1:]
_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_OWN = ("listeners", "sasl.enabled.mechanisms", "sasl.jaas.config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    """Passwords by user; empty if clients do not log in. `authority` is the certificate file of the authority; empty without TLS."""

    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    authority: str = ""
    mechanism: str = SCRAM[0]

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.passwords else "") + ("SSL" if self.authority else "PLAINTEXT")

    @property
    def has_tls(self) -> bool:
        return bool(self.authority)

    def properties(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """Returns options for librdkafka and `ottla.client`. Raises `ValueError` for an unknown user or mechanism."""
        found = {"security.protocol": self.protocol}
        if self.authority:
            found["ssl.ca.location"] = self.authority
        return {**found, **self._login(user, mechanism)} if self.passwords or user else found

    def _login(self, user: str | None, mechanism: str | None) -> dict[str, str]:
        name = user or ADMINISTRATOR
        chosen = mechanism or self.mechanism
        if name not in self.passwords:
            known = ", ".join(found for found in self.passwords if found != ADMINISTRATOR) or "none"
            raise ValueError(f"the broker has no user {name!r}; there are: {known}")
        if chosen not in MECHANISMS:
            raise ValueError(f"the mechanism {chosen!r} is none of {', '.join(MECHANISMS)}")
        return {"sasl.mechanism": chosen, "sasl.username": name, "sasl.password": self.passwords[name]}

    def java_properties(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """Returns options for clients in Java, and for files of client properties."""
        found = self.properties(user, mechanism)
        if self.authority:
            found.update({"ssl.truststore.type": "PEM", "ssl.truststore.location": found.pop("ssl.ca.location")})
        if "sasl.mechanism" not in found:
            return found
        name, password = found.pop("sasl.username"), found.pop("sasl.password")
        return {**found, "sasl.jaas.config": jaas_line(found["sasl.mechanism"], name, password)}

    def security(self) -> Security:
        """Returns the administrator's login by PLAIN, which works before the SCRAM credentials are stored."""
        from ottla.client.security import Security

        return Security(self.properties(mechanism="PLAIN") if self.passwords else self.properties())

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Returns the broker's settings with these users. Raises `ValueError` for a setting that contradicts the users."""
        for name in _OWN:
            if name in given:
                raise ValueError(f"users= and tls= set {name} by themselves; remove users= and tls=, or the setting")
        if not self.passwords:
            return dict(given)
        found = {**given, "sasl.enabled.mechanisms": ",".join(MECHANISMS)}
        found.update({f"ottla.sasl.plain.users.{name}": password for name, password in self.passwords.items()})
        if given.get("authorizer.class.name"):
            found["super.users"] = ";".join(filter(None, (given.get("super.users"), f"User:{ADMINISTRATOR}")))
        return found

    def store(self, cluster: Cluster) -> None:
        """Creates the SCRAM credentials in the running broker."""
        from ottla.client.blocking import scram_admin

        for name, password in self.passwords.items():
            scram_admin.alter_scram(cluster, name, passwords=dict.fromkeys(SCRAM, (password, scram_admin.ITERATIONS)))


def logins_of(users: Mapping[str, str] | None, *, authority: str = "", administrator_password: str = "") -> Logins | None:
    """Returns the logins; None without users and certificates. Raises `ValueError` for an invalid user name."""
    if not users:
        return Logins(authority=authority) if authority else None
    for name, password in users.items():
        if not name or not password or name == ADMINISTRATOR:
            raise ValueError(f"{name!r} cannot be a user: a user has a name and a password, and {ADMINISTRATOR!r} exists already")
    return Logins(passwords={ADMINISTRATOR: administrator_password or secrets.token_urlsafe(18), **users}, authority=authority)


class CertificatesMissing(RuntimeError):
    """Certificates cannot be made; the message says what is missing."""


def make_certificates(directory: Path) -> tuple[str, str]:
    """Creates an authority and a broker's certificate. Returns two files: the authority's certificate, and the broker's key and
    certificate. Raises `CertificatesMissing`.
    """
    command = [sys.executable, "-m", "ottla.cli.main", "security", "cert", "broker", "--dir", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory.parent)
    if done.returncode:
        raise CertificatesMissing(done.stderr.strip())
    return str(directory / "ca.pem"), str(directory / "broker.pem")


def is_secret(setting: str) -> bool:
    """Whether a setting must not be an argument of a process, because every user of the machine can read arguments."""
    return setting.startswith("ottla.sasl.plain.users") or any(word in setting for word in ("password", "jaas", ".key", "secret"))


def properties_text(settings: Mapping[str, Any]) -> str:
    return "".join(f"{_escaped(name, is_key=True)}={_escaped(str(value))}\n" for name, value in settings.items())


def _escaped(text: str, *, is_key: bool = False) -> str:
    found = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if is_key:
        for letter in " =:#!":
            found = found.replace(letter, f"\\{letter}")
    return f"\\{found}" if found.startswith(" ") else found


def jaas_line(mechanism: str, name: str, password: str) -> str:
    """Returns the line of `sasl.jaas.config` for PLAIN or SCRAM. Raises `SettingError` if the name or password has several lines."""
    module = _MODULES.get(mechanism, "scram.ScramLoginModule")
    return f"org.apache.kafka.common.security.{module} required username={_quoted(name)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    if "\n" in text:
        raise SettingError("the user name and password in a JAAS line must not have several lines")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
