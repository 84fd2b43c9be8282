"""`ottla txn`: list, describe, describe-producers, find-hanging, abort. Its other commands are in `why.py` and `prepared.py`.

`find-hanging` and `why` also exit with 1 when they have found a transaction.
"""

from __future__ import annotations

from typing import Any

from ottla.base.types import TopicPartition
from ottla.cli.command import Args, Refused, UsageError, command, granted, merged, option
from ottla.cli.moments import now_ms
from ottla.cli.options import YES, confirm
from ottla.cli.render.ottla import Output
from ottla.cli.render.rows import Row, column, joined, json_only
from ottla.cli.topics.topic_names import ONE_TOPIC, one_topic
from ottla.cli.transactions.why import OpenRow, ProducerRow, open_transactions, partitions_of, producer_row
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import transaction_admin

MAX_TRANSACTION_TIMEOUT_MINUTES = 15
COORDINATOR_GRACE_MS = 5 * 60_000


class TransactionRow(Row, titles=joined):
    """A transactional id in `txn list`."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str = column("TransactionState")


class DescribedRow(Row, titles=joined):
    """A transaction in `txn describe`."""

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
    """A transaction in `txn find-hanging`, which no coordinator will end. `minutes` is the time since its producer's last record."""

    transactional_id: str | None = json_only(default=None)
    last_sequence: int = json_only()
    minutes: int = column("Duration(min)", default=0)


# list, describe


@command(
    "txn list",
    "All transactional ids and their states.",
    option("--state", action="append", metavar="STATE[,...]", help="only in these states, such as Ongoing"),
    option("--producer-id", type=int, action="append", default=[], metavar="ID", help="only of this producer"),
    option("--duration-filter", type=int, default=-1, metavar="MS", help="only those open for longer than this"),
    option("--transactional-id-pattern", metavar="REGEX", help="only ids that match"),
    may_watch=True,
)
def _list(args: Args, cluster: Cluster, output: Output) -> None:
    found = transaction_admin.list_transactions(
        cluster,
        states=merged(args.state),
        producer_ids=args.producer_id,
        duration_ms=args.duration_filter,
        pattern=args.transactional_id_pattern,
    )
    output.rows("transactions", TransactionRow, [TransactionRow(*listed) for listed in found])


@command(
    "txn describe",
    "One transaction: state, age, partitions.",
    option("name", nargs="?", metavar="ID", help="the transactional id"),
    option("--transactional-id", metavar="ID", help="the id, as an option"),
    may_watch=True,
)
def _describe(args: Args, cluster: Cluster, output: Output) -> None:
    if not (name := args.name or args.transactional_id):
        raise UsageError("name a transactional id")
    found = transaction_admin.describe_transaction(cluster, name)
    start_ms, duration_ms = (found.start_ms, now_ms() - found.start_ms) if found.start_ms >= 0 else (None, None)
    shown = {"partitions": list(map(str, found.partitions)), "start_ms": start_ms, "duration_ms": duration_ms}
    output.rows("transactions", DescribedRow, [DescribedRow(**{**found._asdict(), **shown})])


# describe-producers


PARTITION_OPTIONS = (*ONE_TOPIC, option("--partition", type=int, metavar="N", help="the partition"))
PRODUCERS_OPTIONS = (*PARTITION_OPTIONS, option("--broker-id", type=int, metavar="ID", help="ask this replica (default: the leader)"))


def _one_partition(args: Args) -> TopicPartition:
    if args.partition is None:
        raise UsageError("name a topic and give --partition")
    return TopicPartition(one_topic(args), args.partition)


@command("txn producers", "Short for describe-producers.", *PRODUCERS_OPTIONS, may_watch=True)
@command("txn describe-producers", "The producers of a partition.", *PRODUCERS_OPTIONS, may_watch=True)
def _describe_producers(args: Args, cluster: Cluster, output: Output) -> None:
    partition = _one_partition(args)
    cluster.leader(partition)
    found = transaction_admin.describe_producers(cluster, [partition], broker_id=args.broker_id)[partition]
    output.rows("producers", ProducerRow, list(map(producer_row, granted(found))))


