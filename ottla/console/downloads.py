"""Files: the records of a page of messages, the bytes of one record, the frames of the live wire, Grafana boards, alert rules. `DOWNLOADS`
has all.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

from ottla.base.types import TopicPartition
from ottla.console.model import PageError
from ottla.console.pages import wire
from ottla.console.pages.messages import QUERY, messages, one_record
from ottla.console.rendering import FOLDER
from ottla.console.visit import Visit

DASHBOARDS = ("ottla.json", "pipelines.json", "alerts.yaml")
COLUMNS = ("partition", "offset", "timestamp", "key", "value")


def table(visit: Visit) -> Response:
    """Returns the records of the page of messages as JSON lines or CSV."""
    topic, rows = visit.path["topic"], messages(visit).extra["records"]
    if visit.query.get("form") != "csv":
        return _file("".join(json.dumps(row) + "\n" for row in rows).encode(), "application/jsonl", f"{topic}.jsonl")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_cell(row[name]) for name in COLUMNS] for row in rows)
    return _file(text.getvalue().encode(), "text/csv", f"{topic}.csv")


def _cell(value: object) -> object:
    """Returns a value for a spreadsheet, with a quote before text that a spreadsheet would execute as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def value(visit: Visit) -> Response:
    """Returns the bytes of a record's value."""
    place, offset = TopicPartition(visit.path["topic"], visit.whole("partition")), visit.whole("offset")
    found = one_record(visit, place, offset).value
    if found is None:
        raise PageError("The value is null, so there are no bytes.", 404)
    return _file(bytes(found), "application/octet-stream", f"{place}-{offset}.bin")


def capture(visit: Visit) -> Response:
    """Returns the recorded requests and responses of a broker as a packet capture."""
    return _file(wire.capture(visit), "application/vnd.tcpdump.pcap", f"broker-{visit.query.get('broker', '')}.pcap")


def dashboard(visit: Visit) -> Response:
    """Returns a Grafana board or the alert rules for Prometheus. Raises `PageError` for another name."""
    name = visit.path["name"]
    if name not in DASHBOARDS:
        raise PageError(f"There is no file {name[:40]!r}; there are {', '.join(DASHBOARDS)}.", 404)
    return _file((FOLDER / "dashboards" / name).read_bytes(), "application/octet-stream", name)


class Download(NamedTuple):
    """A file: path, summary, names in the query, media types, and the function that makes it."""

    path: str
    summary: str
    query: tuple[str, ...]
    media_types: tuple[str, ...]
    make: Callable[[Visit], Response]


DOWNLOADS = (
    Download("/topics/{topic}/value", "The bytes of a record's value", ("partition", "offset"), ("application/octet-stream",), value),
    Download("/topics/{topic}/download", "Records of a topic as JSON lines, or with form=csv as CSV", ("form", *QUERY),
             ("application/jsonl", "text/csv"), table),
    Download("/metrics/dashboards/{name}", "The Grafana board or the alert rules", (), ("application/octet-stream",), dashboard),
    Download("/wire/capture", "The frames of the live wire as a packet capture", ("broker", "api", "client"),
             ("application/vnd.tcpdump.pcap",), capture),
)  # fmt: skip


def _file(data: bytes, media_type: str, name: str) -> Response:
    quoted = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return Response(data, media_type=media_type, headers={"content-disposition": f'attachment; filename="{quoted}"'})
