"""Commands and their options are declared in the module that has them; and the errors that a command may raise.

    @command("topic trim", "Delete the oldest records of a topic.", *ONE_TOPIC, option("--before", type=int, metavar="OFFSET"), YES)
    def _trim(args: Args, cluster: Cluster, output: Output) -> int:

The function gets what its parameters name: `args` are the parsed options, `cluster` is the cluster that they name, which is closed at the
end of the command, and `output` prints in the form that they choose. It returns the exit code, or None for 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.base.errors import ApiError

Args = argparse.Namespace
T = TypeVar("T")
Run = TypeVar("Run", bound=Callable[..., int | None])


class Option(NamedTuple):
    """An option or a positional argument: its names, and the other arguments of `add_argument`."""

    names: tuple[str, ...]
    settings: dict[str, Any]
    heading: str = ""
    """The heading in the help; empty for the general one."""
    is_needed: bool | None = None
    """For one of several alternatives, whether one of them has to be given."""


class Command(NamedTuple):
    """A command. `run` gets what its parameters name; it returns the exit code, or None for 0."""

    help: str
    options: Sequence[Option]
    run: Callable[..., int | None]
    may_watch: bool = False
    has_connection: bool = True
    has_output: bool = True


COMMANDS: dict[str, Command] = {}
"""The commands of the modules that have been imported, by their words (`topic trim`)."""


def command(words: str, help: str, *options: Option, **traits: bool) -> Callable[[Run], Run]:
    """Makes a function a command. `traits` are the flags of `Command`."""

    def added(run: Run) -> Run:
        COMMANDS[words] = Command(help, options, run, **traits)
        return run

    return added


def option(*names: str, **settings: Any) -> Option:
    """An option with a value, or a positional argument."""
    return Option(names, settings)


def flag(*names: str, **settings: Any) -> Option:
    """An option without a value."""
    return Option(names, {"action": "store_true", **settings})


def hidden(*names: str, **settings: Any) -> Option:
    """An option that is accepted and that the help does not show."""
    return Option(names, {"help": argparse.SUPPRESS, **settings})


def headed(heading: str, *options: Option) -> list[Option]:
    """Options under a heading of their own in the help."""
    return [one._replace(heading=heading) for one in options]


def one_of(*options: Option, is_needed: bool = False) -> list[Option]:
    """Options that exclude each other."""
    return [one._replace(is_needed=is_needed) for one in options]


def add_options(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """Adds options to a parser. Alternatives of one command are one group."""
    places: dict[object, Any] = {("", None): parser}
    for one in options:
        place = (one.heading, one.is_needed)
        if place not in places:
            is_choice = one.is_needed is not None
            places[place] = (
                parser.add_mutually_exclusive_group(required=bool(one.is_needed)) if is_choice else parser.add_argument_group(one.heading)
            )
        places[place].add_argument(*one.names, **one.settings)


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


def granted(result: T | ApiError) -> T:
    """The result of one of several items, or raises its refusal."""
    if isinstance(result, ApiError):
        raise result
    return result


def pointing_to(command: str, message: str) -> str:
    """A message of wrong usage with the command that shows what is right; behind a question, in a sentence of its own."""
    return f"{message} See `{command}`." if message.endswith("?") else f"{message}; see `{command}`"


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
