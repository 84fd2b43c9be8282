"""`ottla partitions`: moves replicas (`generate`, `reassign`, `list`, `verify`, `cancel`). `elect` is in `partition_elections.py`.

Files have the format of Kafka's tool: `{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any",
"/d"]}]}`. `log_dirs` is optional; for `any` the broker chooses the directory. Without `--execute`, `reassign` shows the plan and changes
nothing. As in Kafka's tool, `cancel` removes all replication throttles of the brokers and of the file's topics. `verify` does the same when
no move of the file is in progress. `--preserve-throttles` keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import YES, Args, Refused, UsageError, command, confirm, flag, merged_numbers, option
from ottla.cli.input_files import parse_json, read_json, read_text
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin, replica_admin
from ottla.client.core.replica_admin import Replica, log_dirs_of

LogDirs = Mapping[Replica, tuple[str, str]]
"""The current directory of each replica and the target directory of its move (an empty text without a move)."""


class MovePlan(NamedTuple):
    """The content of a file: the replicas of each partition, and the log directory of each replica if the file names one (not `any`)."""

    replicas: dict[TopicPartition, list[int]]
    log_dirs: dict[Replica, str]

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.replicas})


PROPOSAL = "Proposed partition reassignment configuration\n"
"""The line above the proposal in the output of `generate`, as Kafka's tool prints it."""


def read_entries(path: str) -> list[dict[str, Any]]:
    """Returns the partitions in a file. The file has a plan, or the output of `generate` as text or JSON; then the proposed plan is used.
    """
    text = read_text(path)
    tree = parse_json(text.partition(PROPOSAL)[2] or text, path)
    tree = tree.get("proposed", tree) if isinstance(tree, dict) else tree
    entries = tree.get("partitions") if isinstance(tree, dict) else None
    if not isinstance(entries, list) or not entries:
        raise UsageError(f'{path} is not {{"version": 1, "partitions": [...]}}')
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str) or not _is_number(entry.get("partition")):
            raise UsageError(f"{path}, entry {number}: needs topic and partition, not {json.dumps(entry)[:80]}")
    return entries


def _is_number(value: object) -> bool:
    """Returns whether the value is an integer from 0 to 2^31 - 1."""
    return type(value) is int and 0 <= value < 2**31


def read_plan(path: str) -> MovePlan:
    plan = MovePlan({}, {})
    for number, entry in enumerate(read_entries(path), 1):
        replicas, dirs = entry.get("replicas"), entry.get("log_dirs")
        if not isinstance(replicas, list) or not replicas or not all(_is_number(found) for found in replicas):
            raise UsageError(f"{path}, entry {number}: needs replicas, a list of broker ids")
        if len(set(replicas)) != len(replicas):
            raise UsageError(f"{path}, entry {number}: names a broker twice")
        if dirs is not None and (not isinstance(dirs, list) or len(dirs) != len(replicas) or not all(type(found) is str for found in dirs)):
            raise UsageError(f"{path}, entry {number}: needs as many log_dirs as replicas, each a path or any")
        partition = TopicPartition(entry["topic"], entry["partition"])
        if partition in plan.replicas:
            raise UsageError(f"{path} names {partition} twice")
        plan.replicas[partition] = replicas
        plan.log_dirs.update(
            {Replica(partition, broker): path for broker, path in zip(replicas, dirs or (), strict=False) if path != "any"}
        )
    return plan


def tree(plan: Mapping[TopicPartition, Sequence[int]], lie: LogDirs) -> dict[str, Any]:
    """Returns the plan in Kafka's file format. A replica with an unknown directory has `any`."""
    entries = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": list(replicas),
            "log_dirs": [lie.get(Replica(key, broker), ("any", ""))[0] for broker in replicas],
        }
        for key, replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": entries}


def as_json(plan: Mapping[TopicPartition, Sequence[int]], lie: LogDirs) -> str:
    return json.dumps(tree(plan, lie), separators=(",", ":"))


