"""The options of all commands, before the command's name (`ottla -b HOST topic list`) or after it.

Commands without a connection, without `--output` or without `--watch` lack these options. This table is their only declaration: parsers,
help and completion are made from it. An option on both sides must have the same value; repeatable options are joined.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.cli.command import Command, Option, UsageError, add_options, flag, headed, option

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
    option("--watch", type=float, metavar="SECS", help="repeat every so many seconds"),
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


def help_lines() -> list[str]:
    """Returns the lines about options for `ottla --help`. Each has the short and the first long name of an option."""
    kept = [one.names[: 1 if one.names[0].startswith("--") else 2] for one in OPTIONS]
    shown = [
        (f"{', '.join(names)} {one.settings.get('metavar', '')}".rstrip(), one.settings["help"])
        for names, one in zip(kept, OPTIONS, strict=True)
    ]
    width = max(len(names) for names, _ in shown) + 2
    return [f"  {names.ljust(width)}{meaning}" for names, meaning in shown]
