"""Pages about exactly-once pipelines on Spark: batches, offsets, lag and last commit of each, and the check of `ottla pipeline verify` that
each input record was processed exactly once.

The console finds a pipeline that writes to topics by its transactional id, and one that writes to a table by the metadata of its group's
offsets, which the last look at the cluster has. It reads from `__consumer_offsets` the pipeline's commits and how many runs of the query
have made them. The number of rows that Spark has read is not shown: it is in the pipeline's state file on the driver's machine.

Modules of `ottla.spark` are imported on use, because importing them takes a fifth of the console's start time and most clusters have no
pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, ErrorCode
from ottla.client.blocking.client import Client
from ottla.client.core import group_admin, transaction_admin
from ottla.console.model import Code, Field, Form, Link, Mark, Note, Page, PageError, Table, columns, group_link, href, moment, topic_link
from ottla.console.visit import Visit, page

if TYPE_CHECKING:
    from ottla.spark.verify import Verification

PIPELINES_MAX = 100
"""Pipelines in the list. It asks for the committed offsets of each."""
TRAIL = (Link("Pipelines", "/pipelines"),)
NEVER = "No exactly-once pipeline has written to this cluster yet. ottla pipeline run FILE.py starts one."


@page("/pipelines", "The exactly-once pipelines of Spark: batch, lag and state of the transaction", name="Pipelines", section="Data")
def pipelines(visit: Visit) -> Page:
    from ottla.spark.commit_metadata import parse_metadata
    from ottla.spark.relay import STREAM_ID_PREFIX

    view = visit.view()
    seen = {group.name: group for group in view.look.groups}
    listed = {one.transactional_id: one for one in transaction_admin.list_transactions(visit.cluster)}
    found = [transactional_id for transactional_id in listed if transactional_id.startswith(STREAM_ID_PREFIX)]
    of_tables = (f"{STREAM_ID_PREFIX}{group}" for group, text in view.commit_texts.items() if parse_metadata(text) is not None)
    found += [transactional_id for transactional_id in of_tables if transactional_id not in listed]
    rows = []
    for transactional_id in found[:PIPELINES_MAX]:
        name, one = transactional_id.removeprefix(STREAM_ID_PREFIX), listed.get(transactional_id)
        lag = seen[name].lag if name in seen else None
        batch, restarts = _last_commit(visit, name)
        state = Mark(one.state, "warn" if one.state in ("Ongoing", "PrepareCommit", "PrepareAbort") else "ok") if one is not None else None
        rows.append({
            "pipeline": Link(name, href("pipeline", name=name)), "batch": batch, "lag": lag,
            "change": seen[name].change if name in seen else None, "restarts": restarts, "state": state,
            "transaction": Link(transactional_id, href("transaction", id=transactional_id)) if one is not None else None,
            "group": group_link(name),
        })  # fmt: skip
    titles = columns(
        pipeline="Pipeline", batch="Last batch", lag="Lag", change="Change a second", restarts="Restarts", state="Transaction",
        transaction="Transactional id", group="Group",
    )  # fmt: skip
    return Page("Pipelines", tables=[Table("pipelines", "Pipelines", titles, rows, NEVER)], forms=[_verify_form("", "")], refresh_s=10)


def _last_commit(visit: Visit, group: str) -> tuple[int | None, int | None]:
    """Returns the number of the last committed batch, and the number of restarts; None for a number that no committed offset has."""
    from ottla.spark.commit_metadata import parse_metadata

    try:
        committed = group_admin.committed_offsets(visit.cluster, group).values()
    except ApiError:
        return None, None
    found = [metadata for one in committed if (metadata := parse_metadata(one.metadata)) is not None]
    return max((one.batch_id for one in found), default=None), max((one.restarts for one in found if one.run), default=None)


def _verify_form(name: str, sinks: str, *, is_shared: bool = False) -> Form:
    return Form("/pipeline/verify", "Prove that it ran exactly once", "Verify", [
        *([] if name else [Field("name", "Group of the pipeline", is_needed=True)]),
        Field("sinks", "Topics that it writes to, separated by blanks", sinks, is_needed=True),
        Field("shared", "Other producers may write to them", "yes" if is_shared else "", kind="checkbox"),
    ], "Reads the group's commits and these topics completely, and compares them. Nothing is changed.",
        hidden={"name": name} if name else {}, is_query=True, is_open=bool(name))  # fmt: skip


@contextmanager
def _client(visit: Visit) -> Iterator[Client]:
    """Yields a client with its own connections, because two threads must not share its consumers."""
    cluster = visit.desk.new_cluster()
    try:
        yield Client(cluster)
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        sentence = f"This needs the permission to read __consumer_offsets and the topics of the pipeline. {error.message}"
        raise PageError(sentence, 403) from None
    finally:
        cluster.close()


@page("/pipeline", "A pipeline: batches, rows, offsets, lag, last commit and restarts", query=("name",))
def pipeline(visit: Visit) -> Page:
    from ottla.spark.progress import read_state

    name = visit.query.get("name", "")
    with _client(visit) as client:
        state = read_state(client, name) if name else None
    if state is None:
        raise PageError(f"No pipeline has run with the group {name[:100]!r}.", 404)
    rows = [
        {"topic": topic_link(one.topic), "partition": one.partition, "committed": one.committed, "end": one.end, "lag": one.lag}
        for one in state.positions
    ]
    facts = [
        ("Last batch", state.batch_id), ("Commits", state.commits), ("Rows written", state.rows_out), ("Lag", state.lag),
        ("Last commit", moment(state.last_commit_ms) if state.last_commit_ms else "-"), ("Query", Code(state.query_id)),
        ("Producer", _producer(visit, name)), ("Group", group_link(name)),
        ("Restarts", "not known" if state.restarts is None else state.restarts),
        ("Rows read", Code("ottla pipeline status FILE.py, on the driver's machine")),
    ]  # fmt: skip
    titles = columns(topic="Source", partition="Partition", committed="Committed", end="Last stable", lag="Lag")
    table = Table("positions", "Source partitions", titles, rows)
    return Page(f"Pipeline {name}", facts, [table], [_verify_form(name, "")], trail=TRAIL, refresh_s=10)


def _producer(visit: Visit, name: str) -> str:
    from ottla.spark.relay import STREAM_ID_PREFIX

    try:
        found = transaction_admin.describe_transaction(visit.cluster, f"{STREAM_ID_PREFIX}{name}")
    except ApiError:
        return "not known"
    return f"{found.producer_id}, epoch {found.producer_epoch}"


@page("/pipeline/verify", "The proof that a pipeline ran exactly once, or the faults", query=("name", "sinks", "shared"))
def prove(visit: Visit) -> Page:
    from ottla.spark.verify import verify

    name, sinks = visit.query.get("name", "").strip(), visit.query.get("sinks", "").replace(",", " ").split()
    is_shared = visit.query.get("shared") == "yes"
    if not name or not sinks:
        raise PageError("Name the pipeline's group and the topics that it writes to.")
    with _client(visit) as client:
        found = verify(client, name, sinks, may_share_sink=is_shared)
    notes = [_verdict(found), *(Note(text) for text in found.notes)]
    ends = [f"batch {one[1]} of query {one[0]}" for one in (found.first_batch, found.last_batch) if one is not None]
    facts = [
        ("Proved", found.is_proved), ("Batches", found.batches), ("Rows in", sum(one.rows for one in found.source)),
        ("Rows out", found.rows), ("Faults", len(found.faults)), ("From and to", ends),
    ]  # fmt: skip
    faults = [{"kind": Mark(one.kind, "bad"), "message": one.message} for one in found.faults]
    tables = [
        Table("faults", "Faults", columns(kind="Kind", message="What was found"), faults, "No fault was found."),
        Table("source", "Source partitions", columns(
            topic="Source", partition="Partition", start="First offset", end="Next offset", batches="Batches", rows="Rows", lag="Lag"
        ), [{**one._asdict(), "topic": topic_link(one.topic)} for one in found.source]),
        Table("sink", "Sink partitions", columns(
            topic="Sink", partition="Partition", start="First offset", end="Next offset", rows="Rows", other_rows="Rows of others"
        ), [{**one._asdict(), "topic": topic_link(one.topic)} for one in found.sink]),
    ]  # fmt: skip
    form = _verify_form(name, " ".join(sinks), is_shared=is_shared)
    trail = [*TRAIL, Link(name, href("pipeline", name=name))]
    return Page(f"Proof of {name}", facts, tables, [form], notes, trail=trail)


def _verdict(found: Verification) -> Note:
    if found.is_proved:
        return Note(f"Proved: each source offset is in exactly one of {found.batches} batches, and the sink has each batch once.", "ok")
    return Note("Not proved: the table has the faults.", "warn")
