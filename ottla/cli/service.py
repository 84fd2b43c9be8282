"""`ottla service print-unit`: the systemd unit of one broker, to be put into `/etc/systemd/system/ottla.service`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from ottla.cli.command import Command
from ottla.cli.output import write


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", default="", metavar="FILE", help="the broker's configuration file")
    add("-d", "--data-dir", default="/var/lib/ottla", metavar="DIR", help="where the data lies")
    add("--user", default="ottla", metavar="NAME", help="whose the broker is; never root")
    add("--command", metavar="PATH", help="the ottla program (default: this one)")


def _print_unit(args: argparse.Namespace) -> int:
    from ottla.server.service import unit_text

    command = args.command or shutil.which(sys.argv[0]) or shutil.which("ottla") or "/usr/local/bin/ottla"
    config = os.path.abspath(args.config) if args.config else ""
    write(unit_text(os.path.abspath(command), config=config, data_dir=os.path.abspath(args.data_dir), user=args.user))
    return 0


COMMANDS = {
    "print-unit": Command("The systemd unit of a broker.", _arguments, _print_unit, has_connection=False, has_output=False),
}
