"""With a checkpoint that Python cannot read as files, the source passes each batch's range to the sink through a file on the driver's host,
and no record is lost or duplicated. Hadoop's `viewfs` simulates an object store: the files are in a local directory, under an address that
only Hadoop resolves.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client import connect
from ottla.testing.broker import Broker
from tests.spark_jobs.cluster_program import WINDOW_S, windows
from tests.spark_jobs.queries import failure, forget_last_commit, run, stock_records, stream, stream_writer, write_numbers


@pytest.fixture
def mounted(spark: Any, tmp_path: Path) -> Iterator[str]:
    """The address of the test's directory under `viewfs`. Hadoop keeps the file system of a mount table, so each test has its own."""
    settings, table = spark.sparkContext._jsc.hadoopConfiguration(), f"ottla-{uuid.uuid4().hex[:12]}"
    link = f"fs.viewfs.mounttable.{table}.link./checkpoints"
    settings.set(link, tmp_path.as_uri())
    yield f"viewfs://{table}/checkpoints/query"
    settings.unset(link)


def test_batches_with_and_without_input_are_committed_once(spark: Any, broker: Broker, mounted: str, tmp_path: Path) -> None:
    name = uuid.uuid4().hex[:12]
    source, sink, group = broker.create_topic(f"in-{name}"), broker.create_topic(f"out-{name}"), f"g-{name}"
    given = {"subscribe": source, "group": group, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}

    def query() -> Any:
        rows = windows(stream(spark, broker, **given).load())
        return stream_writer(rows, broker, mounted, topic=sink, group=group)

    write_numbers(broker, source, range(300))
    run(query())
    write_numbers(broker, source, [1_000_000])
    run(query())
    forget_last_commit(str(tmp_path / "query"))
    run(query())
    found = sorted(message.value() for message in stock_records(broker, sink))
    assert found == sorted(b"%d/%d" % (start, WINDOW_S) for start in range(0, 300, WINDOW_S))
    with connect(broker.direct_server) as client:
        assert {one.offset for one in client.committed(group).values()} == {301}


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        (("{g}", "{g}-other"), "group: the query's sources of format ottla have the groups '{g}', '{g}-other'"),
        (("{g}-other", "{g}-other"), "no source of the query with the option group='{g}' has planned it"),
    ],
)
def test_a_source_of_another_group_is_refused(
    spark: Any, broker: Broker, mounted: str, groups: tuple[str, str], line: str
) -> None:
    """A source with another group is refused at the first batch with input, because only its reading tasks show the groups. The batch
    before it is empty.
    """
    name = uuid.uuid4().hex[:12]
    sink = broker.create_topic(f"out-{name}")
    frames = []
    for number, group in enumerate(groups):
        topic = broker.create_topic(f"in-{name}-{number}")
        write_numbers(broker, topic, range(10))
        given = {"subscribe": topic, "group": group.format(g=f"g-{name}"), "startingOffsets": "earliest"}
        frames.append(stream(spark, broker, **given).load().select("key", "value"))
    writer = stream_writer(frames[0].union(frames[1]), broker, mounted, topic=sink, group=f"g-{name}")
    assert line.format(g=f"g-{name}") in failure(lambda: run(writer))
    assert not stock_records(broker, sink)
    with connect(broker.direct_server) as client:
        assert not any(found.offset for found in client.committed(f"g-{name}").values())
