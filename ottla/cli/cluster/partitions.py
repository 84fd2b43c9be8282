"""`ottla partitions`: moves replicas (`reassign`, `list`, `verify`, `cancel`). `generate` and `elect` are in modules of their own.

Files have the format of Kafka's tool (`moves.py`). Without `--execute`, `reassign` shows the plan and changes nothing. As in Kafka's tool,
`cancel` removes all replication throttles of the brokers and of the file's topics; so does `verify` when no move of the file is in
progress. `--preserve-throttles` keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.cluster.moves import Cancelled, Cleared, LogDirs, LogDirsStarted, MovePlan, MoveRow, Planned, Started, Verified, read_plan
from ottla.cli.command import Args, Refused, UsageError, command, flag, option
from ottla.cli.options import YES, confirm
from ottla.cli.render.ottla import Output
from ottla.cli.render.rows import Row
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin, replica_admin

ALTER_REPLICA_LOG_DIRS = 34


class PlannedRow(Row):
    """A partition in `reassign`."""

    topic: str
    partition: int
    replicas: list[int]
    new_replicas: list[int]
    error: str | None


class VerifiedRow(Row):
    """A partition in `verify`."""

    topic: str
    partition: int
    replicas: list[int]
    state: str


class CancelledRow(Row):
    """A partition in `cancel`."""

    topic: str
    partition: int
    error: str | None


# Moving


FILE_OPTION = (option("--reassignment-json-file", required=True, metavar="FILE", help="partitions with their new replicas"),)


@command(
    "partitions reassign",
    "Move replicas to other brokers.",
    *FILE_OPTION,
    flag("--execute", help="execute the plan; without this it is only shown"),
    flag("--additional", help="also while other moves are in progress"),
    option("--throttle", type=int, metavar="B/s", help="bytes a second between brokers"),
    option("--replica-alter-log-dirs-throttle", type=int, metavar="B/s", help="bytes a second between directories of a broker"),
    flag("--disallow-replication-factor-change", help="refuse to change the number of replicas"),
    option("--timeout", type=int, default=10_000, metavar="MS", help="how long to wait for replicas to move between directories"),
    YES,
)
def _reassign(args: Args, cluster: Cluster, output: Output) -> int:
    plan = read_plan(args.reassignment_json_file)
    rate, log_dir_rate = (
        _rate(value, option)
        for value, option in ((args.throttle, "--throttle"), (args.replica_alter_log_dirs_throttle, "--replica-alter-log-dirs-throttle"))
    )
    before = replica_admin.replicas_of(cluster, plan.replicas)
    unknown = sorted({broker for replicas in plan.replicas.values() for broker in replicas} - set(cluster.brokers))
    if unknown:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"there is no broker {unknown[0]}; there are {', '.join(map(str, sorted(cluster.brokers)))}",
        )
    errors: dict[TopicPartition, ErrorCode] = {}
    if args.execute:
        confirm(args, f"Move replicas of {counted(len(plan.replicas), 'partition')}?")
        errors = _start(cluster, args, output, plan, before, rate, log_dir_rate)
    rows = [PlannedRow(*key, before[key], replicas, _name(errors.get(key))) for key, replicas in sorted(plan.replicas.items())]
    output.rows("partitions", PlannedRow, rows, extra={"executed": args.execute})
    if not args.execute:
        output.note("nothing was changed; add --execute to do it")
    return 1 if any(errors.values()) else 0


def _rate(value: int | None, option: str) -> int | None:
    """Returns a throttle in bytes/s; None if it is not given or -1, as in Kafka's tool. Raises `UsageError` below 1."""
    if value is None or value == -1:
        return None
    if value < 1:
        raise UsageError(f"{option} is a number of bytes a second, 1 or more")
    return value


def _name(code: ErrorCode | None) -> str | None:
    return code.name if code else None


