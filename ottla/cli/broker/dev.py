"""Implements `ottla dev`: runs a broker whose data is removed at its end, or with `--brokers N` a whole cluster on this machine
(`local_cluster.py`).
"""

from __future__ import annotations

from ottla.cli.broker.start import START_OPTIONS, StartError, check_arguments, start
from ottla.cli.command import Args, Refused, command


@command("dev", "Run a broker whose data is removed at its end.", *START_OPTIONS, has_connection=False, has_output=False)
def _dev(args: Args) -> int:
    """Runs one broker or a cluster, and a console unless `--no-console` is given. The data is in a temporary directory that is removed at
    the end, unless the options name a directory or a configuration file."""
    if not (args.data_dir or args.config or any(given.startswith("log.dir") for given in args.assignments)):
        args.ephemeral = True
    args.is_dev = True
    ports = check_arguments(args)
    count = max(args.brokers, len(ports))
    if count == 1:
        return start(args)
    from ottla.cli.broker.local_cluster import run_cluster

    try:
        return run_cluster(args, count, ports)
    except StartError as error:
        raise Refused(str(error)) from None
