"""Pages about transactions: the list, one transactional id, the transactions that block readers, and forms that end a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.analysis.moments import now_ms
from ottla.analysis.open_transactions import blocking_transactions, open_transactions
from ottla.analysis.transaction_log import Step, current_times, steps_of
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core import transaction_admin
from ottla.console.model import (
    Code,
    Done,
    Field,
    Form,
    Link,
    Mark,
    Note,
    Page,
    PageError,
    Table,
    columns,
    href,
    moment,
    number,
    seconds,
    topic_link,
)
from ottla.console.pages.topic import topics_now
from ottla.console.visit import Visit, action, check_typed, page

TRAIL = (Link("Transactions", "/transactions"),)
DESCRIBED_MAX = 100
"""Open transactions whose partitions and epochs the page of all transactions shows."""
ENDS = (("committed", "Committed"), ("aborted", "Aborted"))
WAYS = (
    ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit"),
    ("Empty", "Ongoing", "PrepareAbort", "CompleteAbort"),
)  # fmt: skip
LEVELS = {"Ongoing": "warn", "PrepareCommit": "warn", "PrepareAbort": "warn", "PrepareEpochFence": "warn", "Dead": "bad"}


@page("/transactions", "All transactional ids, and the open transactions", name="Transactions", section="Data")
def transactions(visit: Visit) -> Page:
    view = visit.view()
    ages = {one.name: one for one in view.look.transactions}
    described = {one: transaction_admin.describe_transaction(visit.cluster, one) for one in list(ages)[:DESCRIBED_MAX]}
    rows = []
    for one in transaction_admin.list_transactions(visit.cluster):
        seen = ages.get(one.transactional_id)
        rows.append({
            "id": Link(one.transactional_id, href("transaction", id=one.transactional_id)),
            "state": Mark(one.state, LEVELS.get(one.state, "ok")), "producer_id": str(one.producer_id),
            "epoch": described[one.transactional_id].producer_epoch if one.transactional_id in described else None,
            "coordinator": one.coordinator, "age": seconds(seen.age_ms / 1000) if seen and seen.age_ms is not None else None,
            "partitions": seen.partitions if seen else None, "client": seen.client if seen else None,
        })  # fmt: skip
    titles = columns(
        id="Transactional id", state="State", producer_id="Producer id", epoch="Epoch", coordinator="Coordinator", age="Open for",
        partitions="Partitions", client="Client id",
    )  # fmt: skip
    form = Form(
        "/do/transactions/abort", "Abort a transaction that no coordinator knows", "Write the abort marker",
        [
            Field("topic", "Topic", is_needed=True), Field("partition", "Partition", "0", "number"),
            Field("offset", "First offset", kind="number"),
        ],
        "The last resort: writes an abort marker into the partition. Its records are not returned to read_committed readers.", "abort",
    )  # fmt: skip
    search = Form("/transactions/hanging", "Look for hanging transactions in all partitions", "Look", (),
                  "Compares the last stable offset of every partition with its end. Nothing is changed.", is_query=True)  # fmt: skip
    table = Table("transactions", "Transactional ids", titles, rows, "No producer has used a transactional id yet.")
    held = _held(visit, sorted({place for one in described.values() for place in one.partitions}))
    ports = visit.desk.snapshot.ports
    facts = [(f"{title} in a second", number(ports.total(name), 2)) for name, title in ENDS if view.exported]
    return Page("Transactions", facts, tables=[table, held], forms=[search, form])


def _held(visit: Visit, places: Sequence[TopicPartition]) -> Table:
    """Returns a table of the transactions that block readers of these partitions: the last stable offset is before the end of the log."""
    found = blocking_transactions(visit.cluster, places)[1] if places else []
    rows = [
        {
            "topic": topic_link(one.topic), "partition": one.partition, "stable": one.last_stable_offset, "end": one.log_end_offset,
            "held": one.records_behind, "first": one.start_offset,
            "owner": Link(one.transactional_id, href("transaction", id=one.transactional_id)) if one.transactional_id else None,
            "idle": seconds(one.idle_ms / 1000),
            "state": Mark("open", "warn") if one.partitions else Mark("hanging: no coordinator will end it", "bad"),
            "mend": Code(one.end_it),
        }
        for one in found
    ]  # fmt: skip
    titles = columns(
        topic="Topic", partition="Partition", stable="Last stable", end="End", held="Held back", first="Begins at",
        owner="Transactional id", idle="Since its last record", state="State", mend="What ends it",
    )  # fmt: skip
    return Table("held", "Transactions that hold read_committed readers back", titles, rows, "No reader waits for a transaction.")


@page("/transactions/hanging", "The transactions of all partitions that hold readers back")
def hanging(visit: Visit) -> Page:
    led = [
        TopicPartition(name, one.partition_index)
        for name, topic in topics_now(visit).items()
        for one in topic.partitions
        if one.leader_id >= 0
    ]
    return Page("Hanging transactions", [("Partitions looked at", len(led))], [_held(visit, led)], trail=TRAIL)


@page("/transaction", "A transactional id: state, age, partitions and what it holds back", query=("id",))
def transaction(visit: Visit) -> Page:
    name = visit.query.get("id", "")
    found = transaction_admin.describe_transaction(visit.cluster, name)
    is_ended = found.state in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
    age = None if is_ended or found.start_ms < 0 else max(0.0, (now_ms() - found.start_ms) / 1000)
    facts = [
        ("State", Mark(found.state, LEVELS.get(found.state, "ok"))), ("Open for", seconds(age)),
        ("Timeout", "none: two-phase commit" if found.is_two_phase else seconds(found.timeout_ms / 1000)),
        ("Producer id", str(found.producer_id)), ("Epoch", found.producer_epoch), ("Coordinator", found.coordinator),
        ("Client", f"{found.client_id} at {found.client_host}" if found.client_host else "sent by Ottla's brokers only"),
    ]  # fmt: skip
    opened = {(one.topic, one.partition): one for one in open_transactions(visit.cluster, found.partitions)} if found.partitions else {}
    rows = [
        {
            "topic": topic_link(place.topic), "partition": place.partition,
            "start": opened[place].start_offset if place in opened else None,
            "idle": seconds(opened[place].idle_ms / 1000) if place in opened else None,
        }
        for place in found.partitions
    ]  # fmt: skip
    titles = columns(topic="Topic", partition="Partition", start="First offset", idle="Since its last record")
    table = Table("partitions", "Partitions of the transaction", titles, rows, "No partition is in a transaction now.")
    fence = Form(
        "/do/transaction/fence", "Fence the producer and abort its open transaction", "Fence and abort", (),
        f"Aborts the open transaction of {name}. The program that uses this transactional id gets an error and has to start again.", name,
        {"id": name},
    )  # fmt: skip
    way = WAYS[1] if found.state in WAYS[1][2:] else WAYS[0]
    steps, notes = _steps(visit, name)
    extra = {"way": list(way), "state": found.state, "lists": {"times": current_times(steps)}}
    if not is_ended:
        facts.append(("End it", Code(f"ottla txn abort --transactional-id {name}")))
    return Page(name, facts, [table, _step_table(steps)], [fence], notes, trail=TRAIL, template="transaction.html", extra=extra)


def _steps(visit: Visit, name: str) -> tuple[list[Step], list[Note]]:
    """Returns the states of a transactional id, the oldest first, or a note with the reason why they are not known."""
    try:
        return steps_of(visit.cluster, name), []
    except ApiError as error:
        needs = "this needs Read on the topic __transaction_state."
        return [], [Note(f"Times are not shown: {needs if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else error.message}")]


def _step_table(steps: Sequence[Step]) -> Table:
    rows = [
        {
            "at": moment(step.at_ms), "state": Mark(step.state, LEVELS.get(step.state, "ok")),
            "after": seconds((step.at_ms - before.at_ms) / 1000) if before is not None else None,
            "producer": f"{step.producer_id}, epoch {step.producer_epoch}", "partitions": step.partitions,
        }
        for before, step in zip([None, *steps], steps, strict=False)
    ]  # fmt: skip
    titles = columns(at="When", state="State", after="After the step before", producer="Producer", partitions="Partitions")
    return Table("steps", "States, the newest first", titles, rows[::-1], "No state is in the part of the log that was read.")


@action("/transaction/fence")
def fence(visit: Visit) -> Done:
    name = visit.field("id")
    check_typed(visit, name)
    transaction_admin.describe_transaction(visit.cluster, name)
    transaction_admin.fence_producer(visit.cluster, name)
    return Done(f"The producer of {name} is fenced, and its open transaction is aborted.", href("transaction", id=name))


@action("/transactions/abort")
def abort(visit: Visit) -> Done:
    check_typed(visit, "abort")
    place, offset = TopicPartition(visit.field("topic"), visit.whole("partition")), visit.whole("offset")
    for one in open_transactions(visit.cluster, [place]):
        if one.start_offset == offset:
            transaction_admin.write_abort_marker(
                visit.cluster, place, producer_id=one.producer_id, producer_epoch=one.producer_epoch,
                coordinator_epoch=max(one.coordinator_epoch, 0),
            )  # fmt: skip
            return Done(f"An abort marker was written into {place}.", "/transactions")
    raise PageError(f"No open transaction of {place} begins at offset {offset}; nothing was done.", 404)


