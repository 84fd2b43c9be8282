"""`ottla stop`: asks the broker of a data directory to stop and waits for its end."""

from __future__ import annotations

import time

from ottla.cli.broker.data_directories import PLACE_OPTIONS, directories_of, running_broker
from ottla.cli.broker.running import stop
from ottla.cli.command import Args, Refused, command, option
from ottla.cli.render.ottla import Output

STOP_TIMEOUT_S = 60.0


@command(
    "stop",
    "Stop the broker of a data directory.",
    *PLACE_OPTIONS,
    option("--wait", type=float, default=STOP_TIMEOUT_S, metavar="SECS", help="how long to wait for the broker to stop"),
    has_connection=False,
)
def _run(args: Args, output: Output) -> None:
    running = running_broker(args)
    if running is None:
        raise Refused(f"no broker runs in {', '.join(directories_of(args))}; name its directory with --data-dir", "NOT_RUNNING")
    started = time.monotonic()
    stop(running, args.wait)
    seconds = time.monotonic() - started
    what = {"stopped": running.pid, "data_dir": running.directory, "seconds": round(seconds, 3)}
    output.done(f"broker {running.pid} has stopped after {seconds:.1f} s", what)
