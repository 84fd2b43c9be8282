"""`ottla txn why TOPIC`: the transactions that block the `read_committed` readers of a topic, and how to end each.

Readers stop at the last stable offset, the first offset of the oldest open transaction of the partition. The command shows its
transactional id, producer id and epoch, the client that used the id last (only Ottla's broker returns it), age, partitions, last activity
and timeout. The exit code is 0 when no transaction blocks readers and 1 otherwise.
"""

from __future__ import annotations

import argparse
from typing import Any

from ottla.base.errors import ApiError
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.cli.command import Command, UsageError
from ottla.cli.moments import format_ms, now_ms
from ottla.cli.options import connect, output_of
from ottla.cli.output import Columns, write
from ottla.cli.topics.topic_names import one_topic
from ottla.client.blocking import transaction_admin
from ottla.client.blocking.admin import LATEST, OffsetAt, list_offsets
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.transaction_admin import TransactionDescription

COLUMNS: Columns = (
    ("Topic", "topic"),
    ("Partition", "partition"),
    ("LastStableOffset", "last_stable_offset"),
    ("RecordsBehind", "records_behind"),
    ("TransactionalId", "transactional_id"),
    ("ProducerId", "producer_id"),
    ("ProducerEpoch", "producer_epoch"),
    ("Client", "client_host"),
    ("AgeMs", "age_ms"),
    ("StartOffset", "start_offset"),
    ("LastTimestamp", "last_timestamp"),
    ("EndIt", "end_it"),
)


def partitions_of(cluster: Cluster, args: argparse.Namespace) -> list[TopicPartition]:
    """The partitions that pass --topic, --partition and --broker-id."""
    if args.partition is not None and not args.topic:
        raise UsageError("--partition needs --topic")
    topics = [args.topic] if args.topic else cluster.topic_names()
    found = [TopicPartition(topic, number) for topic in topics for number in cluster.partitions(topic)]
    if args.partition is not None:
        found = [partition for partition in found if partition.partition == args.partition]
        if not found:
            raise UsageError(f"topic {args.topic!r} has no partition {args.partition}")
    if args.broker_id is not None:
        found = [partition for partition in found if cluster.leader(partition) == args.broker_id]
    return found


def producer_row(state: Any) -> dict[str, Any]:
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "coordinator_epoch": state.coordinator_epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp,
        "start_offset": state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    }


def open_transactions(cluster: Cluster, partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    """The open transactions of these partitions with their owners, oldest first in each partition."""
    rows = []
    for partition, producers in sorted(transaction_admin.describe_producers(cluster, partitions).items()):
        if isinstance(producers, ApiError):
            raise producers
        rows += [
            {"topic": partition.topic, "partition": partition.partition, **producer_row(state)}
            for state in sorted(producers, key=lambda state: state.current_txn_start_offset)
            if state.current_txn_start_offset >= 0
        ]
    owners = transaction_admin.owners_of(cluster, [int(row["producer_id"]) for row in rows])
    for row in rows:
        owner = owners.get(int(row["producer_id"]))
        row["transactional_id"] = owner.transactional_id if owner else None
        row["state"] = owner.state if owner else None
        row["coordinator"] = owner.coordinator if owner else None
        row["idle_ms"] = max(0, now_ms() - int(row["last_timestamp"]))
    return rows


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="TOPIC", help="the topic of the blocked readers")
    parser.add_argument("--topic", metavar="NAME", help="the topic, as an option")
    parser.add_argument("--partition", type=int, metavar="N", help="only this partition")
    parser.set_defaults(broker_id=None)


