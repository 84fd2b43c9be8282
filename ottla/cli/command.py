"""Declares commands and their options, and the errors that a command may raise. Each module declares its own commands:

    @command("topic trim", "Delete the oldest records of a topic.", *ONE_TOPIC, option("--before", type=int, metavar="OFFSET"), YES)
    def _trim(args: Args, cluster: Cluster, output: Output) -> int:

The function receives the objects that its parameters name. `args` are the parsed options. `cluster` is a connection to the cluster of the
options; it is closed at the end of the command. `output` prints in the form that `--output` names. The function returns the exit code; None
is 0.
"""

from __future__ import annotations

import argparse
import sys
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
    """The heading in the help; an empty text for the general heading."""
    is_needed: bool | None = None
    """None outside of `one_of`. For an alternative: whether the user must give one of the alternatives."""


class Command(NamedTuple):
    """A command. `run` receives the objects that its parameters name (see the top of this module) and returns the exit code or None."""

    help: str
    options: Sequence[Option]
    run: Callable[..., int | None]
    may_watch: bool = False
    has_connection: bool = True
    has_output: bool = True
    needs: str = ""
    """The operation and kind of resource that a user must be allowed, if one right is enough: `WRITE TOPIC`."""


COMMANDS: dict[str, Command] = {}
"""The commands of the imported modules, by their words (`topic trim`)."""


def command(words: str, help: str, *options: Option, **traits: Any) -> Callable[[Run], Run]:
    """Decorator: registers a function as a command in `COMMANDS`. `traits` are the other fields of `Command`."""

    def added(run: Run) -> Run:
        COMMANDS[words] = Command(help, options, run, **traits)
        return run

    return added


def option(*names: str, **settings: Any) -> Option:
    """Declares an option with a value, or a positional argument."""
    return Option(names, settings)


def flag(*names: str, **settings: Any) -> Option:
    """Declares an option without a value."""
    return Option(names, {"action": "store_true", **settings})


def hidden(*names: str, **settings: Any) -> Option:
    """Declares an option that is accepted but absent from the help."""
    return Option(names, {"help": argparse.SUPPRESS, **settings})


def headed(heading: str, *options: Option) -> list[Option]:
    """Puts options under a heading of their own in the help."""
    return [one._replace(heading=heading) for one in options]


def one_of(*options: Option, is_needed: bool = False) -> list[Option]:
    """Makes options exclude each other. With `is_needed` the user must give one of them."""
    return [one._replace(is_needed=is_needed) for one in options]


YES = flag("-y", "--yes", "--force", dest="yes", help="do not ask")


def confirm(args: Args, question: str) -> None:
    """Asks before a destructive command, except with `--yes`. Raises UsageError if the answer is no, or if there is no terminal."""
    if getattr(args, "yes", False):
        return
    from ottla.cli.output import write_error

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Add --yes to skip this question")
    write_error(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed")


def add_options(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """Adds options to a parser. All alternatives with the same `heading` and `is_needed` form one exclusive group."""
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
    """The translation of a command line of one of Kafka's tools. `argv` is the command line of `ottla`. `printers` print rows and reports
    as the tool does, by class (`render/kafka.py`)."""

    argv: list[str]
    printers: Mapping[Any, Callable[[Any], None]] = {}


class UsageError(Exception):
    """Wrong usage, found while parsing or later. The program prints one line and exits with code 2."""


class Refused(Exception):
    """A command failed or was refused. The program prints one line and exits with code 1. `name` is the error's name in JSON."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class NotReached(Exception):
    """A needed server did not answer. The program prints one line and exits with code 3."""


def granted(result: T | ApiError) -> T:
    """Returns `result`; raises it if it is an `ApiError`. For operations that return, for each item, either a result or an error."""
    if isinstance(result, ApiError):
        raise result
    return result


def pointing_to(command: str, message: str) -> str:
    """Adds "see `command`" to a message. After a question mark it becomes a separate sentence."""
    return f"{message} See `{command}`." if message.endswith("?") else f"{message}; see `{command}`"


def merged(*texts: Sequence[str] | None) -> list[str]:
    """Joins repeated options and splits each at commas. Returns one list without empty entries."""
    return [part.strip() for values in texts for text in values or [] for part in text.split(",") if part.strip()]


def merged_numbers(texts: Sequence[str] | None, message: str) -> list[int]:
    """Returns `merged` as whole numbers. Raises `UsageError` with the message for other text."""
    try:
        return [int(part) for part in merged(texts)]
    except ValueError:
        raise UsageError(message) from None


WHOLE = (
    "sasl.jaas.config=", "sasl.password=", "sasl.oauthbearer.client.secret=", "sasl.oauthbearer.client.credentials.client.secret=",
    "sasl.oauthbearer.config=", "ssl.key.password=", "ssl.key.pem=", "ssl.keystore.key=", "ssl.keystore.certificate.chain=",
    "ssl.keystore.password=", "ssl.certificate.pem=", "ssl.ca.pem=", "ssl.truststore.certificates=",
)  # fmt: skip
"""Beginnings of arguments that are one pair and never split, because passwords, JAAS lines and PEM text contain commas and blanks."""


def parse_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parses `a=1 b=2`, `a=1,b=2` or repeated options. A value in square brackets may contain commas, as in Kafka's tools. Raises
    `UsageError` for text that is not KEY=VALUE."""
    found: dict[str, str] = {}
    for text in texts or []:
        for part in _split_pairs(text):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"{option} {part!r} is not KEY=VALUE")
            found[key.strip()] = value if part.startswith(WHOLE) else value.strip().removeprefix("[").removesuffix("]")
    return found


def _split_pairs(text: str) -> list[str]:
    """Splits before each `key=`. Text without `=` is added to the value before it, after a comma, so lists need no quotes. Never splits
    `WHOLE`."""
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
