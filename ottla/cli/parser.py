"""Parses a command's arguments and the options that all commands have. These options may be before the command's name (`ottla -b HOST topic
list`) or after it. Commands that need no connection, have no `--output` or no `--watch` lack these options. This table is their only
declaration: parsers, help and completion are made from it. An option that is given before and after the name must have the same value
twice; values of repeatable options are joined.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from ottla.cli.command import Command, Option, UsageError, add_options, flag, headed, option, pointing_to

FORMATS = ("table", "json", "jsonl", "yaml", "csv", "plain")

BOOTSTRAP = ("-b", "--bootstrap-server", "--bootstrap-servers", "--bootstrap", "--brokers")
CONFIG = ("--command-config", "--producer.config", "--consumer.config", "--admin.config")
PAIR: dict[str, Any] = {"action": "append", "default": [], "metavar": "KEY=VALUE"}
CONNECTION = headed(
    "connection",
    option(*BOOTSTRAP, dest="bootstrap", metavar="HOST:PORT[,...]", help="brokers to start from (default localhost:9092)"),
    option(*CONFIG, dest="command_config", metavar="FILE", help="client properties"),
    option("-X", "--producer-property", "--consumer-property", dest="properties", help="a client property", **PAIR),
    option("--command-property", "--producer-props", dest="property_lists", nargs="+", help="client properties", **PAIR),
    option("--profile", metavar="NAME", help="a profile made with `ottla profile create`"),
)
FORM, QUIET, VERBOSE, NO_COLOR, WATCH = headed(
    "output",
    option("-o", "--output", choices=FORMATS, default="table", metavar="FORM", help="|".join(FORMATS)),
    flag("-q", "--quiet", help="results and errors only"),
    flag("-v", "--verbose", help="more messages on stderr"),
    flag("--no-color", help="no colours (as NO_COLOR)"),
    option("--watch", type=float, metavar="SECS", help="repeat every SECS seconds"),
)
OPTIONS = (*CONNECTION, FORM, QUIET, VERBOSE, NO_COLOR, WATCH)
BY_NAME = {name: one for one in OPTIONS for name in one.names}


class Leading(NamedTuple):
    """The options before the command: their words and their parsed values."""

    words: Sequence[str] = ()
    options: argparse.Namespace = argparse.Namespace()


def add_global_options(parser: argparse.ArgumentParser, command: Command) -> None:
    """Adds the global options that a command takes. A `-v` of the command itself replaces the global `-v`."""
    has_verbose = any("-v" in one.names for one in command.options)
    wanted = ((FORM, command.has_output), (QUIET, True), (VERBOSE, not has_verbose), (NO_COLOR, True), (WATCH, command.may_watch))
    add_options(parser, [*(CONNECTION if command.has_connection else ()), *(one for one, is_taken in wanted if is_taken)])


def length_of_leading(words: Sequence[str]) -> int:
    """Returns the number of words before the command. It exceeds the length of `words` if the last option lacks its value."""
    position = 0
    while position < len(words) and (found := _option_of(words[position])) is not None:
        is_attached = words[position] not in found.names
        position += 1
        if found.settings.get("nargs") == "+":
            while position < len(words) and "=" in words[position]:
                position += 1
        elif found.settings.get("action") != "store_true" and not is_attached:
            position += 1
    return position


def _option_of(word: str) -> Option | None:
    """Returns the global option that a word begins with: `-b`, `-bHOST`, `--output=json`, or `-q` for `-qv`. None for other words."""
    if word.startswith("--"):
        return BY_NAME.get(word.partition("=")[0])
    return BY_NAME.get(word[:2]) if word.startswith("-") else None


def check_leading(parser: argparse.ArgumentParser, leading: Leading, args: argparse.Namespace) -> None:
    """Checks the options before the command. Raises `UsageError` if the command does not take one, its value is not a choice, or the
    command line repeats it with another value.

    `args` was parsed with the leading options as defaults, so a difference means that the option was given again.
    """
    actions = {action.dest: action for action in parser._actions}
    for dest, value in vars(leading.options).items():
        one = next(known for known in OPTIONS if known.settings.get("dest", known.names[-1].lstrip("-").replace("-", "_")) == dest)
        name, action = one.names[0], actions.get(dest)
        if action is None:
            parser.error(f"{parser.prog} takes no {name}")
        if action.choices is not None and value not in action.choices:
            parser.error(f"argument {'/'.join(one.names)}: invalid choice: {value!r} (choose from {', '.join(action.choices)})")
        found = getattr(args, dest)
        if one.settings.get("action") is None and found != value:
            raise UsageError(f"{name} is {value} before the command and {found} after it; give it once")


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line (UsageError). It reads -1h and -5 as values, because no option of `ottla` begins with a digit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"^-\d")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Keeps the value `--` of an option, as in `--state=--`. argparse itself turns it into an empty list."""
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parses all words. The error about an unknown option suggests the most similar one."""
        found, unknown = self.parse_known_args(*args, **kwargs)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest_option(unknown[0])}")
        return found

    def format_help(self) -> str:
        """Returns the help: the options, then tables and examples. Only this method imports the tables and examples."""
        from ottla.cli.examples import after_options

        return super().format_help() + after_options(self.prog.removeprefix("ottla "))

    def error(self, message: str) -> NoReturn:
        raise UsageError(pointing_to(f"{self.prog} --help", message))

    def _nearest_option(self, word: str) -> str:
        """Returns `; did you mean --partitions?` if the word resembles an option in the help, else empty text. Never suggests to delete."""
        import difflib

        known = [name for name, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]
        near = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.8)
        return f"; did you mean {near[0]}?" if near and not near[0].startswith("--delete") else ""


def build_parser(program: str, command: Command) -> Parser:
    """Returns the parser of one command: its own options and the options of all commands."""
    parser = Parser(prog=program, description=command.help, allow_abbrev=False)
    add_options(parser, command.options)
    add_global_options(parser, command)
    return parser


def parse_leading(words: Sequence[str]) -> Leading:
    """Parses the options before the command. Options that are not given have no value, not even the default."""
    if not words:
        return Leading()
    parser = Parser(prog="ottla", add_help=False, allow_abbrev=False)
    add_options(parser, OPTIONS)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return Leading(words, parser.parse_args(list(words)))
