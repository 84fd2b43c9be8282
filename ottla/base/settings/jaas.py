"""Parses lines of `sasl.jaas.config` in the form of Kafka's brokers and clients: a login module, `required` (or another flag of JAAS),
options, a semicolon.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="..." user_alice="...";

Only the modules of served mechanisms are known. A line that cannot be read raises `SettingError`, which never shows the values of options.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ottla.base.settings.setting import SettingError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES = (PLAIN, SCRAM, OAUTHBEARER)
USER_PREFIX = "user_"

_HEAD = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b")
_OPTION = re.compile(r"""\s+([\w.$-]+|"(?:[^"\\]|\\.)*")\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_END = re.compile(r"\s*;\s*")
_ESCAPE = re.compile(r"\\(.)")


class JaasLine(NamedTuple):
    """One login module with its options."""

    module: str
    options: dict[str, str]

    @property
    def users(self) -> dict[str, str]:
        """Returns the passwords in `user_NAME` options by name."""
        return {name.removeprefix(USER_PREFIX): value for name, value in self.options.items() if name.startswith(USER_PREFIX)}

    @property
    def text(self) -> str:
        """Returns the line in the form of `sasl.jaas.config`."""
        return f"{self.module} required{''.join(f' {_quoted(name)}={_quoted(value)}' for name, value in self.options.items())};"


@lru_cache(maxsize=16)
def parse_jaas(text: str) -> JaasLine:
    """Parses one line. Raises `SettingError`."""
    head = _HEAD.match(text)
    if head is None:
        raise SettingError("a JAAS line is: login module, required, options as name=\"value\", and a semicolon")
    if head[1] not in MODULES:
        served = ", ".join(module.rpartition(".")[2] for module in MODULES)
        raise SettingError(f"the login module {head[1]} is not served; there are {served}")
    options: dict[str, str] = {}
    at = head.end()
    while (option := _OPTION.match(text, at)) is not None:
        options[option_text(option[1])] = option_text(option[2])
        at = option.end()
    end = _END.match(text, at)
    if end is None:
        raise SettingError(f"a JAAS line has to end in a semicolon; it cannot be read from character {at + 1} on")
    if end.end() != len(text):
        raise SettingError("a JAAS line names one login module; more follows behind its semicolon")
    return JaasLine(head[1], options)


def option_text(word: str) -> str:
    return _ESCAPE.sub(r"\1", word[1:-1]) if word[:1] in "\"'" else word


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
