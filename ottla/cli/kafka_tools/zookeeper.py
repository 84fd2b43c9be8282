"""Supports `--zookeeper HOST:PORT/chroot` of Kafka's older tools: finds the registered brokers in ZooKeeper, and passes them to the tool.
`kafka-configs --alter` writes three kinds of settings directly to ZooKeeper, as it did until 3.9. These are SCRAM credentials, which
brokers may need for their own start; the settings of a broker that does not run; and the defaults of all brokers, if no broker runs.

The tool logs in to ZooKeeper as Kafka's tools do. `--zk-tls-config-file` names a file with `zookeeper.ssl.*` (and `ottla.zookeeper.*`), and
`KAFKA_OPTS` may name a JAAS file with a section `Client`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import StorageError, StoreUnreachable
from ottla.base.settings.jaas_file import LOGIN_CONFIG, login_config_in, parse_jaas_file, zookeeper_login
from ottla.base.settings.setting import SettingError
from ottla.base.settings.zookeeper import ZooKeeperAccess, parse_access
from ottla.cli.command import Args, Command, NotReached, Refused, UsageError, hidden
from ottla.cli.output import write, write_error

if TYPE_CHECKING:
    from ottla.adapters.zookeeper_tools import ZooKeeperTools

OPTION = "--zookeeper"
TLS_FILE = "--zk-tls-config-file"
SERVERS = "--bootstrap-server"
CONFIG_FILES = ("--command-config", "--consumer.config", "--producer.config", "--consumer-config", "--producer-config")


class Place(NamedTuple):
    """The address of a ZooKeeper ensemble, and the TLS settings and login for it."""

    connect: str
    access: ZooKeeperAccess


def resolve(tool: str, arguments: Sequence[str]) -> list[str] | Command:
    """Replaces `--zookeeper` by the registered brokers, and returns the changed command line. If the line changes settings that no broker
    can change now, returns a command that changes them in ZooKeeper.
    """
    connect, rest = take_option(OPTION, arguments)
    if connect is None:
        return rest
    file, rest = take_option(TLS_FILE, rest, "a file")
    if take_option(SERVERS, rest)[0] is not None:
        raise UsageError(f"Only one of {SERVERS} or {OPTION} can be specified")
    place = Place(connect, access_of(file, os.environ.get("KAFKA_OPTS", "")))
    if tool == "kafka-configs" and "--alter" in rest and "--help" not in rest:
        command = _alter_in_zookeeper(place, rest)
        if command is not None:
            return command
    return [*rest, SERVERS, _addresses(tool, place, _protocol(rest))]


def access_of(file: str | None, jvm_options: str) -> ZooKeeperAccess:
    """Returns TLS settings and login from a file of settings and a JAAS file. The file of settings has precedence. Raises `Refused` and
    `UsageError`.
    """
    from ottla.cli.input_files import read_text
    from ottla.cli.options import read_properties

    texts = {} if file is None else read_properties(file)
    jaas = texts.get(LOGIN_CONFIG) or login_config_in(jvm_options)
    try:
        if jaas and "ottla.zookeeper.sasl" not in texts and (login := zookeeper_login(parse_jaas_file(read_text(jaas)))) is not None:
            texts = {**texts, "ottla.zookeeper.sasl": login}
    except SettingError as error:
        raise Refused(f"{LOGIN_CONFIG}: {jaas}: {error}") from None
    try:
        return parse_access(texts)
    except SettingError as error:
        raise Refused(f"{error} ({file})") from None


def take_option(name: str, arguments: Sequence[str], what: str = "HOST:PORT") -> tuple[str | None, list[str]]:
    """Returns the value of an option (None if it is not given), and the other arguments. Raises UsageError for an empty value."""
    found, rest = None, list[str]()
    words = iter(arguments)
    for word in words:
        if word == name:
            found = next(words, "")
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
        else:
            rest.append(word)
    if found == "":
        raise UsageError(f"{name} needs {what}")
    return found, rest


def _protocol(arguments: Sequence[str]) -> str:
    """Returns the security protocol in the tool's properties file; PLAINTEXT if the file does not set it."""
    from ottla.cli.options import read_properties

    for option in CONFIG_FILES:
        path = take_option(option, arguments)[0]
        if path is not None:
            return read_properties(path).get("security.protocol", "PLAINTEXT").upper()
    return "PLAINTEXT"


def _opened(place: Place) -> ZooKeeperTools:
    try:
        from ottla.adapters.zookeeper_tools import ZooKeeperTools

        return ZooKeeperTools(*place)
    except StoreUnreachable as error:
        raise NotReached(str(error)) from None
    except StorageError as error:
        raise Refused(str(error)) from None


