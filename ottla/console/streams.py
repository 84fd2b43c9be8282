"""Sends the live tail of a topic to a browser, as server-sent events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ottla.analysis.resets import offsets_at
from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.client.blocking.consumer import Consumer
from ottla.client.core.admin import LATEST
from ottla.console import records
from ottla.console.desk import Desk
from ottla.console.pages.messages import filter_of

TAILS_MAX = 8
"""Live tails at the same time. Each has a thread and connections of its own."""
EVENT_RECORDS_MAX = 100
"""Records in one event. A browser shows the newest records of each interval, and the number of skipped records."""
EVENT_S = 0.25
LETTERS_MAX = 400
PATH = "/topics/{topic}/tail"

_open_tails = threading.BoundedSemaphore(TAILS_MAX)


async def tail(desk: Desk, request: Request) -> Response:
    """Answers with the records that are appended from now on and that match the filter of the query."""
    events = _events(desk, request.path_params["topic"], dict(request.query_params))
    return StreamingResponse(events, media_type="text/event-stream")


def _events(desk: Desk, topic: str, query: Mapping[str, str]) -> Iterator[str]:
    """Yields server-sent events until the browser disconnects, which closes the generator."""
    if not _open_tails.acquire(blocking=False):
        yield _event("problem", {"sentence": f"There are {TAILS_MAX} live tails already; close one."})
        return
    cluster = desk.new_cluster()
    try:
        partition, is_filtered = query.get("partition", ""), bool(query.get("text") or query.get("where"))
        matches, decode = filter_of(topic, query), partial(desk.settings.schemas.decode, topic)
        numbers = [int(partition)] if partition.isdecimal() else cluster.partitions(topic)
        places = [TopicPartition(topic, number) for number in numbers]
        with Consumer(cluster, partition_bytes_max=records.PARTITION_BYTES, max_wait_ms=200) as consumer:
            consumer.assign(offsets_at(cluster, places, LATEST))
            yield _event("begun", {})
            while True:
                shown, count = [], 0
                until = time.monotonic() + EVENT_S
                while (left := until - time.monotonic()) > 0:
                    for fetched in consumer.poll(left):
                        number, found = fetched.partition.partition, list(fetched.records())
                        if is_filtered:
                            found = [one for one in found if matches(number, decode(one).record)]
                        count += len(found)
                        shown += [records.show(number, decode(one), LETTERS_MAX) for one in found[-EVENT_RECORDS_MAX:]]
                shown = shown[-EVENT_RECORDS_MAX:]
                data = {"records": [records.as_event(one) for one in shown], "skipped": count - len(shown)}
                yield _event("records", data) if count else ": nothing new\n\n"
    except OttlaError as error:
        yield _event("problem", {"sentence": str(error)})
    finally:
        cluster.close()
        _open_tails.release()


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