# The steps of a move. `kafka-reassign-partitions` prints each step (`kafka_tools/partitions_output.py`), ours only the result.


class MoveRow(Row):
    """A partition that is being moved."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Planned(NamedTuple):
    """Before the move: the current replicas and the throttles in bytes/s. Calling `log_dirs` asks the brokers for the directories."""

    before: Mapping[TopicPartition, Sequence[int]]
    rate: int | None
    log_dir_rate: int | None
    log_dirs: Callable[[], LogDirs]


class Started(NamedTuple):
    """Moves between brokers were requested. `errors` has the error code of each partition, NONE if the move was accepted."""

    partitions: Sequence[TopicPartition]
    errors: Mapping[TopicPartition, ErrorCode]


class LogDirsStarted(NamedTuple):
    """Moves between directories of a broker were requested for these replicas."""

    replicas: Sequence[Replica]


class Verified(NamedTuple):
    """The replicas and directories of a plan (`replicas`, `log_dirs`) and the current ones (`now`, `found`)."""

    replicas: Mapping[TopicPartition, Sequence[int]]
    now: Mapping[TopicPartition, Sequence[int]]
    moving: Collection[TopicPartition]
    log_dirs: Mapping[Replica, str]
    found: LogDirs


class Cancelled(NamedTuple):
    """The moves of these partitions were cancelled."""

    partitions: Sequence[TopicPartition]


class Cleared(NamedTuple):
    """The throttles of these brokers and topics are about to be removed."""

    brokers: Sequence[int]
    topics: Sequence[str]


@command(
    "partitions generate",
    "Propose replicas for the partitions of some topics.",
    option("--topics-to-move-json-file", required=True, metavar="FILE", help='topics: {"version": 1, "topics": [{"topic": "t"}]}'),
    option("--broker-list", required=True, action="append", metavar="ID,...", help="the brokers to place replicas on"),
    flag("--disable-rack-aware", help="accepted and ignored"),
)
def _generate(args: Args, cluster: Cluster, output: Output) -> None:
    brokers = read_brokers(args.broker_list)
    topics = read_topics(args.topics_to_move_json_file)
    now: dict[TopicPartition, list[int]] = {}
    proposed: dict[TopicPartition, list[int]] = {}
    cluster.refresh([])
    unknown = sorted(set(brokers) - set(cluster.metadata.brokers))
    if unknown:
        raise UsageError(f"there is no broker {unknown[0]}; there are {', '.join(map(str, sorted(cluster.metadata.brokers)))}")
    for number, topic in enumerate(topics):
        placed = {found.partition_index: list(found.replica_nodes) for found in cluster.topic(topic).partitions}
        copies = len(placed[min(placed)])
        if copies > len(brokers):
            named = counted(len(brokers), "broker")
            raise UsageError(f"topic {topic!r} has {copies} replicas of each partition, and --broker-list names only {named}")
        for index, replicas in enumerate(place(len(placed), copies, brokers, start=number)):
            now[TopicPartition(topic, index)] = placed[index]
            proposed[TopicPartition(topic, index)] = replicas
    lie = log_dirs_of(cluster, sorted(cluster.metadata.brokers), topics)
    if output.is_structured:
        output.show_object({"current": tree(now, lie), "proposed": tree(proposed, {})})
    else:
        write(f"Current partition replica assignment\n{as_json(now, lie)}\n\n")
        write(f"{PROPOSAL}{as_json(proposed, {})}\n")


def place(partitions: int, copies: int, brokers: Sequence[int], *, start: int) -> list[list[int]]:
    """Returns the replicas of each partition, the preferred leader first (Kafka's `assignReplicasToBrokersRackUnaware`)."""
    count = len(brokers)
    return [
        [
            brokers[(index + start) % count],
            *(brokers[(index + start + 1 + (index // count + further) % (count - 1)) % count] for further in range(copies - 1)),
        ]
        for index in range(partitions)
    ]


def read_brokers(texts: list[str]) -> list[int]:
    brokers = merged_numbers(texts, "--broker-list is a list of broker ids, such as 0,1,2")
    if not brokers or len(set(brokers)) != len(brokers):
        raise UsageError("--broker-list names no broker, or one twice")
    return brokers


def read_topics(path: str) -> list[str]:
    found = read_json(path)
    entries = found.get("topics") if isinstance(found, dict) else None
    entries = entries if isinstance(entries, list) else []
    named = [entry.get("topic") for entry in entries if isinstance(entry, dict)]
    topics = [topic for topic in named if isinstance(topic, str)]
    if not topics or len(topics) != len(entries) or len(set(topics)) != len(topics):
        raise UsageError(f'{path} is not {{"version": 1, "topics": [{{"topic": "t"}}, ...]}} with each topic once')
    return topics


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


FILE_OPTION = (option("--reassignment-json-file", required=True, metavar="FILE", help="partitions with their new replicas"),)


@command(
    "partitions reassign",
    "Move replicas to other brokers.",
    *FILE_OPTION,
    flag("--execute", help="execute the plan; without this option it is only shown"),
    flag("--additional", help="start even if other moves are in progress"),
    option("--throttle", type=int, metavar="B/s", help="limit of moves between brokers, in bytes per second"),
    option("--replica-alter-log-dirs-throttle", type=int, metavar="B/s", help="limit of moves between directories, in bytes per second"),
    flag("--disallow-replication-factor-change", help="refuse to change the number of replicas"),
    option("--timeout", type=int, default=10_000, metavar="MS", help="how long to wait for a new replica before it moves to its directory"),
    YES,
)
def _reassign(args: Args, cluster: Cluster, output: Output) -> int:
    plan = read_plan(args.reassignment_json_file)
    rate, log_dir_rate = (
        parse_rate(value, option)
        for value, option in ((args.throttle, "--throttle"), (args.replica_alter_log_dirs_throttle, "--replica-alter-log-dirs-throttle"))
    )
    before = replica_admin.replicas_of(cluster, plan.replicas)
    unknown = sorted({broker for replicas in plan.replicas.values() for broker in replicas} - set(cluster.metadata.brokers))
    if unknown:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"there is no broker {unknown[0]}; there are {', '.join(map(str, sorted(cluster.metadata.brokers)))}",
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


def parse_rate(value: int | None, option: str) -> int | None:
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
    """Sets throttles, then starts moves between brokers, then between directories. Returns the error code of each partition.

    Moves between directories start only if no other move was refused. Raises `Refused` if other moves are in progress, unless
    `--additional` is given.
    """
    if not args.additional and replica_admin.moves_under_way(cluster):
        raise Refused("other moves are in progress; --additional starts these as well", ErrorCode.REASSIGNMENT_IN_PROGRESS.name)

    def log_dirs() -> LogDirs:
        return replica_admin.log_dirs_of(cluster, sorted(cluster.metadata.brokers), plan.topics)

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


VERIFY_OPTIONS = (*FILE_OPTION, flag("--preserve-throttles", help="keep the throttles, which are otherwise removed at the end"))


@command("partitions verify", "Are the moves of a file done?", *VERIFY_OPTIONS)
def _verify(args: Args, cluster: Cluster, output: Output) -> int:
    """Returns exit code 1 until every partition has the state of the file. As Kafka's tool it returns 0 in any case."""
    plan = read_plan(args.reassignment_json_file)
    now = replica_admin.replicas_of(cluster, plan.replicas)
    moving = {partition for partition in replica_admin.moves_under_way(cluster) if partition in plan.replicas}
    lie = replica_admin.log_dirs_of(cluster, sorted(cluster.metadata.brokers), plan.topics) if plan.log_dirs else {}
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
    output.report(Cleared(sorted({*cluster.metadata.brokers, *named}), plan.topics))
    clear_throttles(cluster, output, plan.topics)


def clear_throttles(cluster: Cluster, output: Output, topics: Sequence[str]) -> None:
    for broker in replica_admin.clear_throttles(cluster, topics):
        output.note(f"broker {broker} cannot be reached and keeps its throttle")


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
