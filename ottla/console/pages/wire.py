"""The pages of the live wire: the requests and responses of a broker, shown while the broker handles them; each one field by field; all as
a file. Only Ottla's brokers record requests and responses (frames). Frames contain records of every topic, so a broker shows them only to
users that may alter the cluster. The broker never records the content of frames with secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from ottla.analysis.frame_capture import as_capture
from ottla.analysis.frames import Frame, about
from ottla.base.errors import ApiError, ErrorCode
from ottla.console.model import Field, Form, Link, Mark, Note, Page, PageError, Table, columns, href, size
from ottla.console.span_tables import SPANS_MAX, span_table
from ottla.console.visit import Visit, page
from ottla.console.wire import errors_of, explained_request, explained_response
from ottla.wire.apis import API_NAMES, APIS
from ottla.wire.messages.describe_frames import FramePair

ROWS_MAX = 100
ANONYMOUS = "User:ANONYMOUS"
QUERY = ("broker", "api", "client", "state")
NOTHING = "No request has passed since the page was opened. Requests appear here when they are answered."
FOREIGN = "The live wire is not shown: only Ottla's brokers record the frames that pass, and this one does not."
REFUSED = "Frames have the records of every topic, so the live wire is shown to users that may Alter the cluster."
TITLES = columns(
    number="Number", at="Time (UTC)", frame="Request", client="Client id", address="From", principal="Principal", asked="Request bytes",
    answered="Answer bytes", ms="ms", errors="Errors",
)  # fmt: skip


class ForeignBroker(PageError):
    """A broker that does not record frames."""


@contextmanager
def _explained_refusals() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise ForeignBroker(FOREIGN, 404) from None
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise PageError(REFUSED, 403) from None
        raise


def _broker(visit: Visit) -> int:
    """Returns the broker in the query, by default the first one. Raises `PageError` for a broker that does not run."""
    known = sorted(broker.node_id for broker in visit.view().metadata.brokers)
    number = visit.whole("broker", known[0])
    if number not in known:
        raise PageError(f"There is no broker {number}.", 404)
    return number


@page("/wire", "The requests that pass a broker, as they pass", name="Live wire", section="Cluster", query=QUERY)
def wire(visit: Visit) -> Page:
    number = _broker(visit)
    try:
        with _explained_refusals():
            seen = visit.desk.wire.look(number)
    except ForeignBroker as error:
        return Page("Live wire", notes=[Note(str(error))])
    is_paused = visit.query.get("state") == "paused"
    matching = _matching(seen.pairs, visit.query.get("api", ""), visit.query.get("client", ""))
    rows = [_row(number, pair) for pair in reversed(matching[-ROWS_MAX:])]
    given = {name: visit.query[name] for name in ("broker", "api", "client") if visit.query.get(name)}
    facts: list[tuple[str, Any]] = [
        ("Broker", number), ("In memory", len(seen.pairs)), ("Matching", len(matching)), ("Missed", seen.missed),
        ("This page", Link("go on", href("wire", **given)) if is_paused else Link("pause", href("wire", **given, state="paused"))),
        ("Record to a file", Link("packet capture", href("wire", "capture", **given))),
    ]  # fmt: skip
    notes = [Note("The broker records frames while this page is open. Logins, passwords, tokens and changed settings are listed without "
                  "their content.")]  # fmt: skip
    has_principals = any(row["principal"] != ANONYMOUS for row in rows)
    titles = [column for column in TITLES if has_principals or column.key != "principal"]
    table = Table("frames", f"The last {ROWS_MAX} requests", titles, rows, NOTHING)
    return Page("Live wire", facts, [table], [_form(visit, number)], notes, refresh_s=0 if is_paused else 1)


def _matching(pairs: list[FramePair], api: str, client: str) -> list[FramePair]:
    return [
        pair
        for pair in pairs
        if (not api or API_NAMES.get(pair.api_key) == api)
        and (not client or any(client in part for part in (pair.client_id or "", pair.client, pair.principal)))
    ]


def _row(broker: int, pair: FramePair) -> dict[str, Any]:
    errors, is_answered = errors_of(pair), pair.duration_us >= 0
    return {
        "number": pair.number, "at": datetime.fromtimestamp(pair.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3],
        "frame": Link(f"{_name(pair)} v{pair.api_version}", href("wire", "frame", broker=broker, number=pair.number)),
        "client": pair.client_id, "address": pair.client, "principal": pair.principal, "asked": pair.request_bytes,
        "answered": pair.response_bytes if is_answered else None, "ms": pair.duration_us / 1000 if is_answered else None,
        "errors": Mark(", ".join(errors), "warn") if errors else None,
    }  # fmt: skip


def _name(pair: FramePair) -> str:
    return API_NAMES.get(pair.api_key, f"API {pair.api_key}")


def _form(visit: Visit, number: int) -> Form:
    brokers = sorted(broker.node_id for broker in visit.view().metadata.brokers)
    return Form("/wire", "Choose what to see", "Show", [
        Field("broker", "Broker", str(number), choices=[(str(one), str(one)) for one in brokers]),
        Field("api", "API", visit.query.get("api", ""), choices=[("", "all"), *((name, name) for name in sorted(API_NAMES.values()))]),
        Field("client", "Client id, address or principal contains", visit.query.get("client", "")),
    ], is_query=True, is_open=True)  # fmt: skip


@page("/wire/frame", "A request and its answer, field by field", query=("broker", "number"))
def frame(visit: Visit) -> Page:
    broker, number = _broker(visit), visit.whole("number")
    pair = visit.desk.wire.pair(broker, number)
    if pair is None:
        raise PageError(f"Request {number} of broker {broker} is no longer in memory, or was not seen by this console.", 404)
    facts: list[tuple[str, Any]] = [
        ("API", f"{_name(pair)} ({pair.api_key})"), ("Version", pair.api_version), ("Correlation id", pair.correlation_id),
        ("Client id", pair.client_id), ("From", pair.client), ("Principal", pair.principal), ("Listener", pair.listener),
        ("Request", size(pair.request_bytes)), ("Answer", size(pair.response_bytes) if pair.duration_us >= 0 else "none"),
        ("Took", f"{pair.duration_us / 1000:.3f} ms" if pair.duration_us >= 0 else "-"),
    ]  # fmt: skip
    notes = [Note(f"{_name(pair)}: {about(pair.api_key)}.")] if pair.api_key in APIS else []
    if pair.is_secret:
        notes.append(Note("Requests and answers of this API can have secrets, so the broker records no content of them.", "warn"))
    request, response = explained_request(pair), explained_response(pair)
    for name, found, whole in (("request", request, pair.request_bytes), ("answer", response, pair.response_bytes)):
        if found is not None and (note := _note(name, found, whole)):
            notes.append(Note(note, "warn"))
    tables = [
        span_table("request", "Request", request.spans if request is not None else (), "Its bytes were not recorded."),
        span_table("response", "Answer", response.spans if response is not None else (), "It has none, or its bytes were not recorded."),
    ]
    return Page(f"{_name(pair)} request {number}", facts, tables, notes=notes, trail=[Link("Live wire", href("wire", broker=broker))])


def _note(name: str, found: Frame, whole: int) -> str:
    """Returns the reason why the end of a frame is not explained; an empty text if the whole frame is explained."""
    if found.size < whole:
        return f"The {name} has {size(whole)}; the broker records the first {size(found.size)} of it."
    if found.problem:
        return f"The {name} cannot be explained to its end: {found.problem}"
    return f"The {name} has {len(found.spans):,} fields; the first {SPANS_MAX:,} are shown." if len(found.spans) > SPANS_MAX else ""


def capture(visit: Visit) -> bytes:
    """Returns the matching requests and responses that are in memory, as a packet capture."""
    number = _broker(visit)
    with _explained_refusals():
        seen = visit.desk.wire.look(number)
    address = next(one for one in visit.view().metadata.brokers if one.node_id == number)
    matching = _matching(seen.pairs, visit.query.get("api", ""), visit.query.get("client", ""))
    return as_capture(matching, (address.host, address.port))