def _addresses(tool: str, place: Place, protocol: str) -> str:
    """Returns `host:port,...` of the registered brokers' listeners for this protocol. Raises `NotReached` if there are none."""
    try:
        with _opened(place) as zookeeper:
            brokers = zookeeper.brokers()
    except StorageError as error:
        raise Refused(str(error)) from None
    if not brokers:
        raise NotReached(f"no broker is registered in ZooKeeper at {place.connect}, and {tool} needs one; is it the right chroot?")
    found = [addresses[protocol] for _, addresses in sorted(brokers.items()) if protocol in addresses]
    if not found:
        there = ", ".join(sorted({name for addresses in brokers.values() for name in addresses}))
        raise NotReached(f"no broker in ZooKeeper at {place.connect} has a listener for {protocol}, only for {there}; see --command-config")
    write_error(f"note: {OPTION} is deprecated; the brokers registered there are {SERVERS} {','.join(found)}\n")
    return ",".join(found)


# Without brokers


def _alter_in_zookeeper(place: Place, arguments: Sequence[str]) -> Command | None:
    """Returns a command that writes the change to ZooKeeper, or None if a broker makes the change."""
    types = [word.rstrip("s") for word in _values("--entity-type", arguments)] + [
        word for word in ("user", "broker") if any(take_option(f"--{word}{end}", arguments)[0] for end in ("", "-defaults"))
    ]
    if types == ["user"] and "SCRAM-" in " ".join(arguments):
        return _command("SCRAM credentials in ZooKeeper.", lambda args: _alter_user(place, args))
    if types == ["broker"]:
        names = _values("--entity-name", arguments)
        with _opened(place) as zookeeper:
            running = zookeeper.brokers()
        is_running = any(int(name) in running for name in names if name.isdecimal()) if names else bool(running)
        if not is_running:
            return _command("Settings of brokers in ZooKeeper.", lambda args: _alter_broker(place, args))
    return None


def _values(option: str, arguments: Sequence[str]) -> list[str]:
    words = iter(arguments)
    named = (word for word in words if word.partition("=")[0] == option)
    return [word.partition("=")[2] if "=" in word else next(words, "") for word in named]


def _command(help: str, run: Callable[[Args], None]) -> Command:
    """Returns a command that has the options of `config alter`, but writes to ZooKeeper and needs no broker."""
    from ottla.cli.command_groups import load_commands

    more = (hidden(OPTION), hidden(TLS_FILE), hidden("--alter", action="store_true"), hidden("--force", action="store_true"))
    return Command(help, (*load_commands("config")["alter"].options, *more), run, has_connection=False, has_output=False)


def _alter_user(place: Place, args: Args) -> None:
    from ottla.cli.cluster.config import changes_of
    from ottla.cli.cluster.config_entities import entities_of, parse_credential
    from ottla.client.blocking.scram_admin import MECHANISMS

    user = entities_of(args).parts[0][1]
    changes, deletions = changes_of(args)
    others = [key for key in (*changes, *deletions) if key not in MECHANISMS]
    if others or not user:
        raise UsageError(f"with {OPTION} only SCRAM credentials of a named user can be altered{f', not {others[0]}' if others else ''}")
    passwords = {mechanism: parse_credential(mechanism, text) for mechanism, text in changes.items()}
    write_to(place, args.force, lambda zookeeper: zookeeper.alter_credentials(user, passwords, deletions))
    write(f"Completed updating config for entity: user-principal '{user}'.\n")


def _alter_broker(place: Place, args: Args) -> None:
    from ottla.base.config import BROKER_SETTINGS
    from ottla.cli.cluster.config import changes_of
    from ottla.cli.cluster.config_entities import entities_of

    entities = entities_of(args)
    if not entities.is_named:
        raise UsageError("name the broker to alter, or give --entity-default")
    name = entities.parts[0][1] or ""
    changes, deletions = changes_of(args)
    for key, value in changes.items():
        setting = BROKER_SETTINGS.get(key)
        if setting is None:
            raise UsageError(f"no setting {key!r} that a broker could take over; ask one that runs")
        try:
            setting.parse(value)
        except ValueError as error:
            raise UsageError(str(error)) from None
    write_to(place, args.force, lambda zookeeper: zookeeper.alter_broker_configs(name, changes, deletions))
    write(f"Completed updating config for {f'broker: {name}' if name else 'default config for brokers in the cluster'}.\n")


def write_to(place: Place, is_forced: bool, do: Callable[[ZooKeeperTools], None]) -> None:
    """Calls `do` to write to the chroot that the command line names, which has a cluster or will have a new one. Raises `Refused` if this
    chroot has no cluster but another chroot has one: the name is then probably wrong, and no broker would read the written settings. With
    `--force` (`is_forced`) it writes anyway.
    """
    with _opened(place) as zookeeper:
        try:
            if not is_forced and (others := zookeeper.other_chroots()):
                there = f"{place.connect.partition('/')[0]}{others[0]}"
                raise Refused(f"ZooKeeper has no cluster at {place.connect}, but one at {there}; say that, or --force for a new cluster")
            do(zookeeper)
        except StorageError as error:
            raise Refused(str(error)) from None
    write_error(f"note: this was written to ZooKeeper at {place.connect}\n")
