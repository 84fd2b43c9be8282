"""`ottla start`, `dev`, `stop`, `status` and `reset`: a broker in this process, and what can be done to one from outside.

The broker's own modules are imported only when one is to run. `stop`, `status` and `reset` find the broker by its data directory, as
`start` does: `--data-dir`, else `log.dirs` of `--config`, else `ottla-data` in this directory.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Command, Refused, UsageError

if TYPE_CHECKING:
    from ottla.cli.broker.running import Running

NOT_OFFERED = {
    "acls": "access control lists",
    "sasl": "SASL",
    "console_port": "the console",
}
STOP_TIMEOUT_S = 60.0


def _start_arguments(parser: argparse.ArgumentParser) -> None:
    from ottla.cli.broker.start import add_arguments

    add_arguments(parser)
    add = parser.add_argument
    add("--brokers", type=int, default=1, metavar="N", help="how many brokers; this version runs one")
    add("--ports", metavar="PORT", help="the port of each broker; this version runs one")
    add("--acls", action="store_true", help=argparse.SUPPRESS)
    add("--sasl", action="store_true", help=argparse.SUPPRESS)
    add("--console-port", type=int, help=argparse.SUPPRESS)
    add("--no-console", action="store_true", help=argparse.SUPPRESS)


def _start(args: argparse.Namespace) -> int:
    for name, what in NOT_OFFERED.items():
        if getattr(args, name):
            raise Refused(f"this version does not offer {what}; leave out --{name.replace('_', '-')}", "UNSUPPORTED_VERSION")
    if args.ephemeral and args.data_dir:
        raise UsageError("either --ephemeral or --data-dir")
    ports = args.ports.split(",") if args.ports else []
    count = max(args.brokers, len(ports))
    if args.brokers < 1 or not all(port.strip().isdigit() for port in ports):
        raise UsageError("--brokers is a number above 0, --ports a list of ports")
    if count != 1:
        raise Refused(f"this version runs one broker, not {count}; leave out --brokers and --ports", "UNSUPPORTED_VERSION")
    if ports:
        args.port = int(ports[0])
    from ottla.cli.broker.start import StartError, main

    try:
        return main(args)
    except StartError as error:
        raise Refused(str(error)) from None


def _dev(args: argparse.Namespace) -> int:
    """`start` for an afternoon: a directory of its own that goes with the broker, unless one is named."""
    if not (args.data_dir or args.config or any(given.startswith("log.dir") for given in args.assignments)):
        args.ephemeral = True
    return _start(args)


# From outside


def _place_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-d", "--data-dir", metavar="DIR", help="the broker's data directory (default: log.dirs, else ./ottla-data)")
    parser.add_argument("--config", metavar="FILE", help="the broker's configuration")


def directories_of(args: argparse.Namespace) -> list[str]:
    """Where the broker keeps its data, by the words that `start` understands."""
    if args.data_dir:
        return [os.path.abspath(args.data_dir)]
    if args.config or os.environ.get("KAFKA_LOG_DIRS") or os.environ.get("KAFKA_LOG_DIR"):
        from ottla.cli.broker.start import StartError, read_config

        empty: dict[str, Any] = {"assignments": [], "port": None, "host": None, "ephemeral": False, "data_dir": None, "sync": False}
        empty.update(config=args.config, as_version=None, log_format=None, log_level=None)
        try:
            config, _ = read_config(argparse.Namespace(**empty))
        except StartError as error:
            raise UsageError(str(error)) from None
        return [os.path.abspath(path) for path in config.data_directories]
    return [os.path.abspath("ottla-data")]


def _running(args: argparse.Namespace) -> Running | None:
    from ottla.cli.broker.running import find

    return next((found for found in map(find, directories_of(args)) if found is not None), None)


def _stop_arguments(parser: argparse.ArgumentParser) -> None:
    _place_arguments(parser)
    parser.add_argument("--timeout", type=float, default=STOP_TIMEOUT_S, metavar="SECS", help="how long to wait for its end")


def _stop(args: argparse.Namespace) -> int:
    from ottla.cli.broker.running import stop
    from ottla.cli.options import output_of

    running = _running(args)
    if running is None:
        raise Refused(f"no broker runs in {', '.join(directories_of(args))}; name its directory with --data-dir", "NOT_RUNNING")
    started = time.monotonic()
    stop(running, args.timeout)
    seconds = time.monotonic() - started
    what = {"stopped": running.pid, "data_dir": running.directory, "seconds": round(seconds, 3)}
    output_of(args).done(f"broker {running.pid} has stopped after {seconds:.1f} s", what)
    return 0


def _status(args: argparse.Namespace) -> int:
    """Exit code 0 when a broker runs and answers, 1 when none runs, 3 when it does not answer."""
    from ottla.cli.options import output_of

    running = _running(args)
    directories = directories_of(args)
    found: dict[str, Any] = {"running": running is not None, "data_dir": directories, "data_bytes": sum(map(_size, directories))}
    if running is not None:
        found.update(pid=running.pid, address=running.address or None, since=_moment(running.started_s))
        found["answer_ms"] = _answer_ms(running.address) if running.address else None
    output_of(args).show_object(found)
    if running is None:
        return 1
    return 0 if found["answer_ms"] is not None else 3


def _moment(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _size(directory: str) -> int:
    """What the files of a directory take; files come and go meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def _answer_ms(address: str) -> float | None:
    """How long the broker takes to say which versions it speaks."""
    from ottla.client.cluster import Cluster
    from ottla.client.errors import TransportError

    started = time.perf_counter()
    try:
        with Cluster(address, timeout_s=2.0) as cluster:
            cluster.any_connection()
    except TransportError:
        return None
    return round((time.perf_counter() - started) * 1000, 1)


