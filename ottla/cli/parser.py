"""Two parsers: one for the arguments of a command, and one for the options before the command's name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from ottla.cli.command import Command, UsageError, add_options, pointing_to
from ottla.cli.global_options import OPTIONS, Leading, add_global_options


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line (UsageError). It reads -1h and -5 as values, because no option of ours begins with a digit."""

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
        from ottla.cli.help_text import after_options

        return super().format_help() + after_options(self.prog.removeprefix("ottla "))

    def error(self, message: str) -> NoReturn:
        raise UsageError(pointing_to(f"{self.prog} --help", message))

    def _nearest_option(self, word: str) -> str:
        """Returns `; did you mean --partitions?` if the word resembles an option in the help, else empty text."""
        import difflib

        known = [name for name, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]
        near = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.8)
        return f"; did you mean {near[0]}?" if near else ""


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
