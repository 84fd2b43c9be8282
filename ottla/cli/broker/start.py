"""`ottla start`: runs one broker in this process, until SIGTERM or Ctrl-C.

Prints exactly one line on stdout, when the first request can be served: `READY host:port broker.id=N in M ms`. No other module of the
command line imports the server. A broker that cannot start prints one line; the exit code is 1, or 3 if its ZooKeeper does not answer.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence

from ottla.base.config import BROKER_SETTINGS, BrokerConfig, ConfigError, Notice, load
from ottla.base.settings.dynamic_values import holds_secret
from ottla.base.settings.security import PLAIN_USER_PREFIX
from ottla.cli.command import Args, NotReached, Refused, UsageError, command, flag, hidden, option
from ottla.cli.input_files import file_text

SNIPPETS = """
  kcat                 kcat -b {address} -L
  confluent-kafka      Producer({{"bootstrap.servers": "{address}"}})
  kafka-python         KafkaProducer(bootstrap_servers="{address}")
  aiokafka             AIOKafkaProducer(bootstrap_servers="{address}")
  Java                 bootstrap.servers={address}
  Spark                kafka.bootstrap.servers={address}
  this program         echo hello | ottla produce first -b {address}
                       ottla consume first --from-beginning -b {address}

"""

NOT_OFFERED = {
    "sasl": "one option for SASL (a listener has it by listeners=SASL_PLAINTEXT://HOST:PORT and users, see docs/security.md)",
}

SETTING_OPTIONS = {
    "as_version": "ottla.advertise.level",
    "cores": "ottla.cores",
    "log_format": "ottla.log.format",
    "log_level": "ottla.log.level",
}
"""The settings of options that only set one setting."""

CONSOLE_PORT, PORT_MAX = 8080, 65_535


class StartError(Exception):
    """The broker cannot be started; the message is one line."""


OPTIONS = (
    option("--config", metavar="FILE", help="server.properties or TOML file"),
    option(
        "--set", "--override", "-c", action="append", default=[], metavar="KEY=VALUE", dest="assignments", help="overrides other sources"
    ),
    option("--port", type=int, metavar="PORT", help="port to listen on, 0 for any free one (default 9092)"),
    option("--host", metavar="HOST", help="address to listen on (default 127.0.0.1)"),
    option("-d", "--data-dir", metavar="DIR", help="directory of the logs (default: log.dirs, else ./ottla-data)"),
    flag("--ephemeral", help="a temporary data directory, removed at the end"),
    flag("--sync", help="acknowledge records only after an fsync (ottla.flush.on.ack=true)"),
    option("--cores", type=int, metavar="N", help="run N brokers as one service, each on a core of its own (ottla.cores)"),
    option("--seed-topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="create these topics, separated by commas"),
    option("--as-version", metavar="X.Y", help="advertise the API versions of this Kafka version (ottla.advertise.level)"),
    option("--log-format", choices=("text", "json"), help="format of the log on stderr"),
    option("--log-level", choices=("debug", "info", "warning", "error"), help="lowest level that is logged"),
)
"""The options of one broker, without those for access rules and the console."""

START_OPTIONS = (
    *OPTIONS,
    option("--brokers", type=int, default=1, metavar="N", help="dev: run this many brokers and a ZooKeeper on this machine"),
    option("--ports", metavar="PORT,...", help="dev: the port of each broker (default: --port and the next ports)"),
    flag("--acls", help="enable access rules (authorizer.class.name=acl); set super.users as well"),
    hidden("--sasl", action="store_true"),
    hidden("--with-parent", action="store_true"),
    option("--console-port", type=int, metavar="PORT", help="start a console on this port, 0 for any free one (dev: default 8080)"),
    flag("--no-console", help="start no console"),
)
"""All options of `start` and `dev`. Each command refuses some of them."""


@command("start", "Run a broker until Ctrl-C.", *START_OPTIONS, has_connection=False, has_output=False)
def start(args: Args) -> int:
    """Runs one broker; returns the exit code. Raises `UsageError`, `Refused` if the broker cannot start, or `NotReached`."""
    ports = check_arguments(args)
    count = max(args.brokers, len(ports))
    if count != 1:
        raise UsageError(f"a process is one broker, not {count}; ottla dev --brokers {count} runs a whole cluster on this machine")
    if ports:
        args.port = ports[0]
    try:
        return run_broker(args)
    except StartError as error:
        raise Refused(str(error)) from None


def check_arguments(args: Args) -> list[int]:
    """Checks the options and returns the ports of `--ports`. Adds the setting of `--acls` to `args.assignments`. Raises `UsageError` for
    contradictions and `Refused` for options that this version does not offer."""
    for name, what in NOT_OFFERED.items():
        if getattr(args, name):
            raise Refused(f"this version does not offer {what}; leave out --{name.replace('_', '-')}", "UNSUPPORTED_VERSION")
    if args.console_port is not None and (args.no_console or not 0 <= args.console_port <= PORT_MAX):
        raise UsageError("--console-port is a number from 0 to 65535, and does not go with --no-console")
    if args.acls:
        args.assignments.append("authorizer.class.name=acl")
    if args.ephemeral and args.data_dir:
        raise UsageError("either --ephemeral or --data-dir")
    ports = [word.strip() for word in args.ports.split(",")] if args.ports else []
    if args.cores is not None and (args.cores < 1 or args.brokers > 1 or getattr(args, "is_dev", False)):
        raise UsageError("--cores is a number above 0, for ottla start; ottla dev runs several brokers by --brokers")
    if args.brokers < 1 or not all(port.isdecimal() for port in ports):
        raise UsageError("--brokers is a number above 0, --ports a list of ports")
    return [int(port) for port in ports]


def run_broker(args: Args) -> int:
    """Runs the broker until it is stopped, or several as one service with `ottla.cores`. Raises `StartError`, and `NotReached` if its
    ZooKeeper does not answer."""
    started = time.perf_counter()
    if not __debug__:
        raise StartError("the broker checks its invariants with assert; start it without python -O")
    seed_topics = parse_seed_topics(args.seed_topic)
    if not args.ephemeral:
        return _run(args, seed_topics, started)
    args.data_dir = tempfile.mkdtemp(prefix="ottla-")
    try:
        return _run(args, seed_topics, started)
    finally:
        import shutil

        # Removes only the temporary directory. With a setting log.dirs the data is in other directories, which are kept.
        shutil.rmtree(args.data_dir, ignore_errors=True)


def _run(args: Args, seed_topics: list[tuple[str, int]], started: float) -> int:
    config, notices = read_config(args)
    os.umask(int(config.ottla_umask, 8))
    if config.ottla_cores > 1:
        if seed_topics:
            raise StartError("--seed-topic creates topics of one broker: leave it out, and create them when the service is ready")
        return _run_service(args, config, notices, started)
    try:
        from ottla.server.app import StartRefused, StoreNotReached, run
        from ottla.server.logging_setup import set_up_logging
    except ImportError as error:
        from ottla.adapters.dependencies import why_not_loaded

        raise StartError(why_not_loaded(error.name or "a package", error)) from error

    set_up_logging(config.ottla_log_format, config.ottla_log_level, config.this_broker_id)
    try:
        return run(
            config, notices, seed_topics=seed_topics, started=started, read_again=lambda: read_config_again(args),
            on_ready=lambda address: _ready(config.data_directories, address, is_quiet=getattr(args, "quiet", False)),
            console=console_address(args, config.ottla_console_listen), is_with_parent=args.with_parent,
        )  # fmt: skip
    except StoreNotReached as error:
        raise NotReached(str(error)) from None
    except StartRefused as error:
        raise StartError(str(error)) from error


def _run_service(args: Args, config: BrokerConfig, notices: Sequence[Notice], started: float) -> int:
    """Runs `ottla.cores` brokers as processes, with the options of this one."""
    from ottla.server.app import StartRefused
    from ottla.server.cores.supervisor import ServicePlan, run
    from ottla.server.logging_setup import log_notices, set_up_logging

    set_up_logging(config.ottla_log_format, config.ottla_log_level, config.this_broker_id)
    log_notices(notices)
    if console_address(args, config.ottla_console_listen):
        raise StartError("several brokers start no console: leave it out, and run ottla console -b ADDRESS beside them")
    given = [word for assignment in [*option_assignments(args), *args.assignments] for word in ("--set", assignment)]
    command = [sys.executable, "-m", "ottla", "start", "--with-parent", *(["--config", args.config] if args.config else []), *given]
    try:
        return run(
            ServicePlan(config, command, os.environ), started=started,
            on_ready=lambda addresses: _ready(config.data_directories, addresses, is_quiet=getattr(args, "quiet", False)),
        )  # fmt: skip
    except StartRefused as error:
        raise StartError(str(error)) from error


def _ready(directories: Sequence[str], address: str, *, is_quiet: bool) -> None:
    """Writes the address into the lock files, for `ottla status`. Prints connection examples if stderr is a terminal."""
    from ottla.cli.broker.running import note_address

    note_address([os.path.abspath(path) for path in directories], address)
    if sys.stderr.isatty() and not is_quiet:
        sys.stderr.write(SNIPPETS.format(address=address))
        sys.stderr.flush()


def console_address(args: Args, setting: str | None) -> str:
    """Returns the console's address (host:port), or an empty text without a console. `setting` is the value of `ottla.console.listen`.
    Raises `StartError` if the setting is used and is not an address."""
    if args.no_console:
        return ""
    if args.console_port is not None:
        return f"127.0.0.1:{args.console_port}"
    if setting:
        host, _, port = setting.rpartition(":")
        if not host or not port.isdecimal() or int(port) > PORT_MAX:
            raise StartError(f"ottla.console.listen={setting} is not host:port, such as 127.0.0.1:{CONSOLE_PORT}")
    return setting or (f"127.0.0.1:{CONSOLE_PORT}" if getattr(args, "is_dev", False) else "")


def read_config(args: Args) -> tuple[BrokerConfig, list[Notice]]:
    """Loads the configuration from the file, the environment and the options. Returns it with notices to log. Raises `StartError`."""
    assignments = [*args.assignments, *option_assignments(args)]
    try:
        text = file_text(args.config) if args.config else ""
        config, notices = load(
            file_text=text, file_name=args.config or "", environment=os.environ, assignments=assignments, read_file=file_text
        )  # fmt: skip
        return config, [*notices, *_secret_assignments(args.assignments)]
    except OSError as error:
        raise StartError(f"cannot read {args.config}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StartError(f"cannot read {args.config}: it is not UTF-8 text") from error
    except ConfigError as error:
        raise StartError(str(error)) from error


def _secret_assignments(assignments: Sequence[str]) -> list[Notice]:
    """Returns a warning if `--set` contains secrets, else nothing."""
    names = (assignment.partition("=")[0].strip() for assignment in assignments)
    secrets = [name for name in names if holds_secret(BROKER_SETTINGS, name) or name.startswith(PLAIN_USER_PREFIX)]
    if not secrets:
        return []
    shown = ", ".join(sorted(secrets))
    return [Notice(True, f"--set: the list of processes shows {shown} to everybody on this machine; use --config FILE or the environment")]


def read_config_again(args: Args) -> BrokerConfig:
    """Reads the sources of `read_config` again, for a reload. Raises `ConfigError`."""
    try:
        return read_config(args)[0]
    except StartError as error:
        raise ConfigError(str(error)) from error


def option_assignments(args: Args) -> list[str]:
    """Returns the options that set a setting, such as `--port`, as `name=value`. `--set` with the same setting wins over an option."""
    given = {assignment.partition("=")[0].strip() for assignment in args.assignments}
    found = []
    if args.port is not None or args.host is not None:
        host = "127.0.0.1" if args.host is None else args.host
        found.append(f"listeners=PLAINTEXT://{host}:{9092 if args.port is None else args.port}")
    if args.data_dir:
        found.append(f"log.dirs={os.path.abspath(args.data_dir)}")
    if args.sync:
        found.append("ottla.flush.on.ack=true")
    for given_as, name in SETTING_OPTIONS.items():
        if getattr(args, given_as):
            found.append(f"{name}={getattr(args, given_as)}")
    return [assignment for assignment in found if assignment.partition("=")[0] not in given]


def parse_seed_topics(texts: list[str]) -> list[tuple[str, int]]:
    """Parses `a:3,b` into (a, 3) and (b, -1). -1 is the default number of partitions. Raises `StartError` for an invalid topic."""
    from ottla.controller.topic_names import why_invalid

    topics = []
    for entry in ",".join(texts).split(","):
        if not entry.strip():
            continue
        name, colon, count = entry.strip().partition(":")
        if colon and not (count.isdecimal() and int(count)):
            raise StartError(f"--seed-topic {entry!r} is not NAME or NAME:PARTITIONS")
        if reason := why_invalid(name):
            raise StartError(f"--seed-topic {entry!r}: {reason}")
        topics.append((name, int(count) if colon else -1))
    return topics
