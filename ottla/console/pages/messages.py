"""Pages about the records of a topic: a list from any position, one record, the live tail, and a form that writes a record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ottla.analysis.resets import bounds_of, offsets_at
from ottla.analysis.where import parse_where
from ottla.base.types import TopicPartition
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.console import records
from ottla.console.model import Done, Field, Form, Link, Note, Page, PageError, Table, columns, href
from ottla.console.pages.topic import TRAIL, tabs_of, topic_of
from ottla.console.schemas import REGISTRY, Way
from ottla.console.visit import Visit, action, page
from ottla.schemas.errors import Misfit, SchemaError
from ottla.wire.records import Record

COUNT = 50
COUNT_MAX = 500
FILTERED_OFFSETS = 20 * COUNT_MAX
"""Offsets before the end of each partition that a filter looks at if it shows the newest records."""
STARTS = (
    ("latest", "the newest"), ("earliest", "the oldest"), ("from_offset", "from an offset on"), ("to_offset", "up to an offset"),
    ("from_time", "from a time on"), ("to_time", "up to a time"),
)  # fmt: skip
FIELDS = (("any", "key, value or header"), ("key", "key"), ("value", "value"), ("header", "header"))
TAIL_QUERY = ("partition", "text", "field", "where")
QUERY = ("from", "at", "partition", "count", "text", "field", "where", "committed", "markers")
EXPRESSION_LETTERS_MAX = 1_000


@page("/topics/{topic}/messages", "Records of a topic from a position, with a filter", query=QUERY)
def messages(visit: Visit) -> Page:
    name, topic = topic_of(visit)
    query = visit.query
    numbers = sorted(one.partition_index for one in topic.partitions)
    if query.get("partition"):
        number = visit.whole("partition")
        if number not in numbers:
            raise PageError(f"{name} has no partition {number}.", 404)
        numbers = [number]
    count = min(COUNT_MAX, max(1, visit.whole("count", COUNT)))
    places = [TopicPartition(name, number) for number in numbers]
    is_committed, has_markers = query.get("committed") == "yes", query.get("markers") == "yes"
    positions, ends, is_backwards = _positions(visit, places, count)
    is_filtered = bool(query.get("text") or query.get("where"))
    matches, decode = filter_of(name, query), visit.settings.schemas.decode
    found = records.read(
        visit.cluster, records.Wanted(positions, ends, count, matches, is_committed, has_markers, is_backwards, decode)
    )
    shown = list(reversed(found.records)) if is_backwards else found.records
    notes = []
    if is_filtered and found.is_partial:
        notes.append(
            Note(f"The search stopped after {records.READ_S:g} s and {found.scanned} records; name a later position to go on.", "warn")
        )
    if any(ends[place] - positions[place] == FILTERED_OFFSETS for place in places) and is_backwards and is_filtered:
        notes.append(Note(f"The search looked at {FILTERED_OFFSETS:,} offsets of each partition; for older ones name an earlier position."))
    extra = {
        "records": [one._asdict() for one in shown],
        "scanned": found.scanned,
        "lists": {"topic": name, "form": _form(visit, name, len(topic.partitions)), "records": shown, "links": _downloads(visit, name)},
    }
    return Page(
        name, forms=[_produce_form(visit, name)], notes=notes, tabs=tabs_of(name), trail=TRAIL,
        template="messages.html", extra=extra,
    )  # fmt: skip


def _positions(
    visit: Visit, places: list[TopicPartition], count: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], bool]:
    """Returns the first offset and the end of each partition to read, and whether the newest record is shown first."""
    bounds = bounds_of(visit.cluster, places)
    starts, ends = ({place: found[side] for place, found in bounds.items()} for side in (0, 1))
    start, at = visit.query.get("from", "latest"), visit.query.get("at", "").strip()
    if start == "earliest":
        return starts, ends, False
    if start in ("from_offset", "to_offset"):
        offset = visit.whole("at")
        if start == "from_offset":
            return {place: min(max(offset, starts[place]), ends[place]) for place in places}, ends, False
        ends = {place: min(max(offset, starts[place]), ends[place]) for place in places}
    elif start in ("from_time", "to_time"):
        moments = offsets_at(visit.cluster, places, parse_moment_ms(at))
        found = {place: ends[place] if moments[place] < 0 else moments[place] for place in places}
        if start == "from_time":
            return found, ends, False
        ends = found
    elif start != "latest":
        raise PageError(f"{start[:40]!r} is no position; choose one from the list.")
    if visit.query.get("text") or visit.query.get("where"):
        count = FILTERED_OFFSETS
    return {place: max(starts[place], ends[place] - count) for place in places}, ends, True


def parse_moment_ms(text: str) -> int:
    """Returns a date and time, in UTC without a zone, or milliseconds since 1970. Raises `PageError`."""
    if text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PageError(f"{text[:40]!r} is not a time; write it like 2026-01-31T12:00.") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def filter_of(topic: str, query: Mapping[str, str]) -> Callable[[int, Record], bool]:
    """Returns the filter for records of a partition. Raises `PageError` for an expression that cannot be read."""
    contains, fits = _contains(query.get("text", ""), query.get("field", "any")), _fits(query.get("where", ""))
    return lambda partition, record: contains(record) and (fits is None or fits(topic, partition, record))


def _fits(where: str) -> Callable[[str, int, Record], bool] | None:
    """Returns the filter of an expression; None if there is no expression. Raises `PageError` if the expression cannot be parsed."""
    if not where.strip():
        return None
    if len(where) > EXPRESSION_LETTERS_MAX:
        raise PageError(f"The expression has {len(where):,} characters; at most {EXPRESSION_LETTERS_MAX:,} are read.")
    try:
        return parse_where(where, "The filter")
    except ValueError as error:
        raise PageError(f"{error}.") from None


def _contains(text: str, field: str) -> Callable[[Record], bool]:
    """Returns a filter for records that contain a text; upper and lower case are equal."""
    if not text:
        return lambda record: True
    wanted = text.encode().lower()

    def matches(record: Record) -> bool:
        parts = []
        if field in ("any", "key"):
            parts.append(record.key)
        if field in ("any", "value"):
            parts.append(record.value)
        if field in ("any", "header"):
            parts += [part for name, value in record.headers for part in (name.encode(), value)]
        return any(part is not None and wanted in bytes(part).lower() for part in parts)

    return matches


def _filters(query: Mapping[str, str]) -> list[Field]:
    return [
        Field("text", "Contains", query.get("text", "")), Field("field", "In", query.get("field", "any"), choices=FIELDS),
        Field("where", "And fits, such as value.amount > 10", query.get("where", "")),
    ]  # fmt: skip


def _partition(query: Mapping[str, str], partitions: int) -> Field:
    choices = [("", "all"), *((str(number), str(number)) for number in range(partitions))]
    return Field("partition", "Partition", query.get("partition", ""), choices=choices)


def _form(visit: Visit, name: str, partitions: int) -> Form:
    query = visit.query
    return Form(href("topics", name, "messages"), "Choose records", "Show", [
        Field("from", "Records", query.get("from", "latest"), choices=STARTS),
        Field("at", "Offset, or time in UTC", query.get("at", "")),
        _partition(query, partitions),
        Field("count", "How many", query.get("count", str(COUNT)), "number"),
        *_filters(query),
        Field("committed", "Only committed records", query.get("committed", ""), "checkbox"),
        Field("markers", "Transaction markers", query.get("markers", ""), "checkbox"),
    ], is_query=True, is_open=True)  # fmt: skip


def _downloads(visit: Visit, name: str) -> list[Link]:
    given = {key: value for key, value in visit.query.items() if key in QUERY}
    return [
        Link("JSON", href("topics", name, "messages.json").rstrip("/") + _query(given)),
        Link("JSON lines", href("topics", name, "download", form="jsonl", **given)),
        Link("CSV", href("topics", name, "download", form="csv", **given)),
    ]


def _query(given: dict[str, str]) -> str:
    return href("", **given).removeprefix("/")


@page("/topics/{topic}/record", "One record", query=("partition", "offset"))
def record(visit: Visit) -> Page:
    name, _ = topic_of(visit)
    place, offset = TopicPartition(name, visit.whole("partition")), visit.whole("offset")
    found = one_record(visit, place, offset)
    shown = records.show(place.partition, visit.settings.schemas.decode(name, found), 200_000, is_indented=True)
    at = {"partition": place.partition, "offset": offset}
    bytes_link = Link("bytes of the value", href("topics", name, "value", **at))
    facts = [
        ("Partition", place.partition), ("Offset", offset), ("Bytes of key and value", shown.size), ("Form", shown.kind),
        *([("Schema", shown.schema)] if shown.schema else []), ("Download", bytes_link),
    ]  # fmt: skip
    rows = [{"name": header, "value": value} for header, value in shown.headers]
    table = Table("headers", "Headers", columns(name="Name", value="Value"), rows, "No headers.")
    trail = [*TRAIL, Link(name, href("topics", name)), Link("Messages", href("topics", name, "messages"))]
    extra = {"record": shown._asdict()}
    again = [] if shown.is_cut else _forms_again(visit, name, found)
    return Page(f"{place}, offset {offset}", facts, [table], again, trail=trail, template="record.html", extra=extra)


def _forms_again(visit: Visit, name: str, record: Record) -> list[Form]:
    """Returns the form that writes a record again, with exactly its key, value and headers. Returns none if a form cannot hold them: bytes
    that are no text and that no schema writes, control characters, an empty key, or no value."""
    found = None if record.value is None else visit.settings.schemas.way_of(name, bytes(record.value))
    try:
        key, value = (bytes(part or b"").decode() for part in (record.key, record.value if found is None else found[0]))
        headers = [f"{header}={bytes(part or b'').decode()}" for header, part in record.headers]
    except UnicodeDecodeError:
        return []
    is_text = key.isprintable() and all(map(str.isprintable, headers)) and value.replace("\n", "").replace("\t", "").isprintable()
    has_all = record.value is not None and record.key != b"" and all("=" not in one and part is not None for one, part in record.headers)
    filled = {"key": key, "value": value, "headers": "\n".join(headers), **({} if found is None else found[1].as_fields())}
    return [_produce_form(visit, name, filled)] if is_text and has_all else []


def one_record(visit: Visit, place: TopicPartition, offset: int) -> Record:
    """Returns the record at an offset. Raises `PageError` if there is none."""
    start = bounds_of(visit.cluster, [place])[place].start
    if offset < start:
        raise PageError(f"{place} has no record at offset {offset}: its log begins at offset {start}.", 404)
    deadline = time.monotonic() + records.READ_S
    with Consumer(visit.cluster, partition_bytes_max=records.PARTITION_BYTES, max_wait_ms=100) as consumer:
        consumer.assign({place: offset})
        while time.monotonic() < deadline:
            for fetched in consumer.poll(0.5):
                for record in fetched.records():
                    if record.offset == offset:
                        return record
                if fetched.next_offset > offset:
                    raise PageError(f"{place} has no record at offset {offset}: it was compacted or deleted, or is a marker.", 404)
    raise PageError(f"{place} has no record at offset {offset} yet.", 404)


@page("/topics/{topic}/live", "The live tail of a topic, with a filter", query=TAIL_QUERY)
def live(visit: Visit) -> Page:
    name, topic = topic_of(visit)
    given = {key: visit.query[key] for key in TAIL_QUERY if visit.query.get(key)}
    filter_of(name, given)
    fields = [_partition(visit.query, len(topic.partitions)), *_filters(visit.query)]
    form = Form(href("topics", name, "live"), "Choose records", "Show", fields, is_query=True, is_open=bool(given))
    extra = {"source": href("topics", name, "tail", **given), "partitions": sorted(one.partition_index for one in topic.partitions)}
    return Page(name, forms=[form], tabs=tabs_of(name), trail=TRAIL, template="live.html", extra=extra)


def _produce_form(visit: Visit, name: str, filled: Mapping[str, str] | None = None, *, is_open: bool = False) -> Form:
    given = filled or {}
    ways = visit.settings.schemas.ways(name)
    of_registry = ", or its id in the registry (empty: the newest)" if REGISTRY in dict(ways) else ""
    return Form(href("do", "topics", name, "produce"), "Write a record", "Write", [
        Field("key", "Key (empty: none)", given.get("key", "")), Field("value", "Value", given.get("value", ""), "textarea"),
        Field("is_null", "No value (a tombstone)", given.get("is_null", ""), "checkbox"),
        Field("way", "Write the value", given.get("way", ""), choices=ways),
        Field("schema", f"Schema{of_registry}", given.get("schema", ""), "textarea"),
        Field("message", "Protobuf message (empty: the first)", given.get("message", "")),
        Field("partition", "Partition (empty: by the key)", given.get("partition", ""), "number"),
        Field("headers", "Headers, one name=value a line", given.get("headers", ""), "textarea"),
    ], f"Writes one record to {name}. For a schema the value is JSON.", is_open=is_open)  # fmt: skip


def _encoded(visit: Visit, name: str, value: bytes) -> bytes:
    """Returns the value of the form as its schema writes it. Raises `PageError`, with the form as it was filled."""
    form = visit.form
    way = Way(form.get("way", ""), form.get("schema", ""), form.get("message", "").strip())
    try:
        return visit.settings.schemas.encode(name, value, way)
    except Misfit as error:
        reason = f"The value does not fit the schema: {error}"
    except RecursionError:
        reason = "The value is nested too deeply"
    except SchemaError as error:
        text = f"the message {error.text}" if error.option == "message" else error.text
        reason = f"There is no schema to write the value by: {text}"
    raise PageError(f"{reason}; nothing was written.", form=_produce_form(visit, name, form, is_open=True))


@action("/topics/{topic}/produce")
def produce(visit: Visit) -> Done:
    name, _ = topic_of(visit)
    form = visit.form
    headers: list[tuple[str, bytes | None]] = []
    for line in form.get("headers", "").splitlines():
        header, equals, value = line.partition("=")
        if line.strip() and not equals:
            raise PageError(f"The header {line[:40]!r} is not name=value; nothing was written.")
        if equals:
            headers.append((header, value.encode()))
    key = form.get("key", "").encode() or None
    body = None if form.get("is_null") else _encoded(visit, name, form.get("value", "").replace("\r\n", "\n").encode())
    partition = visit.whole("partition", -1)
    with Producer(visit.cluster) as producer:
        producer.produce(name, body, key=key, headers=tuple(headers), partition=partition)
        producer.flush()
    return Done(f"The record was written to {name}.", href("topics", name, "messages"))