# find-hanging


def is_hanging(row: OpenRow, partitions_of: dict[str, frozenset[TopicPartition]], limit_ms: int) -> bool:
    """Returns whether a transaction is idle for more than `limit_ms` and will not be ended by a coordinator.

    `partitions_of` has the partitions of each transactional id's current transaction, as its coordinator knows them.
    """
    if row.idle_ms <= limit_ms:
        return False
    return row.transactional_id is None or row.place not in partitions_of.get(row.transactional_id, frozenset())


@command(
    "txn find-hanging",
    "Transactions that no coordinator will end; exit code 1 if any.",
    *PARTITION_OPTIONS,
    option("--broker-id", type=int, metavar="ID", help="only partitions that this broker leads"),
    option("--max-transaction-timeout", type=int, default=MAX_TRANSACTION_TIMEOUT_MINUTES, metavar="MINUTES", help="default 15"),
)
def _find_hanging(args: Args, cluster: Cluster, output: Output) -> int:
    limit_ms = args.max_transaction_timeout * 60_000 + COORDINATOR_GRACE_MS
    partitions = partitions_of(cluster, one_topic(args, is_needed=False), args.partition)
    if args.broker_id is not None:
        partitions = [partition for partition in partitions if cluster.leader(partition) == args.broker_id]
    rows = open_transactions(cluster, partitions)
    names = sorted({row.transactional_id for row in rows if row.transactional_id is not None})
    described = {name: frozenset(transaction_admin.describe_transaction(cluster, name).partitions) for name in names}
    hanging = [HangingRow(**vars(row), minutes=row.idle_ms // 60_000) for row in rows if is_hanging(row, described, limit_ms)]
    output.rows("hanging", HangingRow, hanging)
    return output.verdict(not hanging)


# abort


@command(
    "txn abort",
    "Abort a hanging transaction.",
    *PARTITION_OPTIONS,
    option("--start-offset", type=int, metavar="N", help="first offset of the transaction in the partition"),
    option("--producer-id", type=int, metavar="ID", help="instead of --start-offset, with the two epochs"),
    option("--producer-epoch", type=int, metavar="N"),
    option("--coordinator-epoch", type=int, metavar="N"),
    option("--transactional-id", metavar="ID", help="fence this producer; its open transaction is aborted"),
    YES,
)
def _abort(args: Args, cluster: Cluster, output: Output) -> None:
    if args.transactional_id is not None:
        if one_topic(args, is_needed=False) or args.partition is not None:
            raise UsageError("either --transactional-id or a partition")
        confirm(args, f"Abort the open transaction of {args.transactional_id!r} and fence its producer?")
        transaction_admin.describe_transaction(cluster, args.transactional_id)
        transaction_admin.fence_producer(cluster, args.transactional_id)
        what: dict[str, Any] = {"transactional_id": args.transactional_id, "aborted": True}
        output.done(f"Fenced {args.transactional_id}; its open transaction is aborted.", what)
        return
    partition = _one_partition(args)
    cluster.leader(partition)
    producer_id, epoch, coordinator_epoch = _to_abort(cluster, args, partition)
    confirm(args, f"Write an abort marker for producer {producer_id} into {partition}?")
    transaction_admin.write_abort_marker(
        cluster, partition, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=coordinator_epoch
    )
    what = {"topic": partition.topic, "partition": partition.partition, "producer_id": producer_id, "aborted": True}
    output.done(f"Wrote an abort marker for producer {producer_id} into {partition}.", what)


def _to_abort(cluster: Cluster, args: Args, partition: TopicPartition) -> tuple[int, int, int]:
    """Returns producer id, producer epoch and coordinator epoch, from the options or of the open transaction from `--start-offset`."""
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
