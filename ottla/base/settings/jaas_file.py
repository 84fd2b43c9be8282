"""Parses a JAAS file in the form of Kafka's brokers and ZooKeeper's clients (`java.security.auth.login.config`): named sections of login
modules.

    KafkaServer {
        org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="...";
    };
    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required username="brokers" password="...";
    };

Section `KafkaServer` has the login modules of all listeners, and `NAME.KafkaServer` (NAME in small letters) the login modules of one
listener. `Client` has the login at ZooKeeper. Other sections are ignored. A file that cannot be parsed, or a login module that is not
served, raises `SettingError`, which never shows a value. Kerberos and Java's `${property}` in values are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ottla.base.settings.jaas import MODULES, OAUTHBEARER, PLAIN, SCRAM, JaasLine, option_text
from ottla.base.settings.setting import SettingError

LOGIN_CONFIG = "java.security.auth.login.config"
"""The name of the file's setting, which is Java's system property."""
ZOOKEEPER_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
SERVER, CLIENT = "KafkaServer", "Client"
FLAGS = ("required", "requisite", "sufficient", "optional")
MODULE_OF = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM, "OAUTHBEARER": OAUTHBEARER}

_SKIPPED = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_TOKEN = re.compile(r"""[{};=]|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?:[^\s{};="'/]|/(?![/*]))+""")
_OPTION_OF_JVM = re.compile(rf"-D{re.escape(LOGIN_CONFIG)}=(\S+)")

Sections = Mapping[str, Sequence[JaasLine]]


def parse_jaas_file(text: str) -> dict[str, list[JaasLine]]:
    """Returns the login modules of each section, in order. Raises `SettingError`."""
    words = list(_tokens(text))
    sections: dict[str, list[JaasLine]] = {}
    at = 0
    while at < len(words):
        name = option_text(words[at])
        if words[at] in "{};=" or words[at + 1 : at + 2] != ["{"]:
            raise SettingError(f"a section is its name and {{ login modules }}; section {len(sections) + 1} is none")
        if name in sections:
            raise SettingError(f"there are two sections {name}")
        at += 2
        sections[name] = []
        while words[at : at + 1] != ["}"]:
            line, at = _entry(words, at, name)
            sections[name].append(line)
        at += 1
        if words[at : at + 1] != [";"]:
            raise SettingError(f"section {name} has to end in }};")
        at += 1
    return sections


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while True:
        if (skipped := _SKIPPED.match(text, at)) is not None:
            at = skipped.end()
        if at == len(text):
            return
        token = _TOKEN.match(text, at)
        if token is None:
            raise SettingError(f"line {text.count(chr(10), 0, at) + 1} cannot be read")
        yield token[0]
        at = token.end()


def _entry(words: Sequence[str], at: int, section: str) -> tuple[JaasLine, int]:
    """Returns one login module with its options, and the index of the next word."""
    if len(words) < at + 3 or words[at + 1].lower() not in FLAGS:
        raise SettingError(f"section {section}: a login module is its class, required, options as name=\"value\", and a semicolon")
    module, options = words[at], dict[str, str]()
    at += 2
    while words[at : at + 1] != [";"]:
        if words[at + 1 : at + 2] != ["="] or len(words) < at + 4 or words[at + 2] in "{};=":
            raise SettingError(f"section {section}: the options of {module} are name=\"value\" and end in a semicolon")
        options[option_text(words[at])] = option_text(words[at + 2])
        at += 3
    return JaasLine(module, options), at + 1


def login_config_in(options: str) -> str | None:
    """Returns the path of the JAAS file in options for a JVM (`KAFKA_OPTS`), None if there is none."""
    found = _OPTION_OF_JVM.findall(options)
    return str(found[-1]).strip("\"'") if found else None


def zookeeper_login(sections: Sections) -> str | None:
    """Returns `user:password` for the login at ZooKeeper, None without a section `Client`. Raises `SettingError`."""
    lines = sections.get(CLIENT)
    if lines is None:
        return None
    line = next((line for line in lines if line.module == ZOOKEEPER_MODULE), None)
    if line is None:
        named = ", ".join(line.module.rpartition(".")[2] for line in lines) or "nothing"
        raise SettingError(f"section {CLIENT}: a login at ZooKeeper is served by DigestLoginModule (DIGEST-MD5) alone, not by {named}")
    user, password = line.options.get("username", ""), line.options.get("password", "")
    if not user or not password or ":" in user:
        raise SettingError(f"section {CLIENT}: DigestLoginModule needs a username without a colon, and a password")
    return f"{user}:{password}"


def listener_lines(sections: Sections, listener: str) -> dict[str, str]:
    """Returns the value of `sasl.jaas.config` for each mechanism of a listener. Raises `SettingError` for a login module that is not
    served."""
    name = next((name for name in (f"{listener.lower()}.{SERVER}", SERVER) if name in sections), None)
    lines = sections[name] if name is not None else ()
    for line in lines:
        if line.module not in MODULES:
            served = ", ".join(module.rpartition(".")[2] for module in MODULES)
            raise SettingError(f"section {name}: the login module {line.module.rpartition('.')[2]} is not served; there are {served}")
    by_module = {line.module: line for line in reversed(lines)}
    return {mechanism: by_module[module].text for mechanism, module in MODULE_OF.items() if module in by_module}
