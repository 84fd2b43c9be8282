"""A broker that was started outside of the test run, as a fixture: its address, and the client options to connect to it. The options are in
a file for Kafka's clients, as for `--command-config`. `security.protocol`, `sasl.*` and `ssl.*` are applied to every client of the fixture,
under the names of its library. `bootstrap.servers` is used if no address is given. Other options are ignored. Libraries that need PEM files
get temporary files of this user.

The broker's other topics may contain real data, so `reset` deletes only topics that `ForeignBroker` has created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.settings.setting import SettingError
from ottla.base.settings.sources import parse_properties
from ottla.testing.handle import BrokerHandle, Text
from ottla.testing.logins import jaas_line
from ottla.testing.reaper import remove_directory, temporary_directory

if TYPE_CHECKING:
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.security import Security

FAMILIES = ("security.", "sasl.", "ssl.")
_LOGIN = ("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password")
_ALGORITHM = "ssl.endpoint.identification.algorithm"


class ForeignLogins:
    """The client options, in place of `Logins`: the broker's users already exist.

    `passwords` has further users, who log in by the mechanism of the options. Raises `ValueError` for invalid options.
    """

    def __init__(self, options: Mapping[str, str], passwords: Mapping[str, str], directory: Path) -> None:
        from ottla.client.security import PROTOCOLS, mechanism_of, protocol_of

        self._options = {name: value for name, value in options.items() if name.startswith(FAMILIES)}
        self._passwords = passwords
        self._directory = directory
        self.protocol = protocol_of(options)
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol={self.protocol} is none of {', '.join(PROTOCOLS)}")
        self.mechanism = mechanism_of(options)

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    def properties(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """Returns options for librdkafka and `ottla.client`. Raises `ValueError` for a user without a password, and for a login without a
        name.
        """
        found = {"security.protocol": self.protocol, **self._tls}
        if user is None and not self.protocol.startswith("SASL"):
            return found
        name, password = self._credentials(user)
        return {**found, "sasl.mechanism": mechanism or self.mechanism, "sasl.username": name, "sasl.password": password}

    def java_properties(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """Returns the security options of the file. With `user` or `mechanism` the login is replaced."""
        if user is None and mechanism is None:
            return dict(self._options)
        found = {name: value for name, value in self._options.items() if name not in _LOGIN}
        chosen = mechanism or self.mechanism
        return {**found, "sasl.mechanism": chosen, "sasl.jaas.config": jaas_line(chosen, *self._credentials(user))}

    def security(self) -> Security:
        from ottla.client.security import Security

        return Security(self._options)

    def store(self, _cluster: Cluster) -> None:
        """Does nothing: the users of a foreign broker are not changed."""

    def _credentials(self, user: str | None) -> tuple[str, str]:
        if user is None:
            from ottla.client.security import credentials, is_by_token

            if self.mechanism == "OAUTHBEARER" or is_by_token(self._options):
                raise ValueError(f"a login by {self.mechanism} without name and password is for broker.java_config() and ottla.client")
            return credentials(self._options)
        if not self.protocol.startswith("SASL"):
            raise ValueError(f"the clients of a broker with security.protocol={self.protocol} have no users")
        if user not in self._passwords:
            known = ", ".join(self._passwords) or "none"
            raise ValueError(f"no password of the user {user!r} is known; the fixture kafka_broker_users has: {known}")
        return user, self._passwords[user]

    @cached_property
    def _tls(self) -> dict[str, str]:
        if not self.has_tls:
            return {}
        from ottla.client.tls import stores_of

        found = {_ALGORITHM: self._options[_ALGORITHM].strip() or "none"} if _ALGORITHM in self._options else {}
        for name, text in zip(("ca", "certificate", "key"), stores_of(self._options), strict=True):
            if text:
                found[f"ssl.{name}.location"] = self._written(f"{name}.pem", text)
        password = self._options.get("ssl.key.password")
        return {**found, "ssl.key.password": password} if password and "ssl.key.location" in found else found

    def _written(self, name: str, text: str) -> str:
        file = self._directory / name
        file.touch(0o600)
        file.write_text(text, encoding="ascii", errors="replace")
        return str(file)


class ForeignBroker(BrokerHandle):
    """A broker that the tests have not started."""

    what = "a broker that somebody else runs (OTTLA_BOOTSTRAP)"

    def __init__(self, bootstrap: str, *, logins: ForeignLogins | None = None) -> None:
        super().__init__(bootstrap, logins=logins)
        self._created: dict[str, None] = {}

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        super().create_topic(name, partitions, **configs)
        self._created[name] = None
        return name

    def add_record(self, topic: str, value: Text = None, **options: Any) -> None:
        is_new = topic not in self.topics()
        super().add_record(topic, value, **options)
        if is_new:
            self._created[topic] = None

    def delete_topics(self, names: Iterable[str]) -> None:
        deleted = list(names)
        super().delete_topics(deleted)
        for name in deleted:
            self._created.pop(name, None)

    def reset(self) -> None:
        """Deletes the topics that this object has created, and ends faults. Groups are not deleted: they expire in Kafka."""
        self.end_faults()
        self.delete_topics([name for name in self.topics() if name in self._created])


@contextmanager
def foreign_broker(bootstrap: str, path: str, passwords: Mapping[str, str]) -> Iterator[ForeignBroker]:
    """Yields the broker at `bootstrap`, or at the addresses in the file `path` of client options. Raises `ValueError` for an unusable file,
    and without an address."""
    options = read_options(path) if path else {}
    address = bootstrap or options.get("bootstrap.servers", "")
    if not address:
        raise ValueError(f"{path} has no bootstrap.servers, and neither OTTLA_BOOTSTRAP nor KAFKA_BOOTSTRAP_SERVERS is set")
    is_secured = any(name.startswith(FAMILIES) for name in options)
    directory = temporary_directory("ottla-testing-")
    try:
        logins = ForeignLogins(options, passwords, directory) if is_secured else None
        with closing(ForeignBroker(address, logins=logins)) as handle:
            yield handle
    finally:
        remove_directory(directory)


def read_options(path: str) -> dict[str, str]:
    """Reads a file of client options. Raises `ValueError` with one line."""
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SettingError) as error:
        raise ValueError(f"OTTLA_BOOTSTRAP_CONFIG={path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
