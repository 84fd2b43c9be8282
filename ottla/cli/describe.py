"""`ottla --help-json`: every command and option as data, for the reference in the docs and for other programs.

A command is `{name, help, options, tables, examples, commands}`, an option `{names, help, value, choices, default}`. `value` is the
placeholder of an option's value; flags and positional arguments have none. A positional argument has one name, without dashes.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ottla.cli.command import Command, add_options
from ottla.cli.command_groups import GROUPS, load_commands
from ottla.cli.examples import TABLES, examples_of
from ottla.cli.parser import OPTIONS, Parser, build_parser


def help_json() -> str:
    return json.dumps(describe_all(), indent=2) + "\n"


def describe_all() -> dict[str, Any]:
    """Returns the tree of all commands. Imports every command module."""
    parser = Parser(prog="ottla")
    add_options(parser, OPTIONS)
    tree: dict[str, Any] = {"name": "ottla", "help": "Kafka's system in Python.", "options": _options(parser), "commands": []}
    for name, group in GROUPS.items():
        found = load_commands(name)
        if name in found:
            tree["commands"].append(_describe(name, f"ottla {name}", found[name]))
        else:
            below = [_describe(verb, f"ottla {name} {verb}", command) for verb, command in found.items()]
            tree["commands"].append({"name": name, "help": group.help, "options": [], "commands": below})
    return tree


def _describe(name: str, program: str, command: Command) -> dict[str, Any]:
    options = _options(build_parser(program, command))
    words = program.removeprefix("ottla ")
    tables = [{"title": table.title, "rows": [list(row) for row in table.rows]} for table in TABLES.get(words, ())]
    examples = [{"line": example.line, "does": example.does} for example in examples_of(words)]
    return {"name": name, "help": command.help, "options": options, "tables": tables, "examples": examples, "commands": []}


def _options(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    return [_option(action) for action in parser._actions if action.help != argparse.SUPPRESS]


def _option(action: argparse.Action) -> dict[str, Any]:
    names = list(action.option_strings) or [str(action.metavar or action.dest)]
    found: dict[str, Any] = {"names": names, "help": (action.help or "").replace("%%", "%")}
    if action.option_strings and action.nargs != 0:
        found["value"] = _value(action)
    if action.choices is not None:
        found["choices"] = list(action.choices)
    if action.default is not None and action.default is not False and action.default not in (argparse.SUPPRESS, []):
        found["default"] = str(action.default)
    return found


def _value(action: argparse.Action) -> str:
    """Returns the placeholder of an option's value in `--help`: DIR, or `text|json` if the option has choices."""
    if action.metavar is None:
        return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
