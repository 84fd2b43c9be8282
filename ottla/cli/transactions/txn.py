"""`ottla txn`: list, describe, describe-producers, find-hanging, abort. Its other commands are in `why.py` and `prepared.py`.

Exit codes beside the general ones: `find-hanging` and `why` exit with 1 when they have found something.
"""

from __future__ import annotations

import argparse
from typing import Any

from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.cli.command import Command, Refused, UsageError, merged
from ottla.cli.moments import now_ms
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.cli.render.rows import Row, column, joined, json_only
from ottla.cli.transactions import prepared, why
from ottla.cli.transactions.why import OpenRow, ProducerRow, open_transactions, partitions_of, producer_values
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import transaction_admin

MAX_TRANSACTION_TIMEOUT_MINUTES = 15
COORDINATOR_GRACE_MS = 5 * 60_000


class TransactionRow(Row, titles=joined):
    """A transactional id in `list`."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str = column("TransactionState")


class DescribedRow(Row, titles=joined):
    """A transaction in `describe`."""

    coordinator: int = column("CoordinatorId")
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str = column("TransactionState")
    timeout_ms: int = column("TransactionTimeoutMs")
    start_ms: int | None = column("CurrentTransactionStartTimeMs")
    duration_ms: int | None = column("TransactionDurationMs")
    partitions: list[str] = column("TopicPartitions")
    client_id: str = json_only()
    client_host: str = json_only()


class HangingRow(OpenRow, titles=joined):
    """A transaction that no coordinator will end."""

    transactional_id: str | None = json_only(default=None)
    last_sequence: int = json_only()
    minutes: int = column("Duration(min)", default=0)


# list, describe


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--state", action="append", metavar="STATE[,...]", help="only in these states, such as Ongoing")
    add("--producer-id", type=int, action="append", default=[], metavar="ID", help="only of this producer")
    add("--duration-filter", type=int, default=-1, metavar="MS", help="only those open for longer than this")
    add("--transactional-id-pattern", metavar="REGEX", help="only ids that match")


def _list(args: argparse.Namespace) -> int:
    with connect(args) as cluster:
        found = transaction_admin.list_transactions(
            cluster,
            states=merged(args.state),
            producer_ids=args.producer_id,
            duration_ms=args.duration_filter,
            pattern=args.transactional_id_pattern,
        )
    output_of(args).rows("transactions", TransactionRow, [TransactionRow(*listed) for listed in found])
    return 0


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="ID", help="the transactional id")
    parser.add_argument("--transactional-id", metavar="ID", help="the id, as an option")


def _one_id(args: argparse.Namespace) -> str:
    name = args.name or args.transactional_id
    if not name:
        raise UsageError("name a transactional id")
    return str(name)


def _describe(args: argparse.Namespace) -> int:
    with connect(args) as cluster:
        found = transaction_admin.describe_transaction(cluster, _one_id(args))
    start_ms, duration_ms = (found.start_ms, now_ms() - found.start_ms) if found.start_ms >= 0 else (None, None)
    shown = {"partitions": list(map(str, found.partitions)), "start_ms": start_ms, "duration_ms": duration_ms}
    output_of(args).rows("transactions", DescribedRow, [DescribedRow(**{**found._asdict(), **shown})])
    return 0


# describe-producers


def _partition_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic_by_position", nargs="?", metavar="TOPIC", help="the topic")
    parser.add_argument("--topic", metavar="NAME", help="the topic, as an option")
    parser.add_argument("--partition", type=int, metavar="N", help="the partition")


def _describe_producers_arguments(parser: argparse.ArgumentParser) -> None:
    _partition_arguments(parser)
    parser.add_argument("--broker-id", type=int, metavar="ID", help="ask this replica (default: the leader)")


def _name_topic(args: argparse.Namespace) -> None:
    """Sets `topic` to the one that is named, by position or by option."""
    if args.topic and args.topic_by_position not in (None, args.topic):
        raise UsageError(f"two topics are named, {args.topic_by_position!r} and {args.topic!r}")
    args.topic = args.topic or args.topic_by_position


def _one_partition(args: argparse.Namespace) -> TopicPartition:
    _name_topic(args)
    if not args.topic or args.partition is None:
        raise UsageError("name a topic and give --partition")
    return TopicPartition(args.topic, args.partition)


def _describe_producers(args: argparse.Namespace) -> int:
    partition = _one_partition(args)
    with connect(args) as cluster:
        cluster.leader(partition)
        found = transaction_admin.describe_producers(cluster, [partition], broker_id=args.broker_id)[partition]
    if isinstance(found, ApiError):
        raise found
    output_of(args).rows("producers", ProducerRow, [ProducerRow(*producer_values(state)) for state in found])
    return 0


# find-hanging


def _find_hanging_arguments(parser: argparse.ArgumentParser) -> None:
    _partition_arguments(parser)
    add = parser.add_argument
    add("--broker-id", type=int, metavar="ID", help="only partitions that this broker leads")
    add("--max-transaction-timeout", type=int, default=MAX_TRANSACTION_TIMEOUT_MINUTES, metavar="MINUTES", help="default 15")


def is_hanging(row: OpenRow, partitions_of: dict[str, frozenset[TopicPartition]], limit_ms: int) -> bool:
    """Whether a transaction is open for longer than any timeout allows and no coordinator will end it."""
    if row.idle_ms <= limit_ms:
        return False
    return row.transactional_id is None or row.place not in partitions_of.get(row.transactional_id, frozenset())


def _find_hanging(args: argparse.Namespace) -> int:
    _name_topic(args)
    output = output_of(args)
    limit_ms = args.max_transaction_timeout * 60_000 + COORDINATOR_GRACE_MS
    with connect(args) as cluster:
        rows = open_transactions(cluster, partitions_of(cluster, args))
        names = sorted({row.transactional_id for row in rows if row.transactional_id is not None})
        described = {name: frozenset(transaction_admin.describe_transaction(cluster, name).partitions) for name in names}
    hanging = [HangingRow(**vars(row), minutes=row.idle_ms // 60_000) for row in rows if is_hanging(row, described, limit_ms)]
    output.rows("hanging", HangingRow, hanging)
    return output.verdict(not hanging)


# abort


def _abort_arguments(parser: argparse.ArgumentParser) -> None:
    _partition_arguments(parser)
    add = parser.add_argument
    add("--start-offset", type=int, metavar="N", help="first offset of the transaction in the partition")
    add("--producer-id", type=int, metavar="ID", help="instead of --start-offset, with the two epochs")
    add("--producer-epoch", type=int, metavar="N")
    add("--coordinator-epoch", type=int, metavar="N")
    add("--transactional-id", metavar="ID", help="fence this producer; its open transaction is aborted")
    add_yes(parser)


def _abort(args: argparse.Namespace) -> int:
    output = output_of(args)
    if args.transactional_id is not None:
        _name_topic(args)
        if args.topic or args.partition is not None:
            raise UsageError("either --transactional-id or a partition")
        confirm(args, f"Abort the open transaction of {args.transactional_id!r} and fence its producer?")
        with connect(args) as cluster:
            transaction_admin.describe_transaction(cluster, args.transactional_id)
            transaction_admin.fence_producer(cluster, args.transactional_id)
        what: dict[str, Any] = {"transactional_id": args.transactional_id, "aborted": True}
        output.done(f"Fenced {args.transactional_id}; its open transaction is aborted.", what)
        return 0
    partition = _one_partition(args)
    with connect(args) as cluster:
        cluster.leader(partition)
        producer_id, epoch, coordinator_epoch = _to_abort(cluster, args, partition)
        confirm(args, f"Write an abort marker for producer {producer_id} into {partition}?")
        transaction_admin.write_abort_marker(
            cluster, partition, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=coordinator_epoch
        )
    what = {"topic": partition.topic, "partition": partition.partition, "producer_id": producer_id, "aborted": True}
    output.done(f"Wrote an abort marker for producer {producer_id} into {partition}.", what)
    return 0


def _to_abort(cluster: Cluster, args: argparse.Namespace, partition: TopicPartition) -> tuple[int, int, int]:
    """Producer id, producer epoch and coordinator epoch: as given, or found by the transaction's first offset."""
    if args.producer_id is not None:
        if args.producer_epoch is None or args.coordinator_epoch is None:
            raise UsageError("--producer-id needs --producer-epoch and --coordinator-epoch")
        return args.producer_id, args.producer_epoch, max(args.coordinator_epoch, 0)
    if args.start_offset is None:
        raise UsageError("give --start-offset, or --producer-id with both epochs, or --transactional-id")
    for row in open_transactions(cluster, [partition]):
        if row.start_offset == args.start_offset:
            return row.producer_id, row.producer_epoch, max(row.coordinator_epoch, 0)
    raise Refused(f"no open transaction of {partition} began at offset {args.start_offset}", "INVALID_TXN_STATE")


COMMANDS = {
    "list": Command("All transactional ids and their states.", _list_arguments, _list, may_watch=True),
    "describe": Command("One transaction: state, age, partitions.", _describe_arguments, _describe, may_watch=True),
    "describe-producers": Command("The producers of a partition.", _describe_producers_arguments, _describe_producers, may_watch=True),
    "producers": Command("Short for describe-producers.", _describe_producers_arguments, _describe_producers, may_watch=True),
    "find-hanging": Command("Transactions that no coordinator will end; exit code 1 if any.", _find_hanging_arguments, _find_hanging),
    "abort": Command("Abort a hanging transaction.", _abort_arguments, _abort),
    "prepared": prepared.PREPARED,
    "finish": prepared.FINISH,
    "why": why.WHY,
}
