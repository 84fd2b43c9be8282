"""`ottla partitions`: move replicas (`generate`, `reassign`, `list`, `verify`, `cancel`). Leaders are chosen in `partition_elections.py`.

Files have the format of Kafka's tool (`partition_plans.py`). Without `--execute`, `reassign` shows the plan and changes nothing. `cancel`,
and `verify` when nothing moves any more, remove all replication throttles unless `--preserve-throttles` is given, as Kafka's tool does.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.cluster import partition_elections, partitions_generate
from ottla.cli.cluster.move_steps import Cancelled, Cleared, LogDirs, LogDirsStarted, MoveRow, Planned, Started, Verified
from ottla.cli.cluster.partition_plans import Plan, read_plan
from ottla.cli.command import Command, Refused, UsageError
from ottla.cli.options import add_yes, confirm, connect, output_of
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


class StateRow(Row):
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


def _file_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reassignment-json-file", required=True, metavar="FILE", help="partitions with their new replicas")


def _reassign_arguments(parser: argparse.ArgumentParser) -> None:
    _file_argument(parser)
    add = parser.add_argument
    add("--execute", action="store_true", help="execute the plan; without this it is only shown")
    add("--additional", action="store_true", help="also while other moves are in progress")
    add("--throttle", type=int, metavar="B/s", help="bytes a second between brokers")
    add("--replica-alter-log-dirs-throttle", type=int, metavar="B/s", help="bytes a second between directories of a broker")
    add("--disallow-replication-factor-change", action="store_true", help="refuse to change the number of replicas")
    add("--timeout", type=int, default=10_000, metavar="MS", help="how long to wait for replicas to move between directories")
    add_yes(parser)


def _reassign(args: argparse.Namespace) -> int:
    output = output_of(args)
    plan = read_plan(args.reassignment_json_file)
    rate, log_dir_rate = (
        _rate(value, option)
        for value, option in (
            (args.throttle, "--throttle"),
            (args.replica_alter_log_dirs_throttle, "--replica-alter-log-dirs-throttle"),
        )
    )
    with connect(args) as cluster:
        before = replica_admin.replicas_of(cluster, plan.replicas)
        unknown = sorted({broker for replicas in plan.replicas.values() for broker in replicas} - set(cluster.brokers))
        if unknown:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {unknown[0]}; there are {_ids(cluster.brokers)}")
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
    """A throttle; -1 means none, as in Kafka's tool."""
    if value is None or value == -1:
        return None
    if value < 1:
        raise UsageError(f"{option} is a number of bytes a second, 1 or more")
    return value


def _name(code: ErrorCode | None) -> str | None:
    return code.name if code else None


def _ids(brokers: Any) -> str:
    return ", ".join(map(str, sorted(brokers)))


def _start(
    cluster: Cluster,
    args: argparse.Namespace,
    output: Output,
    plan: Plan,
    before: dict[TopicPartition, list[int]],
    rate: int | None,
    log_dir_rate: int | None,
) -> dict[TopicPartition, ErrorCode]:
    """Sets throttles, starts moves between brokers and between directories; returns the error of each partition."""
    if not args.additional and replica_admin.moves_under_way(cluster):
        raise Refused("other moves are in progress; --additional starts these as well", ErrorCode.REASSIGNMENT_IN_PROGRESS.name)

    def log_dirs() -> LogDirs:
        return replica_admin.log_dirs_of(cluster, sorted(cluster.brokers), plan.topics)

    lie = log_dirs() if plan.log_dirs else {}
    strays = {replica: path for replica, path in plan.log_dirs.items() if not _is_settled(path, *lie.get(replica, ("", "")))}
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


def _is_settled(wanted: str, now: str, future: str) -> bool:
    """Whether a replica needs no move. `now` is its directory, `future` is the target of its move, empty without one."""
    return wanted == (future or now)


def _check_directories(cluster: Cluster, wanted: Mapping[replica_admin.Replica, str]) -> None:
    """Refuses directories that their broker does not have, before anything is changed."""
    for broker in sorted({replica.broker for replica in wanted}):
        there = [str(found.log_dir) for found in admin.describe_log_dirs(cluster, broker, [])]
        for replica, path in sorted(wanted.items()):
            if replica.broker == broker and path not in there:
                message = f"broker {broker} has no log directory {path!r}; it has {', '.join(sorted(there))}"
                raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, message)


def _list(args: argparse.Namespace) -> int:
    with connect(args) as cluster:
        moves = replica_admin.moves_under_way(cluster)
    rows = [MoveRow(*found, *move) for found, move in sorted(moves.items())]
    output_of(args).rows("reassignments", MoveRow, rows)
    return 0


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    _file_argument(parser)
    parser.add_argument("--preserve-throttles", action="store_true", help="keep the throttles, which are else removed at the end")


def _verify(args: argparse.Namespace) -> int:
    """In our own form the exit code is 1 until every partition is as the file says; in Kafka's form it is 0."""
    output = output_of(args)
    plan = read_plan(args.reassignment_json_file)
    with connect(args) as cluster:
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
        rows.append(StateRow(*partition, now[partition], state))
    output.rows("partitions", StateRow, rows)
    return output.verdict(all(row.state == "complete" for row in rows))


def _clear(cluster: Cluster, output: Output, plan: Plan) -> None:
    named = {broker for replicas in plan.replicas.values() for broker in replicas}
    output.report(Cleared(sorted({*cluster.brokers, *named}), plan.topics))
    replica_admin.clear_throttles(cluster, plan.topics)


def _cancel_arguments(parser: argparse.ArgumentParser) -> None:
    _verify_arguments(parser)
    add_yes(parser)


def _cancel(args: argparse.Namespace) -> int:
    output = output_of(args)
    plan = read_plan(args.reassignment_json_file)
    confirm(args, f"Cancel the moves of {counted(len(plan.replicas), 'partition')}?")
    with connect(args) as cluster:
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


COMMANDS = {
    "generate": partitions_generate.COMMAND,
    "reassign": Command("Move replicas to other brokers.", _reassign_arguments, _reassign),
    "list": Command("Moves in progress.", lambda parser: None, _list, may_watch=True),
    "verify": Command("Are the moves of a file done?", _verify_arguments, _verify),
    "cancel": Command("Stop the moves of a file.", _cancel_arguments, _cancel),
    "elect": partition_elections.COMMAND,
}
