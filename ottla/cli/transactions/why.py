"""`ottla txn why TOPIC`: the transactions that block the `read_committed` readers of a topic, and how to end each.

Readers stop at the last stable offset, the first offset of the oldest open transaction of the partition. The command shows each open
transaction: transactional id, producer id and epoch, the client that last used the id (only Ottla's broker returns it), age, partitions,
last activity and timeout. The exit code is 0 if no transaction blocks readers, else 1.
"""

from __future__ import annotations

from typing import Any

from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.cli.command import Args, UsageError, command, granted, option
from ottla.cli.moments import format_ms, now_ms
from ottla.cli.output import write
from ottla.cli.render.ottla import Output
from ottla.cli.render.rows import Row, column, joined, json_only
from ottla.cli.topics.topic_names import one_topic
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import transaction_admin
from ottla.client.core.admin import LATEST, OffsetAt, list_offsets
from ottla.client.core.transaction_admin import TransactionDescription


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

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


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


def open_transactions(cluster: Cluster, partitions: list[TopicPartition]) -> list[OpenRow]:
    """Returns the open transactions of these partitions with their transactional ids, oldest first in each partition."""
    rows = []
    for partition, producers in sorted(transaction_admin.describe_producers(cluster, partitions).items()):
        found = [producer_row(state) for state in sorted(granted(producers), key=lambda state: state.current_txn_start_offset)]
        rows += [OpenRow(*partition, **vars(row)) for row in found if row.start_offset is not None]
    owners = transaction_admin.owners_of(cluster, [row.producer_id for row in rows])
    for row in rows:
        if (owner := owners.get(row.producer_id)) is not None:
            row.transactional_id, row.state, row.coordinator = owner.transactional_id, owner.state, owner.coordinator
        row.idle_ms = max(0, now_ms() - row.last_timestamp)
    return rows


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
    held = _blocked(cluster, partitions_of(cluster, args.topic, args.partition))
    found = open_transactions(cluster, sorted(held)) if held else []
    names = sorted({row.transactional_id for row in found if row.transactional_id is not None})
    described = {name: transaction_admin.describe_transaction(cluster, name) for name in names}
    rows = [_blocking(row, *held[row.place], described.get(row.transactional_id or "")) for row in found]
    if output.form != "table":
        output.rows("transactions", BlockingRow, rows, extra={"topic": args.topic, "held_back": bool(held)})
    elif not held:
        write(f"nothing holds the readers of {args.topic} back\n")
    else:
        write("".join(_sentence(row) for row in rows) or f"what held the readers of {args.topic} back has just ended\n")
    return 1 if rows else 0


def _blocked(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns last stable offset and end offset of each partition whose last stable offset is before the end."""
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    stables = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
    held = {}
    for partition in partitions:
        end, stable = ends[partition], stables[partition]
        if isinstance(end, OffsetAt) and isinstance(stable, OffsetAt) and stable.offset < end.offset:
            held[partition] = (stable.offset, end.offset)
    return held


def _blocking(row: OpenRow, stable: int, end: int, found: TransactionDescription | None) -> BlockingRow:
    """Makes a row with the coordinator's description. If the current transaction of the id does not have this partition, it is another
    transaction, and the row's is ended by partition and offset."""
    made = BlockingRow(
        **vars(row),
        last_stable_offset=stable,
        log_end_offset=end,
        records_behind=end - stable,
        is_first=row.start_offset == stable,  # readers stop at this transaction; later ones block them after it has ended
        partitions=[],
    )
    if found is not None:
        made.is_two_phase, made.client_id, made.client_host = found.is_two_phase, found.client_id or None, found.client_host or None
    is_owner = found is not None and row.place in found.partitions
    if found is not None and is_owner:
        made.partitions = [str(partition) for partition in found.partitions]
        made.age_ms = max(0, now_ms() - found.start_ms) if found.start_ms >= 0 else None
        if made.age_ms is not None and not found.is_two_phase:
            made.times_out_in_ms = max(0, found.timeout_ms - made.age_ms)
    made.end_it = _how_to_end(made, is_owner=is_owner)
    return made


def _how_to_end(row: BlockingRow, *, is_owner: bool) -> str:
    if not is_owner:
        return f"ottla txn abort --topic {row.topic} --partition {row.partition} --start-offset {row.start_offset}"
    if row.is_two_phase:
        return f"ottla txn finish {row.transactional_id} --commit, or --abort"
    return f"ottla txn abort --transactional-id {row.transactional_id}"


def _sentence(row: BlockingRow) -> str:
    name = row.transactional_id
    who = f"transaction {name!r}" if name is not None else "a transaction that no coordinator knows"
    details = [f"producer {row.producer_id} epoch {row.producer_epoch}"]
    if row.client_host:
        details.append(f"client {row.client_id or 'without a name'} at {row.client_host}")
    if row.age_ms is not None:
        details.append(f"open for {row.age_ms / 1000:.1f} s")
    details.append(f"began at offset {row.start_offset}")
    details.append(f"last wrote {format_ms(row.last_timestamp)}")
    if row.partitions:
        details.append(f"holds {', '.join(row.partitions)}")
    if row.times_out_in_ms is not None:
        details.append(f"times out in {row.times_out_in_ms / 1000:.0f} s")
    position = f"readers stop at {row.last_stable_offset}, {row.records_behind} behind the end, because of"
    start = position if row.is_first else "after that"
    return f"{row.topic}-{row.partition}: {start} {who} ({'; '.join(details)}). End it: {row.end_it}\n"