def _reset_arguments(parser: argparse.ArgumentParser) -> None:
    from ottla.cli.options import add_yes

    _place_arguments(parser)
    add_yes(parser)


def _reset(args: argparse.Namespace) -> int:
    """Removes what is in the data directories, and only in directories that are a broker's."""
    from ottla.cli.options import confirm, output_of

    directories = [path for path in directories_of(args) if os.path.isdir(path) and os.listdir(path)]
    if not directories:
        output_of(args).done(f"nothing is in {', '.join(directories_of(args))}", {"removed": []})
        return 0
    for path in directories:
        if not os.path.exists(os.path.join(path, "meta.properties")):
            raise Refused(f"{path} is no broker's data directory (it has no meta.properties); nothing was removed", "NOT_A_DATA_DIRECTORY")
    running = _running(args)
    if running is not None:
        raise Refused(f"broker {running.pid} runs in {running.directory}; stop it first: ottla stop", "BROKER_RUNNING")
    confirm(args, f"Remove all topics, records and groups in {', '.join(directories)}?")
    for path in directories:
        _wipe(path)
    output_of(args).done(f"{', '.join(directories)}: empty now", {"removed": directories})
    return 0


def _wipe(directory: str) -> None:
    """Empties a directory under its lock, so that no broker starts in it meanwhile."""
    import shutil

    from ottla.adapters.lock import LOCK_FILE, DirectoryLock
    from ottla.base.errors import StorageError

    try:
        lock = DirectoryLock(directory)
    except StorageError as error:
        raise Refused(str(error)) from None
    try:
        for entry in sorted(os.scandir(directory), key=lambda found: found.name == LOCK_FILE):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    except OSError as error:
        raise Refused(f"cannot remove {error.filename}: {(error.strerror or str(error)).lower()}") from None
    finally:
        lock.release()


def _local(sentence: str, add_arguments: Callable[[argparse.ArgumentParser], object], run: Callable[[argparse.Namespace], int]) -> Command:
    return Command(sentence, add_arguments, run, has_connection=False)


COMMANDS = {
    "start": Command("Run a broker until Ctrl-C.", _start_arguments, _start, has_connection=False, has_output=False),
    "dev": Command("Run a broker on data that goes with it.", _start_arguments, _dev, has_connection=False, has_output=False),
    "stop": _local("Stop the broker of a data directory.", _stop_arguments, _stop),
    "status": _local("Does a broker run in a data directory, and does it answer?", _place_arguments, _status),
    "reset": _local("Remove all data of a broker that does not run.", _reset_arguments, _reset),
}