def _why(args: argparse.Namespace) -> int:
    output = output_of(args)
    args.topic = one_topic(args)
    with connect(args) as cluster:
        held = _blocked(cluster, partitions_of(cluster, args))
        rows = open_transactions(cluster, sorted(held)) if held else []
        names = sorted({str(row["transactional_id"]) for row in rows if row["transactional_id"] is not None})
        described = {name: transaction_admin.describe_transaction(cluster, name) for name in names}
    for row in rows:
        _add_position(row, *held[TopicPartition(row["topic"], row["partition"])])
        _add_owner(row, described.get(row["transactional_id"]))
    if output.form != "table":
        output.show("transactions", rows, COLUMNS, extra={"topic": args.topic, "held_back": bool(held)})
    elif not held:
        write(f"nothing holds the readers of {args.topic} back\n")
    else:
        write("".join(_sentence(row) for row in rows) or f"what held the readers of {args.topic} back has just ended\n")
    return 1 if rows else 0


def _blocked(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Last stable offset and end of each partition where they differ."""
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    stables = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
    held = {}
    for partition in partitions:
        end, stable = ends[partition], stables[partition]
        if isinstance(end, OffsetAt) and isinstance(stable, OffsetAt) and stable.offset < end.offset:
            held[partition] = (stable.offset, end.offset)
    return held


def _add_position(row: dict[str, Any], stable: int, end: int) -> None:
    row["last_stable_offset"], row["log_end_offset"] = stable, end
    row["records_behind"] = end - stable
    # Younger transactions block readers only after this one has ended.
    row["is_first"] = row["start_offset"] == stable


def _add_owner(row: dict[str, Any], found: TransactionDescription | None) -> None:
    """Adds what the coordinator knows. An id whose producer is in another transaction now does not own this one."""
    is_owner = found is not None and TopicPartition(row["topic"], row["partition"]) in found.partitions
    row["age_ms"] = row["times_out_in_ms"] = None
    row["partitions"] = []
    row["client_id"] = row["client_host"] = None
    row["is_two_phase"] = found is not None and found.is_two_phase
    if found is not None:
        row["client_id"], row["client_host"] = found.client_id or None, found.client_host or None
    if found is not None and is_owner:
        row["partitions"] = [str(partition) for partition in found.partitions]
        row["age_ms"] = max(0, now_ms() - found.start_ms) if found.start_ms >= 0 else None
        if row["age_ms"] is not None and not found.is_two_phase:
            row["times_out_in_ms"] = max(0, found.timeout_ms - row["age_ms"])
    row["end_it"] = _how_to_end(row, is_owner=is_owner)


def _how_to_end(row: dict[str, Any], *, is_owner: bool) -> str:
    if not is_owner:
        return f"ottla txn abort --topic {row['topic']} --partition {row['partition']} --start-offset {row['start_offset']}"
    if row["is_two_phase"]:
        return f"ottla txn finish {row['transactional_id']} --commit, or --abort"
    return f"ottla txn abort --transactional-id {row['transactional_id']}"


def _sentence(row: dict[str, Any]) -> str:
    name = row["transactional_id"]
    who = f"transaction {name!r}" if name is not None else "a transaction that no coordinator knows"
    details = [f"producer {row['producer_id']} epoch {row['producer_epoch']}"]
    if row["client_host"]:
        details.append(f"client {row['client_id'] or 'without a name'} at {row['client_host']}")
    if row["age_ms"] is not None:
        details.append(f"open for {row['age_ms'] / 1000:.1f} s")
    details.append(f"began at offset {row['start_offset']}")
    details.append(f"last wrote {format_ms(row['last_timestamp'])}")
    if row["partitions"]:
        details.append(f"holds {', '.join(row['partitions'])}")
    if row["times_out_in_ms"] is not None:
        details.append(f"times out in {row['times_out_in_ms'] / 1000:.0f} s")
    position = f"readers stop at {row['last_stable_offset']}, {row['records_behind']} behind the end, because of"
    start = position if row["is_first"] else "after that"
    return f"{row['topic']}-{row['partition']}: {start} {who} ({'; '.join(details)}). End it: {row['end_it']}\n"


WHY = Command("Transactions that block the readers of a topic, and how to end them; exit code 1 if any.", _arguments, _why, may_watch=True)