def _start(
    cluster: Cluster,
    args: Args,
    output: Output,
    plan: MovePlan,
    before: dict[TopicPartition, list[int]],
    rate: int | None,
    log_dir_rate: int | None,
) -> dict[TopicPartition, ErrorCode]:
    """Sets throttles, then starts moves between brokers, then between directories. Returns the error of each refused partition.

    Moves between directories start only if no other move was refused. Raises `Refused` if other moves are in progress, unless
    `--additional` is given.
    """
    if not args.additional and replica_admin.moves_under_way(cluster):
        raise Refused("other moves are in progress; --additional starts these as well", ErrorCode.REASSIGNMENT_IN_PROGRESS.name)

    def log_dirs() -> LogDirs:
        return replica_admin.log_dirs_of(cluster, sorted(cluster.brokers), plan.topics)

    lie = log_dirs() if plan.log_dirs else {}
    ends = {replica: target or now for replica, (now, target) in lie.items()}
    strays = {replica: path for replica, path in plan.log_dirs.items() if path != ends.get(replica, "")}
    if strays:
        cluster.any_connection().version_of(ALTER_REPLICA_LOG_DIRS)
        _check_directories(cluster, strays)
    if rate is not None:
        replica_admin.throttle_moves(cluster, plan.replicas, before, rate)
    if log_dir_rate is not None:
        replica_admin.throttle_log_dirs(cluster, {replica.broker for replica in strays}, log_dir_rate)
    output.report(Planned(before, rate, log_dir_rate, log_dirs))
    may_change = not args.disallow_replication_factor_change
    errors = replica_admin.move_replicas(cluster, plan.replicas, may_change_factor=may_change)
    output.report(Started(list(plan.replicas), errors))
    if strays and not any(errors.values()):
        codes = replica_admin.move_log_dirs(cluster, strays, timeout_s=args.timeout / 1000)
        errors.update({partition: code for (partition, _), code in codes.items() if code})
        started = [replica for replica in strays if not codes.get(replica)]
        if started:
            output.report(LogDirsStarted(started))
    return errors


def _check_directories(cluster: Cluster, wanted: Mapping[replica_admin.Replica, str]) -> None:
    """Raises `ApiError` if a broker lacks a wanted directory. Called before any change."""
    for broker in sorted({replica.broker for replica in wanted}):
        there = [str(found.log_dir) for found in admin.describe_log_dirs(cluster, broker, [])]
        for replica, path in sorted(wanted.items()):
            if replica.broker == broker and path not in there:
                message = f"broker {broker} has no log directory {path!r}; it has {', '.join(sorted(there))}"
                raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, message)


@command("partitions list", "Moves in progress.", may_watch=True)
def _list(args: Args, cluster: Cluster, output: Output) -> None:
    moves = replica_admin.moves_under_way(cluster)
    rows = [MoveRow(*found, *move) for found, move in sorted(moves.items())]
    output.rows("reassignments", MoveRow, rows)


VERIFY_OPTIONS = (*FILE_OPTION, flag("--preserve-throttles", help="keep the throttles, which are else removed at the end"))


@command("partitions verify", "Are the moves of a file done?", *VERIFY_OPTIONS)
def _verify(args: Args, cluster: Cluster, output: Output) -> int:
    """Returns exit code 1 until every partition has the state of the file. Called as Kafka's tool it returns 0."""
    plan = read_plan(args.reassignment_json_file)
    now = replica_admin.replicas_of(cluster, plan.replicas)
    moving = {partition for partition in replica_admin.moves_under_way(cluster) if partition in plan.replicas}
    lie = replica_admin.log_dirs_of(cluster, sorted(cluster.brokers), plan.topics) if plan.log_dirs else {}
    is_laid = {replica: lie.get(replica, ("", ""))[0] == path for replica, path in plan.log_dirs.items()}
    between_dirs = {replica.partition for replica in plan.log_dirs if lie.get(replica, ("", ""))[1]}
    is_busy = bool(moving or between_dirs)
    output.report(Verified(plan.replicas, now, moving, plan.log_dirs, lie))
    if not is_busy and not args.preserve_throttles:
        _clear(cluster, output, plan)
    rows = []
    for partition, replicas in sorted(plan.replicas.items()):
        is_done = now[partition] == replicas and all(done for replica, done in is_laid.items() if replica.partition == partition)
        state = "in progress" if partition in moving or partition in between_dirs else "complete" if is_done else "not done"
        rows.append(VerifiedRow(*partition, now[partition], state))
    output.rows("partitions", VerifiedRow, rows)
    return output.verdict(all(row.state == "complete" for row in rows))


def _clear(cluster: Cluster, output: Output, plan: MovePlan) -> None:
    named = {broker for replicas in plan.replicas.values() for broker in replicas}
    output.report(Cleared(sorted({*cluster.brokers, *named}), plan.topics))
    replica_admin.clear_throttles(cluster, plan.topics)


@command("partitions cancel", "Stop the moves of a file.", *VERIFY_OPTIONS, YES)
def _cancel(args: Args, cluster: Cluster, output: Output) -> int:
    plan = read_plan(args.reassignment_json_file)
    confirm(args, f"Cancel the moves of {counted(len(plan.replicas), 'partition')}?")
    replica_admin.replicas_of(cluster, plan.replicas)
    errors = replica_admin.move_replicas(cluster, dict.fromkeys(plan.replicas))
    output.report(Cancelled([partition for partition, code in errors.items() if not code]))
    if not args.preserve_throttles:
        _clear(cluster, output, plan)
    rows = [CancelledRow(*found, _name(code)) for found, code in sorted(errors.items())]
    output.rows("partitions", CancelledRow, rows)
    if any(code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS) for code in errors.values()):
        return 1
    return output.verdict(not any(errors.values()))
