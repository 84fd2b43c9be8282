"""The options that every command takes, before the command's name (`ottla -b HOST topic list`) as well as after it.

This table is the only declaration of them: parsers, help and completion are made from it. An option may be given on both sides if both
values are equal; options that are repeatable are joined.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.cli.command import Command, UsageError

FORMATS = ("table", "json", "jsonl", "yaml", "csv", "plain")


class Option(NamedTuple):
    """An option: its names and the other arguments of `add_argument`."""

    names: tuple[str, ...]
    help: str
    settings: dict[str, Any]

    @property
    def has_value(self) -> bool:
        return self.settings.get("action") != "store_true"


def _flag(*names: str, help: str) -> Option:
    return Option(names, help, {"action": "store_true"})


CONNECTION = (
    Option(
        ("-b", "--bootstrap-server", "--bootstrap-servers", "--bootstrap", "--brokers"),
        "brokers to start from (default localhost:9092)",
        {"dest": "bootstrap", "metavar": "HOST:PORT[,...]"},
    ),
    Option(
        ("--command-config", "--producer.config", "--consumer.config", "--admin.config"),
        "client properties",
        {"dest": "command_config", "metavar": "FILE"},
    ),
    Option(
        ("-X", "--producer-property", "--consumer-property"),
        "a client property",
        {"dest": "properties", "action": "append", "default": [], "metavar": "KEY=VALUE"},
    ),
    Option(
        ("--command-property", "--producer-props"),
        "client properties",
        {"dest": "property_lists", "action": "append", "nargs": "+", "default": [], "metavar": "KEY=VALUE"},
    ),
    Option(("--profile",), "a profile made with `ottla profile create`", {"metavar": "NAME"}),
)
FORM = Option(("-o", "--output"), "|".join(FORMATS), {"choices": FORMATS, "default": "table", "metavar": "FORM"})
QUIET = _flag("-q", "--quiet", help="results and errors only")
VERBOSE = _flag("-v", "--verbose", help="more messages on stderr")
NO_COLOR = _flag("--no-color", help="no colours (as NO_COLOR)")
WATCH = Option(("--watch",), "repeat every so many seconds", {"type": float, "metavar": "SECS"})
OPTIONS = (*CONNECTION, FORM, QUIET, VERBOSE, NO_COLOR, WATCH)
BY_NAME = {name: option for option in OPTIONS for name in option.names}


class Leading(NamedTuple):
    """The options before the command: the words, and the parsed values of the options that were given."""

    words: Sequence[str] = ()
    options: argparse.Namespace = argparse.Namespace()


def add_options(parser: Any, options: Sequence[Option]) -> None:
    """Adds options to a parser, or to a group of its options."""
    for option in options:
        parser.add_argument(*option.names, help=option.help, **option.settings)


def add_global_options(parser: argparse.ArgumentParser, command: Command) -> None:
    """Adds the options that a command takes. A command may have a `-v` of its own."""
    if command.has_connection:
        add_options(parser.add_argument_group("connection"), CONNECTION)
    has_verbose = any("-v" in action.option_strings for action in parser._actions)
    wanted = ((FORM, command.has_output), (QUIET, True), (VERBOSE, not has_verbose), (NO_COLOR, True), (WATCH, command.may_watch))
    add_options(parser.add_argument_group("output"), [option for option, is_taken in wanted if is_taken])


def length_of_leading(words: Sequence[str]) -> int:
    """The number of words before the command. It exceeds the length of `words` if the last option lacks its value."""
    position = 0
    while position < len(words) and (option := _option_of(words[position])) is not None:
        is_attached = words[position] not in option.names
        position += 1
        if option.settings.get("nargs") == "+":
            while position < len(words) and "=" in words[position]:
                position += 1
        elif option.has_value and not is_attached:
            position += 1
    return position


def _option_of(word: str) -> Option | None:
    """The option of a word such as `-b`, `-bHOST`, `--output=json` or `-qv`."""
    if word.startswith("--"):
        return BY_NAME.get(word.partition("=")[0])
    return BY_NAME.get(word[:2]) if word.startswith("-") else None


def check_leading(parser: argparse.ArgumentParser, leading: Leading, args: argparse.Namespace) -> None:
    """Raises UsageError for an option before the command that the command does not take, or that has another value after it.

    `args` was parsed with the leading options as its defaults, so a difference means that the option was given again.
    """
    actions = {action.dest: action for action in parser._actions}
    for dest, value in vars(leading.options).items():
        option = next(one for one in OPTIONS if _dest(one) == dest)
        name, action = option.names[0], actions.get(dest)
        if action is None:
            parser.error(f"{parser.prog} takes no {name}")
        if action.choices is not None and value not in action.choices:
            parser.error(f"argument {'/'.join(option.names)}: invalid choice: {value!r} (choose from {', '.join(action.choices)})")
        found = getattr(args, dest)
        if option.settings.get("action") is None and found != value:
            raise UsageError(f"{name} is {value} before the command and {found} after it; give it once")


def _dest(option: Option) -> str:
    return str(option.settings.get("dest") or option.names[-1].lstrip("-").replace("-", "_"))


def help_lines() -> list[str]:
    """The options for `ottla --help`, each with its short name and its first long one."""
    kept = [one.names[: 1 if one.names[0].startswith("--") else 2] for one in OPTIONS]
    shown = [(f"{', '.join(names)} {one.settings.get('metavar', '')}".rstrip(), one.help) for names, one in zip(kept, OPTIONS, strict=True)]
    width = max(len(names) for names, _ in shown) + 2
    return [f"  {names.ljust(width)}{meaning}" for names, meaning in shown]
