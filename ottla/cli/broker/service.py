"""`ottla service print-unit`: the systemd unit of one broker, to be put into `/etc/systemd/system/ottla.service`."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys

from ottla.cli.command import Command
from ottla.cli.output import write


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", default="", metavar="FILE", help="the broker's configuration file")
    add("-d", "--data-dir", default="/var/lib/ottla", metavar="DIR", help="the data directory")
    add("--user", default="ottla", metavar="NAME", help="the user that the broker runs as; never root")
    add("--command", metavar="PATH", help="the ottla program (default: this one)")


def _print_unit(args: argparse.Namespace) -> int:
    command = args.command or shutil.which(sys.argv[0]) or shutil.which("ottla") or "/usr/local/bin/ottla"
    config = os.path.abspath(args.config) if args.config else ""
    write(unit_text(os.path.abspath(command), config=config, data_dir=os.path.abspath(args.data_dir), user=args.user))
    return 0


def unit_text(command: str, *, config: str = "", data_dir: str = "/var/lib/ottla", user: str = "ottla") -> str:
    """The systemd unit of one broker. `command` is the path of the `ottla` program."""
    words = [command, "start", "--data-dir", data_dir, *(["--config", config] if config else [])]
    state_directory = data_dir.removeprefix("/var/lib/")
    has_state_directory = data_dir.startswith("/var/lib/") and state_directory
    writable = f"StateDirectory={state_directory}" if has_state_directory else f"ReadWritePaths={data_dir}"
    return f"""\
[Unit]
Description=Ottla broker
Documentation=https://kafka.apache.org/documentation/
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
User={user}
ExecStart={shlex.join(words)}
ExecReload=/bin/kill -HUP $MAINPID
KillSignal=SIGTERM
TimeoutStartSec=300
TimeoutStopSec=60
WatchdogSec=60
Restart=on-failure
RestartSec=2
LimitNOFILE=1048576
OOMScoreAdjust=-500
NoNewPrivileges=true
PrivateTmp=true
ProtectHome=true
ProtectSystem=strict
{writable}

[Install]
WantedBy=multi-user.target
"""


COMMANDS = {
    "print-unit": Command("The systemd unit of a broker.", _arguments, _print_unit, has_connection=False, has_output=False),
}
