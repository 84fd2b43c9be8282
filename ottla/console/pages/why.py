"""The page that explains why a group is behind, why a client cannot write, or why a partition is not in sync (`ottla/analysis/why.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.analysis.why import BAD, FINE, NOTE, UNKNOWN, Reason, why_partition, why_reader, why_writer
from ottla.console.model import Code, Field, Form, Mark, Page, PageError, Table, columns
from ottla.console.visit import Visit, page

LEVELS = {BAD: "bad", NOTE: "warn", FINE: "ok", UNKNOWN: "warn"}
TITLES = columns(subject="Where", cause="Cause", sentence="Reason", evidence="Evidence", mend="What mends it")
QUERY = ("group", "topic", "user", "client", "transactional_id", "sync", "partition")


@page("/why", "Why a reader is behind, a client cannot write, or a partition is not in sync", name="Why", section="Data", query=QUERY)
def why(visit: Visit) -> Page:
    query = {name: visit.query.get(name, "").strip() for name in QUERY}
    reasons: Sequence[Reason] = ()
    title = "Why?"
    if query["group"]:
        title, reasons = f"Why is {query['group']} behind?", why_reader(visit.cluster, query["group"])
    elif query["topic"]:
        title = f"Why can a client not write to {query['topic']}?"
        reasons = why_writer(
            visit.cluster, query["topic"], user=query["user"] or None, client=query["client"] or None,
            transactional_id=query["transactional_id"] or None,
        )  # fmt: skip
    elif query["sync"]:
        title = f"Why is {query['sync']} not in sync?"
        number = query["partition"]
        if number and not (number.isdecimal() and len(number) < 10):
            raise PageError(f"{number[:20]!r} is no number of a partition.")
        reasons = why_partition(visit.cluster, query["sync"], int(number) if number else None)
    rows = [
        {
            "subject": one.subject, "cause": Mark(one.cause, LEVELS[one.level]), "sentence": one.sentence, "evidence": one.evidence,
            "mend": Code(one.mend) if one.mend else None,
        }
        for one in reasons
    ]  # fmt: skip
    tables = [Table("reasons", "Reasons", TITLES, rows)] if reasons else []
    return Page(title, tables=tables, forms=_forms(visit, query, is_open=not reasons))


def _forms(visit: Visit, query: dict[str, str], *, is_open: bool) -> list[Form]:
    view = visit.view()
    groups = [("", "choose a group"), *((group.group_id, group.group_id) for group in view.groups)]
    topics = [("", "choose a topic"), *((name, name) for name in sorted(view.topics))]
    return [
        Form("/why", "Why is this group behind?", "Look (takes 6 seconds)", [Field("group", "Group", query["group"], choices=groups)],
             is_query=True, is_open=is_open),
        Form("/why", "Why can this client not write?", "Look", [
            Field("topic", "Topic", query["topic"], choices=topics), Field("user", "User (empty: of this console)", query["user"]),
            Field("client", "Client id, for its quotas", query["client"]),
            Field("transactional_id", "Transactional id", query["transactional_id"]),
        ], is_query=True, is_open=is_open),
        Form("/why", "Why is this topic not in sync?", "Look", [
            Field("sync", "Topic", query["sync"], choices=topics), Field("partition", "Partition (empty: all)", query["partition"]),
        ], is_query=True, is_open=is_open),
    ]  # fmt: skip
