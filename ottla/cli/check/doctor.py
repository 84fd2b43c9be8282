"""`ottla doctor`: checks whether this machine is fit for a broker and whether clients can reach a broker. One line per item: pass, warn or
fail.

Most trouble with a broker has a cause outside it: an advertised address that only the broker itself can reach, a limit of open files, a
full disk, a wrong clock. Where PySpark is installed, there is a line for the Python of Spark's workers. Exit code 0 if no check failed, 1
if a check failed, 3 if the broker cannot be reached.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from ottla.cli.command import Args, command, flag, option
from ottla.cli.options import connect
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row

PASS, WARN, FAIL = "pass", "warn", "fail"
COLOURS = {PASS: "\x1b[32m", WARN: "\x1b[33m", FAIL: "\x1b[31m"}

OPEN_FILES_MIN = 1024
OPEN_FILES_GOOD = 65_536
DISK_FREE_MIN = 256 * 1024 * 1024
DISK_FREE_GOOD = 0.10
SYNC_MS_GOOD = 50.0
CLOCK_AHEAD_S = 5.0
_LOOPBACK = ("127.", "::1", "localhost")
_UNSYNCHRONISED = 5
_OFFLINE_HINT = "free some space, or replace the disk; the broker's log has the reason, and the broker retries the directory by itself"


class Finding(Row):
    """The result of one check, and what to do about it."""

    check: str
    status: str
    message: str
    hint: str = ""


@command(
    "doctor",
    "Is this machine fit for a broker, and can clients reach it?",
    option("-d", "--data-dir", default="ottla-data", metavar="DIR", help="the broker's data directory (default ./ottla-data)"),
    flag("--offline", help="only this machine, no broker"),
    option("--timeout", type=int, default=3000, metavar="MS", help="how long to wait for each broker"),
)
def _run(args: Args, output: Output) -> int:
    findings = [check_open_files(), *check_disk(args.data_dir), check_clock(args.data_dir), check_libraries()]
    findings += check_spark_workers(dict(os.environ))
    if not args.offline:
        findings += check_brokers(args)
    has_failed = any(found.status == FAIL for found in findings)
    if output.form != "table":
        output.rows("checks", Finding, findings, extra={"ok": not has_failed})
    else:
        for found in findings:
            write(found.status, COLOURS[found.status] if output.has_colour else "")
            write(f"  {found.check}: {found.message}" + (f"; {found.hint}" if found.hint else "") + "\n")
    if any(found.check == "broker" and found.status == FAIL for found in findings):
        return 3
    return 1 if has_failed else 0


# This machine


def check_open_files() -> Finding:
    """Checks the limit of open files. A broker has a descriptor for each connection and for each segment that is read or written."""
    try:
        import resource
    except ImportError:
        return Finding("open files", PASS, "this system has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return judge_open_files(soft, hard, is_unlimited=resource.RLIM_INFINITY in (soft, hard))


def judge_open_files(soft: int, hard: int, *, is_unlimited: bool = False) -> Finding:
    """Judges the hard limit of open files. A broker raises its soft limit to the hard limit at its start."""
    if is_unlimited or max(soft, hard) >= OPEN_FILES_GOOD:
        return Finding("open files", PASS, "no limit" if is_unlimited else f"a broker may hold {max(soft, hard)}")
    limit = max(soft, hard)
    hint = f"raise the hard limit to {OPEN_FILES_GOOD} or more: /etc/security/limits.conf, or LimitNOFILE in the unit"
    if limit < OPEN_FILES_MIN:
        return Finding("open files", FAIL, f"a broker may hold only {limit}", hint)
    return Finding("open files", WARN, f"a broker may hold {limit}, enough for some {limit // 200 * 100} clients", hint)


def check_disk(directory: str) -> list[Finding]:
    """Checks write access, free space and the time of an fsync. Checks the nearest existing parent if the directory does not exist."""
    path = os.path.abspath(directory)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    if not os.access(path, os.W_OK):
        return [Finding("disk", FAIL, f"{path} may not be written", "choose another --data-dir, or change its owner")]
    room = os.statvfs(path)
    return [judge_room(path, room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize), _check_sync(path)]


def judge_room(path: str, free: int, total: int) -> Finding:
    message = f"{free / 1e9:.1f} GB of {total / 1e9:.1f} GB are free in {path}"
    if free < DISK_FREE_MIN:
        return Finding("disk", FAIL, message, "free some space, or lower log.retention.bytes")
    if free < total * DISK_FREE_GOOD:
        return Finding("disk", WARN, message, "less than a tenth; free some space, or lower log.retention.bytes")
    return Finding("disk", PASS, message)


def _check_sync(path: str) -> Finding:
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".ottla-doctor-") as file:
            times = []
            for _ in range(5):
                file.write(bytes(4096))
                file.flush()
                started = time.perf_counter()
                os.fsync(file.fileno())
                times.append((time.perf_counter() - started) * 1000)
    except OSError as error:
        return Finding("fsync", FAIL, f"cannot write in {path}: {(error.strerror or str(error)).lower()}")
    return judge_sync(sorted(times)[len(times) // 2])


def judge_sync(milliseconds: float) -> Finding:
    message = f"an fsync of 4 KB takes {milliseconds:.2f} ms"
    if milliseconds > SYNC_MS_GOOD:
        return Finding("fsync", WARN, message, "acknowledgements with ottla.flush.on.ack=true wait for that; use a faster disk")
    return Finding("fsync", PASS, message)


def check_clock(directory: str) -> Finding:
    """Checks that the kernel's clock is synchronised, and that no entry of the directory is more than 5 s in the future. Retention depends
    on the clock."""
    newest = 0.0
    try:
        for entry in os.scandir(directory):
            newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    except OSError:
        pass  # `check_disk` reports a directory that is missing or unreadable
    return judge_clock(newest - time.time(), _kernel_clock_state())


def judge_clock(ahead_s: float, state: int | None) -> Finding:
    if ahead_s > CLOCK_AHEAD_S:
        return Finding("clock", FAIL, f"files of the broker are {ahead_s:.0f} s in the future", "set the clock: retention depends on it")
    if state == _UNSYNCHRONISED:
        return Finding("clock", WARN, "it is not synchronised", "run chrony or systemd-timesyncd: retention and offsets by time need it")
    return Finding("clock", PASS, "synchronised by the system" if state is not None else "it is not behind the broker's files")


def _kernel_clock_state() -> int | None:
    """Returns the clock state of Linux (adjtimex without changes; 5 is not synchronised). None on other systems or on an error."""
    import ctypes

    try:
        function = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError, TypeError):
        return None
    state = int(function(ctypes.create_string_buffer(512)))
    return state if state >= 0 else None


def check_libraries() -> Finding:
    """Checks that the compiled libraries can be loaded. Without uvloop the broker is slower; without one of the other libraries it does not
    start.
    """
    from ottla.adapters.dependencies import LATER, failure_of

    needed = {"crc32c": "crc32c", **LATER}
    if failure := failure_of(needed):
        return Finding("libraries", FAIL, failure, "the broker does not start")
    if failure := failure_of({"uvloop": "uvloop"}):
        return Finding("libraries", WARN, failure, "the broker is slower")
    return Finding("libraries", PASS, f"{', '.join(needed.values())} and uvloop can be loaded")


def check_spark_workers(environ: dict[str, str]) -> list[Finding]:
    """Checks that Spark's workers on this machine have the format `ottla` in a program that does not import `ottla.spark`. Returns nothing
    without PySpark. `environ` is a copy of the environment from before that import."""
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        return []
    from ottla.spark.worker_python import CHOICES, is_this_python, what_is_missing, worker_python

    python = worker_python(environ)
    missing = "" if is_this_python(python) else what_is_missing(python)
    if not missing:
        return [Finding("Spark's workers", PASS, f"they run in {python}, which has the format ottla")]
    result = "fails" if missing == "has no pyarrow" else "is not found (DATA_SOURCE_NOT_FOUND)"
    message = f"{python}, in which Spark starts them, {missing}: format(\"ottla\") {result}"
    if chosen := next((name for name in CHOICES if environ.get(name)), ""):
        return [Finding("Spark's workers", WARN, message, f"set {chosen}={sys.executable}, or install ottla[spark] there")]
    hint = f"import ottla.spark before the session, activate this environment, or set PYSPARK_PYTHON={sys.executable}"
    return [Finding("Spark's workers", WARN, message, hint)]


# The broker


def check_brokers(args: Args) -> Iterator[Finding]:
    """Checks that the named broker answers, the advertised addresses and log directories of all brokers, and the leaders and ISR of
    partitions."""
    from ottla.base.errors import OttlaError
    from ottla.cli.cluster.logdirs import failed_directories

    started = time.perf_counter()
    try:
        with connect(args, timeout_ms=args.timeout) as cluster:
            answer = cluster.refresh(None)
            milliseconds = (time.perf_counter() - started) * 1000
            yield Finding("broker", PASS, f"{cluster.any_connection().address} answers in {milliseconds:.0f} ms")
            bootstrap = str(cluster.any_connection().address.host)
            for broker_id, address in sorted(cluster.metadata.brokers.items()):
                yield _check_advertised(cluster, broker_id, address, bootstrap)
            yield from (Finding("log directories", FAIL, reason, _OFFLINE_HINT) for reason in failed_directories(cluster))
            yield judge_partitions([partition for topic in answer.topics for partition in topic.partitions])
    except OttlaError as error:
        yield Finding("broker", FAIL, str(error), "start one with `ottla start`, or name another with -b HOST:PORT")


def _check_advertised(cluster: Any, broker_id: int, address: Any, bootstrap: str) -> Finding:
    """Checks that an advertised address can be reached and belongs to the same cluster. Warns of a loopback address, unless
    the bootstrap address is a loopback address, too."""
    from ottla.base.errors import OttlaError
    from ottla.wire.messages.metadata import MetadataRequest

    name = f"advertised listener of broker {broker_id}"
    started = time.perf_counter()
    try:
        found = cluster.connection(broker_id).request(MetadataRequest(topics=[])).cluster_id
    except OttlaError as error:
        hint = "set advertised.listeners to an address that clients can reach"
        return Finding(name, FAIL, f"{address} is what it advertises, but {error}", hint)
    milliseconds = (time.perf_counter() - started) * 1000
    if found != cluster.metadata.cluster_id:
        hint = "two brokers advertise one address, or a port is forwarded to the wrong one: correct advertised.listeners"
        message = f"{address} is what it advertises, but there answers cluster {found}, not {cluster.metadata.cluster_id}"
        return Finding(name, FAIL, message, hint)
    is_local = str(address.host).startswith(_LOOPBACK)
    if is_local and not bootstrap.startswith(_LOOPBACK):
        hint = "other machines cannot follow; set advertised.listeners"
        return Finding(name, WARN, f"{address} is a loopback address", hint)
    only_here = ", by clients on this machine" if is_local else ""
    return Finding(name, PASS, f"{address} can be reached{only_here} ({milliseconds:.0f} ms)")


def judge_partitions(partitions: list[Any]) -> Finding:
    offline = sum(partition.leader_id < 0 for partition in partitions)
    behind = sum(len(partition.isr_nodes) < len(partition.replica_nodes) for partition in partitions)
    if offline:
        return Finding(
            "partitions", FAIL, f"{offline} of {len(partitions)} have no leader", "see `ottla topic describe --unavailable-partitions`"
        )
    if behind:
        message = f"{behind} of {len(partitions)} have a replica that is not in sync"
        return Finding("partitions", WARN, message, "see `ottla topic describe --under-replicated-partitions`")
    return Finding("partitions", PASS, f"all {len(partitions)} are well")
