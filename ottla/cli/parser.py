"""Parsers: of one command, with the options of all commands, and of the options before a command."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from ottla.cli.command import Command, UsageError, add_options, pointing_to
from ottla.cli.global_options import OPTIONS, Leading, add_global_options


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, which takes -1h and -5 for values: no option of ours begins with a digit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"^-\d")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Takes a value that is `--`, as in `--state=--`, as text: argparse itself makes an empty list of it."""
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parses all words; the message about one that is not understood names the option that was meant."""
        found, unknown = self.parse_known_args(*args, **kwargs)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest_option(unknown[0])}")
        return found

    def format_help(self) -> str:
        """The options, then tables and examples, which are imported for this alone."""
        from ottla.cli.help_text import after_options

        return super().format_help() + after_options(self.prog.removeprefix("ottla "))

    def error(self, message: str) -> NoReturn:
        raise UsageError(pointing_to(f"{self.prog} --help", message))

    def _nearest_option(self, word: str) -> str:
        """`; did you mean --partitions?` if the word is nearly an option that the help shows, else nothing."""
        import difflib

        known = [name for name, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]
        near = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.8)
        return f"; did you mean {near[0]}?" if near else ""


def build_parser(program: str, command: Command) -> Parser:
    """The parser of one command, with the options that all have."""
    parser = Parser(prog=program, description=command.help, allow_abbrev=False)
    add_options(parser, command.options)
    add_global_options(parser, command)
    return parser


def parse_leading(words: Sequence[str]) -> Leading:
    """Parses the options before the command."""
    if not words:
        return Leading()
    parser = Parser(prog="ottla", add_help=False, allow_abbrev=False)
    add_options(parser, OPTIONS)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return Leading(words, parser.parse_args(list(words)))
