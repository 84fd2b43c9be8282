"""What `produce` says at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.records.produce_summary import Summary
from ottla.client.blocking.producer import Delivery
from ottla.client.errors import KafkaError
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def delivered(partition: int, base_offset: int, count: int) -> Delivery:
    return Delivery(TopicPartition("orders", partition), base_offset, [None] * count, None)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("deliveries", "sentence"),
    [
        ([(0, 0, 5)], "5 records to orders, offsets 0-4"),
        ([(0, 7, 1)], "1 record to orders, offset 7"),
        ([(0, 0, 2), (0, 2, 3)], "5 records to orders, offsets 0-4"),
        ([(2, 9, 1), (1, 0, 4)], "5 records to orders, partition 1 offsets 0-3; partition 2 offset 9"),
        ([(number, 0, 1) for number in range(5)], "5 records to orders in 5 partitions"),
        ([(0, -1, 3)], "3 records to orders"),
        ([], "0 records to orders"),
    ],
)
def test_the_sentence(deliveries: list[tuple[int, int, int]], sentence: str) -> None:
    summary = Summary("orders")
    for found in deliveries:
        summary.add(delivered(*found))
    assert summary.sentence(sum(count for *_, count in deliveries)) == sentence


def test_a_failed_batch_raises() -> None:
    with pytest.raises(KafkaError):
        Summary("orders").add(delivered(0, -1, 1)._replace(error=KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")))


def test_a_topic_that_was_created_by_use_is_named(ottla: Ottla, broker: Broker, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    first = ottla("produce", "made-by-use", "-l", lines)
    assert first.err == "topic made-by-use did not exist and was created, with 1 partition\n2 records to made-by-use, offsets 0-1\n"
    assert ottla("produce", "made-by-use", "-l", lines).err == "2 records to made-by-use, offsets 2-3\n"
    quiet = ottla("produce", "made-quietly", "-l", lines, "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert len(broker.records("made-quietly")) == 2
    objects = ottla("produce", "made-for-programs", "-l", lines, "-o", "json")
    assert (objects.code, objects.err) == (0, "")
    assert json.loads(objects.out) == {
        "topic": "made-for-programs", "records": 2, "is_new_topic": True, "offsets": [{"partition": 0, "first": 0, "last": 1}],
    }  # fmt: skip
