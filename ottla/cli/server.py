"""`ottla start`: registers the broker's own module, which is imported only when a broker is to run."""

from __future__ import annotations

import argparse

from ottla.cli.command import Command, Refused


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from ottla.cli.start import add_arguments

    add_arguments(parser)


def _start(args: argparse.Namespace) -> int:
    from ottla.cli.start import StartError, main

    try:
        return main(args)
    except StartError as error:
        raise Refused(str(error)) from None


COMMANDS = {"start": Command("Run a broker until Ctrl-C.", _add_arguments, _start, has_connection=False, has_output=False)}
