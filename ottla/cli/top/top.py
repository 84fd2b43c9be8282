"""`ottla top`: topics, groups and their lag, open transactions and requests, renewed every few seconds on a terminal.

The view needs rich (the extra `ottla[top]`), which only this package imports. `--once` takes two samples and prints the view once; `-o
json` prints the same data, without rich. Otherwise a terminal is required.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from ottla.analysis.sample import Look, Sampler
from ottla.cli.command import Args, UsageError, command, flag, option
from ottla.cli.optional import library
from ottla.cli.render.ottla import Output
from ottla.client.blocking.cluster import Cluster
from ottla.client.errors import ClientError

INTERVAL_S = 2.0
INTERVAL_MIN_S = 0.1
VIEWS = ("all", "topics", "groups", "transactions", "requests", "clients")


@command(
    "top",
    "A live view: topics, groups and their lag, transactions, requests, clients.",
    option("--interval", type=float, default=INTERVAL_S, metavar="SECS", help="seconds from one look to the next (default 2)"),
    option("--view", choices=VIEWS, default="all", metavar="VIEW", help="|".join(VIEWS)),
    flag("--once", help="one picture, on any output; with -o json as data"),
    option("--from", dest="address", metavar="HOST:PORT", help="where requests are counted (default: ottla.metrics.listen of a broker)"),
    option("--credentials", metavar="USER:PASSWORD", help="as in ottla.metrics.credentials"),
    option("--token-file", metavar="FILE", help="as ottla.metrics.token.file"),
    option("--ca", metavar="FILE", help="use TLS there and trust these PEM certificates (default: the system's, with https://)"),
)
def _run(args: Args, cluster: Cluster, output: Output) -> int:
    if args.interval < INTERVAL_MIN_S:
        raise UsageError(f"--interval must be {INTERVAL_MIN_S:g} or more")
    is_live = not args.once and output.form == "table"
    if is_live and not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise UsageError("a live view needs a terminal; --once prints one picture, -o json data")
    scrape = _scrape(args, cluster)
    sampler = Sampler(cluster, scrape)
    if is_live:
        return _live(cluster, sampler, args)
    sampler.look()
    time.sleep(args.interval)  # a rate needs two samples
    sample = sampler.look()
    if output.is_structured:
        output.show_object(as_object(sample))
    elif output.form == "table":
        console = _console(args)
        console.print(_view().draw(sample, args.view, max(console.height, len(sample.topics) + len(sample.groups) + 40)))
    else:
        raise UsageError("top has a picture and -o json, jsonl, yaml")
    return 0


def as_object(sample: Look) -> dict[str, Any]:
    """Returns a sample (`Look`) as a JSON object, without the time `at_s`."""
    found = sample._asdict()
    del found["at_s"]
    for name in VIEWS[1:]:
        found[name] = None if found[name] is None else [row._asdict() for row in found[name]]
    return found


def _scrape(args: Args, cluster: Cluster) -> Callable[[], str] | None:
    """Returns a function that reads a broker's metrics, at `--from` or at the address in a broker's settings; None without an address."""
    from ottla.analysis.metrics_text import MetricsRefused, metrics_address, scrape
    from ottla.base.errors import ApiError

    try:
        address = args.address or metrics_address(cluster)
    except (MetricsRefused, ApiError, ClientError):
        return None
    return lambda: scrape(address, args.credentials, token_file=args.token_file, ca_file=args.ca)


def _console(args: Args) -> Any:
    return library("rich.console").Console(no_color=args.no_color or None, highlight=False)


def _view() -> Any:
    from ottla.cli.top import view

    return view


def _live(cluster: Cluster, sampler: Sampler, args: Args) -> int:
    """Draws until q or Ctrl-C. If the brokers do not answer or refuse a request, shows the error and asks again after the interval."""
    console, view, live_view = _console(args), _view(), library("rich.live").Live
    chosen = args.view
    picture: Any = "..."
    with _Keys() as keys, live_view(console=console, screen=True, auto_refresh=False) as live:
        sample: Look | None = None
        next_s = time.monotonic()
        while True:
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + args.interval
                try:
                    sample = sampler.look()
                except ClientError as error:
                    sample, picture = None, f"{error}\n\nasked again every {args.interval:g} s; q quits"
                    cluster.close()
            live.update(view.draw(sample, chosen, console.height) if sample is not None else picture, refresh=True)
            key = keys.wait(max(0.0, next_s - time.monotonic()))
            if key == "q":
                return 0
            chosen = view.KEYS.get(key, chosen)


class _Keys:
    """Reads single keys without Enter. At exit, restores the terminal's mode."""

    def __enter__(self) -> _Keys:
        import termios
        import tty

        self._descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def wait(self, seconds: float) -> str:
        """Waits for a key, and returns it in lower case. Returns empty text after `seconds`, and `q` if the terminal is closed."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return ""
        return os.read(self._descriptor, 1).decode("latin-1").lower() or "q"

    def __exit__(self, *_: object) -> None:
        import termios

        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
