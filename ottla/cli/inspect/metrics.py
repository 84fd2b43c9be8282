"""`ottla metrics`: scrapes a broker's `/metrics` once, and prints all metrics or those whose name begins with a given text.

`--from` names the address. Without it the address is the setting `ottla.metrics.listen` of the broker with the lowest id.
"""

from __future__ import annotations

from ottla.analysis.metrics_text import MetricsRefused, metrics_address, samples_in, scrape
from ottla.cli.command import Args, Refused, UsageError, command, option
from ottla.cli.options import connect
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row


class MetricRow(Row):
    name: str
    labels: dict[str, str]
    value: float


@command(
    "metrics",
    "One scrape of a broker's metrics.",
    option("names", nargs="*", metavar="NAME", help="only metrics whose name begins with this"),
    option("--from", dest="address", metavar="HOST:PORT", help="address of the metrics (default: ottla.metrics.listen of a broker)"),
    option("--credentials", metavar="USER:PASSWORD", help="as in ottla.metrics.credentials"),
    option("--token-file", metavar="FILE", help="as ottla.metrics.token.file"),
    option("--ca", metavar="FILE", help="use TLS and trust these PEM certificates (default: the system's, with https://)"),
    may_watch=True,
)
def _run(args: Args, output: Output) -> None:
    try:
        text = scrape(_address(args), args.credentials, token_file=args.token_file, ca_file=args.ca)
    except MetricsRefused as error:
        raise Refused(str(error), error.name) from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    if output.form == "table":
        lines = text.splitlines() if args.names else []
        write("".join(f"{line}\n" for line in lines if _is_wanted(line, args.names)) if args.names else text)
        return
    samples = [MetricRow(*sample) for sample in samples_in(text) if _is_wanted(sample.name, args.names)]
    output.rows("samples", MetricRow, samples)


def _address(args: Args) -> str:
    if args.address:
        return str(args.address)
    with connect(args) as cluster:
        return metrics_address(cluster)


def _is_wanted(line: str, names: list[str]) -> bool:
    """Returns whether the metric of a line (sample, HELP or TYPE) begins with one of `names`. True if there are no names."""
    name = line.split(" ", 3)[2] if line.startswith("# ") and line.count(" ") > 2 else line
    return not names or name.startswith(tuple(names))
