"""Prints the results of `ottla partitions` exactly as `kafka-reassign-partitions` and `kafka-leader-election` do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.cluster.partition_elections import ElectionRow
from ottla.cli.cluster.partitions import (
    Cancelled,
    CancelledRow,
    Cleared,
    LogDirsStarted,
    MoveRow,
    Planned,
    PlannedRow,
    Started,
    Verified,
    VerifiedRow,
    as_json,
)
from ottla.cli.kafka_tools.usage import java_error
from ottla.cli.output import write
from ottla.cli.render.kafka import Printers, print_nothing
from ottla.client.core.replica_admin import Move, Replica

WARNING = "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed.\n"


def _plural(values: Sequence[object]) -> str:
    return "s" if len(values) != 1 else ""


def _joined(values: Iterable[object], separator: str = ",") -> str:
    return separator.join(map(str, values))


def show_moves(moves: Mapping[TopicPartition, Move | MoveRow]) -> None:
    if not moves:
        write("No partition reassignments found.\n")
        return
    write("Current partition reassignments:\n")
    for partition, move in sorted(moves.items()):
        adding = f" adding: {_joined(move.adding)}." if move.adding else ""
        removing = f" removing: {_joined(move.removing)}." if move.removing else ""
        write(f"{partition}: replicas: {_joined(move.replicas)}.{adding}{removing}\n")


def _show_planned(step: Planned) -> None:
    """Prints the replicas before the reassignment, which are needed to undo it, and the throttles."""
    write(f"Current partition replica assignment\n\n{as_json(step.before, step.log_dirs())}\n\n")
    write("Save this to use as the --reassignment-json-file option during rollback\n")
    if step.rate is not None or step.log_dir_rate is not None:
        write(WARNING)
    if step.rate is not None:
        write(f"The inter-broker throttle limit was set to {step.rate} B/s\n")
    if step.log_dir_rate is not None:
        write(f"The replica-alter-dir throttle limit was set to {step.log_dir_rate} B/s\n")


def show_started(partitions: Sequence[TopicPartition], errors: Mapping[TopicPartition, ErrorCode]) -> None:
    failed = {partition: code for partition, code in sorted(errors.items()) if code}
    if failed:
        write("Error reassigning partition(s):\n" + "".join(f"{partition}: {code.name}\n" for partition, code in failed.items()))
        return
    write(f"Successfully started partition reassignment{_plural(partitions)} for {_joined(sorted(partitions))}\n")


def _show_log_dirs_started(step: LogDirsStarted) -> None:
    replicas = step.replicas
    write(f"Successfully started log directory move{_plural(replicas)} for: {_joined(sorted(replicas))}\n")


def show_status(
    plan: Mapping[TopicPartition, Sequence[int]], now: Mapping[TopicPartition, Sequence[int]], moving: Iterable[TopicPartition]
) -> None:
    under_way = set(moving)
    write("Status of partition reassignment:\n")
    for partition in sorted(plan):
        if partition in under_way:
            write(f"Reassignment of partition {partition} is still in progress.\n")
        elif list(now[partition]) == list(plan[partition]):
            write(f"Reassignment of partition {partition} is completed.\n")
        else:
            there, wanted = _joined(now[partition]), _joined(plan[partition])
            write(f"There is no active reassignment of partition {partition}, but replica set is {there} rather than {wanted}.\n")


def show_log_dir_status(wanted: Mapping[Replica, str], found: Mapping[Replica, tuple[str, str]]) -> None:
    for replica, path in sorted(wanted.items()):
        now, then = found.get(replica, ("", ""))
        if not now:
            where = f"{replica.partition} is not found in any live log dir on broker {replica.broker}"
            write(f"Partition {where}. There is likely an offline log directory on the broker.\n")
        elif then == path:
            write(f"Reassignment of replica {replica} is still in progress.\n")
        elif then:
            write(f"Partition {replica.partition} on broker {replica.broker} is being moved to log dir {then} instead of {path}.\n")
        elif now == path:
            write(f"Reassignment of replica {replica} completed successfully.\n")
        else:
            where = f"is not being moved from log dir {now} to {path}"
            write(f"Partition {replica.partition} on broker {replica.broker} {where}.\n")


def show_cancelled(cancelled: Sequence[TopicPartition]) -> None:
    if cancelled:
        write(f"Successfully cancelled partition reassignment{_plural(cancelled)} for: {_joined(sorted(cancelled))}\n")
    else:
        write("None of the specified partition reassignments are active.\n")
    write("None of the specified partition moves are active.")  # Kafka prints no line end here


def show_cleared(brokers: Sequence[int], topics: Sequence[str]) -> None:
    write(f"Clearing broker-level throttles on broker{_plural(brokers)} {_joined(brokers)}\n")
    write(f"Clearing topic-level throttles on topic{_plural(topics)} {_joined(topics)}\n")


def show_elections(rows: Sequence[ElectionRow]) -> None:
    def named(error: str | None) -> str:
        return _joined((TopicPartition(row.topic, row.partition) for row in rows if row.error == error), ", ")

    kind = rows[0].kind.upper() if rows else ""
    if elected := named(None):
        write(f"Successfully completed leader election ({kind}) for partitions {elected}\n")
    if already := named("ELECTION_NOT_NEEDED"):
        write(f"Valid replica already elected for partitions {already}\n")
    for row in rows:
        if row.error not in (None, "ELECTION_NOT_NEEDED"):
            said = java_error(ApiError(ErrorCode[row.error], row.message or ""), row.message or "")
            write(f"Error completing leader election ({kind}) for partition: {row.topic}-{row.partition}: {said}\n")


def _show_verified(step: Verified) -> None:
    show_status(step.replicas, step.now, step.moving)
    show_log_dir_status(step.log_dirs, step.found)
    write("\n")


PRINTERS: Printers = {
    ElectionRow: show_elections,
    MoveRow: lambda rows: show_moves({TopicPartition(row.topic, row.partition): row for row in rows}),
    Planned: _show_planned,
    Started: lambda step: show_started(*step),
    LogDirsStarted: _show_log_dirs_started,
    Verified: _show_verified,
    Cancelled: lambda step: show_cancelled(*step),
    Cleared: lambda step: show_cleared(*step),
    PlannedRow: print_nothing,
    VerifiedRow: print_nothing,
    CancelledRow: print_nothing,
}
