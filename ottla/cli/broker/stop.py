"""`ottla stop`: asks the broker of a data directory to stop and waits for its end."""

from __future__ import annotations

import argparse
import time

from ottla.cli.broker.data_directories import add_place_arguments, directories_of, running_broker
from ottla.cli.broker.running import stop
from ottla.cli.command import Command, Refused
from ottla.cli.options import output_of

STOP_TIMEOUT_S = 60.0


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_place_arguments(parser)
    parser.add_argument("--wait", type=float, default=STOP_TIMEOUT_S, metavar="SECS", help="how long to wait for its end")


def _run(args: argparse.Namespace) -> int:
    running = running_broker(args)
    if running is None:
        raise Refused(f"no broker runs in {', '.join(directories_of(args))}; name its directory with --data-dir", "NOT_RUNNING")
    started = time.monotonic()
    stop(running, args.wait)
    seconds = time.monotonic() - started
    what = {"stopped": running.pid, "data_dir": running.directory, "seconds": round(seconds, 3)}
    output_of(args).done(f"broker {running.pid} has stopped after {seconds:.1f} s", what)
    return 0


COMMAND = Command("Stop the broker of a data directory.", _arguments, _run, has_connection=False)
