"""`ottla txn`: transactions, the producers of partitions, and why the `read_committed` readers of a topic wait.

Readers stop at the last stable offset, the first offset of the oldest open transaction of the partition. `why` shows each open transaction
and how to end it. An Ottla broker also returns the client that last used the transactional id; a Kafka broker does not. `why` and
`find-hanging` exit with 1 when they have found a transaction.

Transactions of two-phase commit (KIP-939) have no timeout; an external coordinator ends them. Only this coordinator knows whether such a
transaction is prepared, so `prepared` lists all open transactions without a timeout. `finish` ends such a transaction as its owner would
after a restart, and fences the previous producer. `--prepared-state` is the state that the external coordinator stored. If the open
transaction is the stored one, it is committed; otherwise it is aborted.
"""

from __future__ import annotations

from typing import Any

from ottla.analysis.moments import now_ms
from ottla.analysis.open_transactions import blocking_transactions, is_hanging, open_transactions, sentence
from ottla.base.types import TopicPartition
from ottla.cli.command import YES, Args, Refused, UsageError, command, confirm, flag, granted, merged, one_of, option
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row, column, joined, json_only
from ottla.cli.topics.topic_names import ONE_TOPIC, one_topic
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import transaction_admin


class ProducerRow(Row, titles=joined):
    """The state of a producer in a partition. `start_offset` is the first offset of its open transaction, None without one."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = column("LatestCoordinatorEpoch")
    last_sequence: int
    last_timestamp: int
    start_offset: int | None = column("CurrentTransactionStartOffset")


class OpenRow(Row, titles=joined):
    """An open transaction of a partition. Transactional id, state and coordinator are None if no coordinator knows the producer id."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    start_offset: int
    last_timestamp: int
    transactional_id: str | None = None
    state: str | None = json_only(default=None)
    coordinator: int | None = json_only(default=None)
    idle_ms: int = json_only(default=0)


class BlockingRow(Row, titles=joined):
    """A transaction that blocks readers, and how to end it."""

    topic: str
    partition: int
    last_stable_offset: int
    records_behind: int
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    client_host: str | None = column("Client", default=None)
    age_ms: int | None = None
    start_offset: int = 0
    last_timestamp: int = 0
    end_it: str = ""
    coordinator_epoch: int = json_only(default=0)
    last_sequence: int = json_only(default=0)
    state: str | None = json_only(default=None)
    coordinator: int | None = json_only(default=None)
    idle_ms: int = json_only(default=0)
    log_end_offset: int = json_only(default=0)
    is_first: bool = json_only(default=False)
    times_out_in_ms: int | None = json_only(default=None)
    partitions: list[str] = json_only(default=())
    client_id: str | None = json_only(default=None)
    is_two_phase: bool = json_only(default=False)


def partitions_of(cluster: Cluster, topic: str, number: int | None) -> list[TopicPartition]:
    """Returns partition `number` of the topic, or all partitions of the topic, or without a topic all partitions of the cluster. Raises
    UsageError for an unknown partition, and for a number without a topic."""
    if number is not None and not topic:
        raise UsageError("--partition needs --topic")
    found = [TopicPartition(name, each) for name in ([topic] if topic else cluster.topic_names()) for each in cluster.partitions(name)]
    if number is None:
        return found
    if TopicPartition(topic, number) not in found:
        raise UsageError(f"topic {topic!r} has no partition {number}")
    return [TopicPartition(topic, number)]


def producer_row(state: Any) -> ProducerRow:
    """Returns the row of a producer state in a DescribeProducers response."""
    start = state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None
    epochs = (state.producer_epoch, state.coordinator_epoch)
    return ProducerRow(state.producer_id, *epochs, state.last_sequence, state.last_timestamp, start)


MAX_TRANSACTION_TIMEOUT_MINUTES = 15
COORDINATOR_GRACE_MS = 5 * 60_000


class TransactionRow(Row, titles=joined):
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


