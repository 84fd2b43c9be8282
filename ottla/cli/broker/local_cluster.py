"""`ottla dev --brokers N`: runs several brokers and a ZooKeeper as processes of this machine, until SIGTERM or Ctrl-C.

Prints one line on stdout when all brokers serve: `READY host:port,host:port,... broker.id=1,2,... in M ms`. The brokers' logs are files
beside their data. When a broker ends, a line on stderr reports it and the other brokers continue, so that failover can be tried.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Sequence

from ottla.adapters.console_process import ConsoleProcess
from ottla.cli.broker.start import StartError, console_address, option_assignments, parse_seed_topics
from ottla.cli.command import Args, UsageError
from ottla.testing.cluster import BrokerDidNotStart, Cluster, replica_defaults
from ottla.testing.zookeeper_process import ZooKeeperDidNotStart, ZooKeeperMissing

FIRST_PORT = 9092
LOOK_SECONDS = 0.5
METRICS = "ottla.metrics.listen"
HTTP_PORT = re.compile(r"metrics and health on (https?://[^\s\"]+)")
"""Matches the line of a broker's log that has the address of its HTTP port."""
ASSIGNED = ("listeners", "log.dir", "log.dirs")


def run_cluster(args: Args, count: int, ports: Sequence[int]) -> int:
    """Runs the cluster until it is stopped; returns exit code 0. Raises `UsageError`, and `StartError` with a message of one line."""
    started = time.perf_counter()
    if args.config or args.host:
        raise UsageError("several brokers take their settings by --set, and listen on the loopback address: leave out --config and --host")
    parse_seed_topics(args.seed_topic)
    if not ports:
        first = FIRST_PORT if args.port is None else args.port
        ports = [first + number if first else 0 for number in range(count)]
    settings = settings_of(args)
    listen, registry = console_address(args, settings.pop("ottla.console.listen", None)), settings.get("ottla.console.registry")
    if listen:
        settings.setdefault(METRICS, "127.0.0.1:0")
    cluster = Cluster(
        count, defaults=replica_defaults(count), settings=settings, topics=args.seed_topic, ports=ports,
        directory=None if args.ephemeral else args.data_dir,
    )  # fmt: skip
    console: ConsoleProcess | None = None
    is_over = threading.Event()
    before = {number: signal.signal(number, lambda *_: is_over.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        cluster.start()
        announce(cluster, (time.perf_counter() - started) * 1000)
        console = start_console(cluster, listen, registry) if listen else None
        watch(cluster, is_over)
    except (ZooKeeperMissing, ZooKeeperDidNotStart, BrokerDidNotStart) as error:
        raise StartError(str(error).strip().splitlines()[-1]) from error
    finally:
        if console is not None:
            console.stop()
        cluster.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def settings_of(args: Args) -> dict[str, str]:
    """Returns the settings from `--set` and from options such as `--sync`. The cluster assigns listeners and data directories itself.
    Raises `UsageError` for `--set` with one of these, or without a value."""
    found = {}
    for assignment in [*option_assignments(args), *args.assignments]:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment!r} is not KEY=VALUE")
        if name.strip() not in ASSIGNED:
            found[name.strip()] = value
        elif assignment in args.assignments:
            raise UsageError(f"leave out {name.strip()}: several brokers take --port or --ports, and --data-dir for a folder that is kept")
    return found


def announce(cluster: Cluster, milliseconds: float) -> None:
    """Prints the READY line on stdout; the address of ZooKeeper, the log folder and the brokers on stderr."""
    ids = ",".join(str(broker.broker_id) for broker in cluster.brokers)
    sys.stdout.write(f"READY {cluster.direct_server} broker.id={ids} in {milliseconds:.0f} ms\n")
    sys.stdout.flush()
    sys.stderr.write(f"ZooKeeper {cluster.zookeeper_connect}, logs in {cluster.brokers[0].process.log_file.parent}\n")
    for broker in cluster.brokers:
        sys.stderr.write(f"broker {broker.broker_id}: {broker.address}, process {broker.process.pid}\n")
    sys.stderr.flush()


def start_console(cluster: Cluster, listen: str, registry: str | None) -> ConsoleProcess:
    """Starts a console for the cluster on `listen` (host:port), which reads the brokers' HTTP ports, and the schemas of `registry` (a URL).
    Its lines are printed on stderr."""
    host, _, port = listen.rpartition(":")
    options = ["-b", cluster.direct_server, "-X", "security.protocol=PLAINTEXT", "--port", port]
    for broker in cluster.brokers:
        for address in HTTP_PORT.findall(broker.log)[-1:]:
            options += ["--metrics", address]
    return ConsoleProcess(options, lambda line: print(line, file=sys.stderr, flush=True), host=host.strip("[]"), registry=registry)


def watch(cluster: Cluster, is_over: threading.Event) -> None:
    """Waits until `is_over` is set. If a broker ends before that, reports it on stderr."""
    running = list(cluster.brokers)
    while not is_over.wait(LOOK_SECONDS):
        for broker in [broker for broker in running if not broker.is_running]:
            running.remove(broker)
            sys.stderr.write(f"broker {broker.broker_id} has ended; its log: {broker.process.log_file}\n")
            sys.stderr.flush()
