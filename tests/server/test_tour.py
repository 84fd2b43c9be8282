"""The tour of docs/tour.md: one record is sent through three brokers, and the functions of the page are called in the page's order."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch, read_records
from tests.cluster.nodes import Nodes

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(ottla/[\w/]+\.py)`|`((?:[A-Z]\w+\.)?[a-z_]\w*)`")

Call = tuple[str, str]
"""A file and the qualified name of a function."""


def stops(page: str) -> list[Call]:
    """Returns the functions in the numbered items of the page, each with the file that the page names last before it."""
    items = re.findall(r"^\d+\. (.+?)(?=^\d+\. |^#|\n\n)", page, re.MULTILINE | re.DOTALL)
    found, path = [], ""
    for item in items:
        for named, function in NAMED.findall(item):
            path = named or path
            if function and f"def {function.rpartition('.')[2]}(" in (ROOT / path).read_text():
                found.append((path, function))
    return found


@contextmanager
def calls() -> Iterator[list[Call]]:
    """Notes each call of a function of ottla."""
    noted: list[Call] = []
    prefix = f"{ROOT}/"

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            noted.append((code.co_filename.removeprefix(prefix), code.co_qualname))

    sys.setprofile(note)
    try:
        yield noted
    finally:
        sys.setprofile(None)


def first_missing(wanted: list[Call], noted: list[Call]) -> Call | None:
    """Returns the first wanted call that was not made after the wanted calls before it; None if all were made in this order."""
    left = iter(noted)
    return next((call for call in wanted if call not in left), None)


def test_a_record_is_passed_on_in_the_order_of_the_page() -> None:
    nodes = Nodes(3)
    nodes.create("t", [1, 2, 3])
    nodes.until(lambda: nodes.leader().isr == (1, 2, 3))
    nodes.write("the first record, after which the followers wait at the end of the log")
    nodes.until(lambda: nodes.leader().high_watermark == 1)
    nodes.settle()
    batch = encode_batch([Record(0, nodes.clock.wall_ms(), b"key", b"value")])
    produced = TopicProduceData(topic_id=nodes.leader().topic_id, partition_data=[PartitionProduceData(index=0, records=batch)])
    fetched = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    wanted = [FetchTopic(topic_id=nodes.leader().topic_id, partitions=[fetched])]
    with calls() as noted:
        written = nodes.ask(1, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[produced]))
        read = nodes.ask(1, FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=wanted))
    assert written.responses[0].partition_responses[0].error_code == 0
    assert [record.value for record in read_records(read.responses[0].partitions[0].records)] == [b"value"]
    page = stops((ROOT / "docs" / "tour.md").read_text())
    assert len(page) >= 30 and first_missing(page, noted) is None


def test_a_wrong_order_is_noticed() -> None:
    noted = [("a.py", "f"), ("b.py", "g"), ("a.py", "h")]
    assert first_missing([noted[0], noted[2]], noted) is None
    assert first_missing([noted[2], noted[1]], noted) == noted[1]