@command(
    "txn find-hanging",
    "Transactions that no coordinator will end; exit code 1 if any.",
    *PARTITION_OPTIONS,
    option("--broker-id", type=int, metavar="ID", help="only partitions that this broker leads"),
    option(
        "--max-transaction-timeout", type=int, default=MAX_TRANSACTION_TIMEOUT_MINUTES, metavar="MINUTES",
        help="transaction.max.timeout.ms of the brokers, in minutes (default 15)",
    ),
)
def _find_hanging(args: Args, cluster: Cluster, output: Output) -> int:
    limit_ms = args.max_transaction_timeout * 60_000 + COORDINATOR_GRACE_MS
    partitions = partitions_of(cluster, one_topic(args, is_needed=False), args.partition)
    if args.broker_id is not None:
        partitions = [partition for partition in partitions if cluster.leader(partition) == args.broker_id]
    rows = open_transactions(cluster, partitions)
    names = sorted({row.transactional_id for row in rows if row.transactional_id is not None})
    described = {name: frozenset(transaction_admin.describe_transaction(cluster, name).partitions) for name in names}
    hanging = [HangingRow(**row._asdict(), minutes=row.idle_ms // 60_000) for row in rows if is_hanging(row, described, limit_ms)]
    output.rows("hanging", HangingRow, hanging)
    return output.verdict(not hanging)


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
        is_open = transaction_admin.describe_transaction(cluster, args.transactional_id).is_open
        transaction_admin.fence_producer(cluster, args.transactional_id)
        what: dict[str, Any] = {"transactional_id": args.transactional_id, "aborted": is_open}
        outcome = "its open transaction is aborted" if is_open else "it had no open transaction"
        output.done(f"Fenced {args.transactional_id}; {outcome}.", what)
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
    """Returns producer id, producer epoch and coordinator epoch, from the options or from the open transaction at `--start-offset`."""
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


class PreparedRow(Row, titles=joined):
    """An open transaction without a timeout."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    age_ms: int | None
    client_host: str = column("Client")
    partitions: list[str] = column("TopicPartitions")
    state: str = json_only()
    timeout_ms: int = json_only()
    start_ms: int = json_only()
    client_id: str = json_only()


@command("txn prepared", "Transactions that an external coordinator must end (two-phase commit).", may_watch=True)
def _prepared(args: Args, cluster: Cluster, output: Output) -> None:
    found = transaction_admin.list_prepared(cluster)
    rows = []
    for one in found:
        age_ms = max(0, now_ms() - one.start_ms) if one.start_ms >= 0 else None
        rows.append(PreparedRow(**{**one._asdict(), "partitions": list(map(str, one.partitions)), "age_ms": age_ms}))
    output.rows("transactions", PreparedRow, rows)


@command(
    "txn finish",
    "Commit or abort a prepared transaction.",
    option("name", metavar="ID", help="the transactional id"),
    *one_of(
        flag("--commit", help="commit the open transaction"),
        flag("--abort", help="abort the open transaction"),
        option("--prepared-state", metavar="PRODUCER_ID:EPOCH", help="commit if this is the open transaction, else abort"),
        is_needed=True,
    ),
    YES,
)
def _finish(args: Args, cluster: Cluster, output: Output) -> None:
    name = args.name
    wanted = _parse_state(args.prepared_state) if args.prepared_state is not None else None
    found = transaction_admin.describe_transaction(cluster, name)
    if not found.is_open:
        raise Refused(f"nothing is open for {name!r}: it is {found.state}", "INVALID_TXN_STATE")
    if not found.is_two_phase:
        raise Refused(f"{name!r} has a timeout, so it is not of two-phase commit; see `ottla txn abort`", "INVALID_TXN_STATE")
    confirm(args, f"{'Commit' if args.commit else 'Abort' if args.abort else 'Finish'} the open transaction of {name!r}?")
    ended = transaction_admin.finish_prepared(
        cluster, name, lambda producer_id, epoch: args.commit or (wanted is not None and (producer_id, epoch) == wanted)
    )
    if ended is None:
        raise Refused(f"the transaction of {name!r} has just been ended by another client", "INVALID_TXN_STATE")
    producer_id, epoch, is_commit = ended
    outcome = "committed" if is_commit else "aborted"
    what = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "outcome": outcome}
    output.done(f"The transaction of {name} (producer {producer_id} epoch {epoch}) is {outcome}.", what)


def _parse_state(text: str) -> tuple[int, int]:
    producer_id, colon, epoch = text.partition(":")
    if not (colon and producer_id.isdecimal() and epoch.isdecimal()):
        raise UsageError(f"--prepared-state {text!r} is not PRODUCER_ID:EPOCH")
    return int(producer_id), int(epoch)


@command(
    "txn why",
    "Transactions that block the readers of a topic, and how to end them; exit code 1 if any.",
    option("name", nargs="?", metavar="TOPIC", help="the topic of the blocked readers"),
    option("--topic", metavar="NAME", help="the topic, as an option"),
    option("--partition", type=int, metavar="N", help="only this partition"),
    may_watch=True,
)
def _why(args: Args, cluster: Cluster, output: Output) -> int:
    args.topic = one_topic(args)
    held, found = blocking_transactions(cluster, partitions_of(cluster, args.topic, args.partition))
    rows = [BlockingRow(**{**one._asdict(), "partitions": list(one.partitions)}) for one in found]
    if output.form != "table":
        output.rows("transactions", BlockingRow, rows, extra={"topic": args.topic, "held_back": bool(held)})
    elif not held:
        write(f"no open transaction blocks the readers of {args.topic}\n")
    else:
        write("".join(f"{sentence(one)}\n" for one in found) or f"the transaction that blocked readers of {args.topic} has just ended\n")
    return 1 if rows else 0
