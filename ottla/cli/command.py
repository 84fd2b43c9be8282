"""A command of the program: a sentence of help, its options, and the function that runs it; and the errors that it may raise."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Command(NamedTuple):
    """One command. `run` returns the exit code."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], object]
    run: Callable[[argparse.Namespace], int]
    may_watch: bool = False
    has_connection: bool = True
    has_output: bool = True


class Translation(NamedTuple):
    """A line of one of Kafka's tools as a line of ours; and by the class of its rows, how the tool prints them (`render/kafka.py`)."""

    argv: list[str]
    printers: Mapping[Any, Callable[[Any], None]] = {}


class UsageError(Exception):
    """Wrong usage, also when it is found only after parsing: exit code 2, one line."""


class Refused(Exception):
    """Something was refused or failed: exit code 1, one line; `name` is the error's name in JSON."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class NotReached(Exception):
    """Something that is needed did not answer: exit code 3, one line."""


def pointing_to(command: str, message: str) -> str:
    """A message of wrong usage with the command that shows what is right; behind a question, in a sentence of its own."""
    return f"{message} See `{command}`." if message.endswith("?") else f"{message}; see `{command}`"


def no_arguments(_: argparse.ArgumentParser) -> None:
    """Adds nothing: for commands without options of their own."""


def merged(*texts: list[str] | None) -> list[str]:
    """Repeated options and comma-separated lists as one list without empty entries."""
    return [part.strip() for values in texts for text in values or [] for part in text.split(",") if part.strip()]


WHOLE = (
    "sasl.jaas.config=", "sasl.password=", "sasl.oauthbearer.client.secret=", "sasl.oauthbearer.client.credentials.client.secret=",
    "sasl.oauthbearer.config=", "ssl.key.password=", "ssl.key.pem=", "ssl.keystore.key=", "ssl.keystore.certificate.chain=",
    "ssl.keystore.password=", "ssl.certificate.pem=", "ssl.ca.pem=", "ssl.truststore.certificates=",
)  # fmt: skip
"""Properties that take the rest of an argument: a password may hold commas and blanks, a JAAS line and PEM text do."""


def parse_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """`a=1 b=2`, `a=1,b=2` and the option repeated; a value may hold commas inside square brackets, as Kafka's tools write them."""
    found: dict[str, str] = {}
    for text in texts or []:
        for part in _split_pairs(text):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"{option} {part!r} is not KEY=VALUE")
            found[key.strip()] = value if part.startswith(WHOLE) else value.strip().removeprefix("[").removesuffix("]")
    return found


def _split_pairs(text: str) -> list[str]:
    """Splits before each `key=`; text without `=` belongs to the value before it, so lists need no quoting. Secrets stay whole."""
    if text.startswith(WHOLE):
        return [text]
    parts: list[str] = []
    depth = 0
    start = 0
    for position, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter in ", " and depth <= 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    joined: list[str] = []
    for part in parts:
        if "=" not in part and joined and part.strip():
            joined[-1] += "," + part
        elif part.strip():
            joined.append(part)
    return joined
