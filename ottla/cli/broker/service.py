"""`ottla service print-unit`: prints the systemd unit of one broker, for `/etc/systemd/system/ottla.service`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence

from ottla.cli.command import Args, Refused, command, option
from ottla.cli.input_files import file_text
from ottla.cli.output import write
from ottla.cli.render.ottla import Output

DEFAULT_DATA_DIR = "/var/lib/ottla"
STATE = "/var/lib/"
_PLAIN = re.compile(r"[^\s\\\"';]+")
HOMES = ("/home/", "/root/", "/run/user/")
TEMPORARY = ("/tmp/", "/var/tmp/")


@command(
    "service print-unit",
    "The systemd unit of a broker.",
    option("--config", default="", metavar="FILE", help="the broker's configuration file"),
    option("-d", "--data-dir", metavar="DIR", help=f"the data directory (default: log.dirs of --config, else {DEFAULT_DATA_DIR})"),
    option("--user", default="ottla", metavar="NAME", help="the user that the broker runs as, not root (default ottla)"),
    option("--command", metavar="PATH", help="the ottla program (default: this one)"),
    has_connection=False,
    has_output=False,
)
def _print_unit(args: Args, output: Output) -> None:
    command = args.command or shutil.which(sys.argv[0]) or shutil.which("ottla") or "/usr/local/bin/ottla"
    config = os.path.abspath(args.config) if args.config else ""
    data_dirs = configured_directories(config) if os.path.exists(config) and args.data_dir is None else ()
    if config and not os.path.exists(config):
        output.note(f"{config} does not exist yet, so the unit has no log.dirs of it")
    data_dir = "" if data_dirs else os.path.abspath(args.data_dir or DEFAULT_DATA_DIR)
    write(unit_text(os.path.abspath(command), config=config, data_dir=data_dir, data_dirs=data_dirs, user=args.user))


def configured_directories(config: str) -> tuple[str, ...]:
    """Returns the data directories that the configuration file sets; an empty tuple if it sets none. Raises `Refused` if the file cannot be
    read or is invalid, or a directory is relative."""
    from ottla.base.config import ConfigError, ConfigSource, load

    try:
        found, _ = load(file_text=file_text(config), file_name=config, read_file=file_text)
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"cannot read {config}: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}") from None
    except ConfigError as error:
        raise Refused(str(error), "INVALID_CONFIG") from None
    if {found.source("log.dirs"), found.source("log.dir")} == {ConfigSource.DEFAULT}:
        return ()
    for path in found.data_directories:
        if not os.path.isabs(path):
            raise Refused(f"{config}: the data directory {path!r} is relative, and services have no current directory; write it whole")
    return tuple(map(os.path.normpath, found.data_directories))


def unit_text(
    command: str, *, config: str = "", data_dir: str = DEFAULT_DATA_DIR, data_dirs: Sequence[str] = (), user: str = "ottla"
) -> str:
    """Returns the systemd unit of one broker. `command` is the path of the `ottla` program. `data_dirs` are the directories that the
    configuration sets. If there are any, `data_dir` is empty.
    """
    words = [command, "start", *(["--data-dir", data_dir] if data_dir else []), *(["--config", config] if config else [])]
    places = list(data_dirs) or [data_dir]
    mounted, writable = _places(places)
    needed = [*places, config, *_program_places(command)]
    hides_home = not any(place.startswith(HOMES) for place in needed)
    hides_tmp = not any(place.startswith(TEMPORARY) for place in needed)
    return f"""\
[Unit]
Description=Ottla broker
Documentation=https://kafka.apache.org/documentation/
After=network-online.target
Wants=network-online.target
{mounted}
[Service]
Type=notify
NotifyAccess=main
User={user}
ExecStart={" ".join(map(_argument, words))}
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
PrivateTmp={_boolean(hides_tmp)}
ProtectHome={_boolean(hides_home)}
ProtectSystem=strict
{writable}
[Install]
WantedBy=multi-user.target
"""


def _program_places(command: str) -> list[str]:
    """Returns the program's path, with and without links, and the interpreter's directory if the program is in this installation."""
    found = [command, os.path.realpath(command)]
    is_this_one = os.path.dirname(os.path.abspath(command)) == os.path.dirname(os.path.abspath(sys.executable))
    return [*found, sys.base_prefix + "/"] if is_this_one else found


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _places(places: Sequence[str]) -> tuple[str, str]:
    """Returns the lines about the data directories for the sections Unit and Service. systemd creates directories below /var/lib. Other
    directories must exist; the unit waits until their file systems are mounted."""
    made = [place.removeprefix(STATE) for place in places if place.startswith(STATE)]
    others = [place for place in places if not place.startswith(STATE)]
    listed = " ".join(map(_quoted, others))
    state = f"StateDirectory={' '.join(map(_quoted, made))}\n" if made else ""
    return (f"RequiresMountsFor={listed}\n", f"{state}ReadWritePaths={listed}\n") if others else ("", state)


def _argument(word: str) -> str:
    """Quotes a word of ExecStart. systemd replaces variables there, so `$` is doubled."""
    return _quoted(word.replace("$", "$$"))


def _quoted(text: str) -> str:
    """Quotes a word of a list in a unit. systemd replaces specifiers there, so `%` is doubled."""
    text = text.replace("%", "%%")
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
