"""Clones of a broker's topics: the same bytes, and a broker on the clone."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ottla.client
from ottla.base.types import TopicPartition
from ottla.client import Client
from ottla.client.core.group_admin import Committed
from ottla.cloning.plan import CloneError, read_plan
from ottla.testing.broker import Broker
from ottla.wire.records import Record
from tests.cloning.conftest import MakeClone, ends, stored, write

SECONDS_MAX = 60.0
COMPACTED = {
    "cleanup.policy": "compact", "internal.segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0",
}  # fmt: skip


def happens(condition: Callable[[], bool]) -> bool:
    """Whether a condition becomes true. It is not looked at again then: a source that is compacted may change it."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_true


def test_a_consumer_of_a_broker_on_the_clone_continues(
    source: Broker, client: Client, topic: str, clone: MakeClone, tmp_path: Path
) -> None:
    """Bytes, topic id, settings, committed offset and leader epochs are the source's, and new producers and consumers go on from there."""
    client.create_topic(topic, partitions=2, configs={"retention.ms": "864000000000", "max.message.bytes": "2000000"})
    write(client, topic, 40, timestamp=1_700_000_000_000)
    with client.transaction("other-" + topic) as transaction:
        assert transaction is not None
    partition = TopicPartition(topic, 0)
    client.commit("billing-" + topic, {partition: Committed(25, 0, "mine")})
    cloned = clone()
    assert [(one.partition.partition, one.log_start_offset, one.log_end_offset) for one in cloned.logs] == [(0, 0, 40), (1, 0, 0)]
    assert stored(tmp_path / "clone", topic) == stored(source.data_dir, topic) != b""
    assert not (tmp_path / "clone.partial").exists()
    with Broker(data_dir=tmp_path / "clone") as broker, ottla.client.connect(broker.direct_server) as local:
        before, after = client.describe_topic(topic), local.describe_topic(topic)
        assert after.topic_id == before.topic_id and len(after.partitions) == 2
        assert after.partitions[0].leader_epoch > before.partitions[0].leader_epoch
        assert local.topic_configs(topic)["retention.ms"] == "864000000000"
        assert local.committed("billing-" + topic) == {partition: Committed(25, 0, "mine")}
        consumer = local.consumer("billing-" + topic, topics=[topic])
        found = consume(consumer, 15)
        assert [(record.offset, record.value, record.timestamp) for record in found] == [
            (number, b"%d" % number, 1_700_000_000_000) for number in range(25, 40)
        ]
        assert found[0].headers == (("number", b"25"),)
        consumer.close()
        write(local, topic, 5, first=40)
        assert ends(local, topic) == 45
        assert "recover" not in broker.log and "ERROR" not in broker.log and "WARN" not in broker.log


def consume(consumer: ottla.client.Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count and time.monotonic() < deadline:
        for fetched in consumer.poll(1.0):
            found += fetched.records()
    return found


def test_every_transaction_has_the_sources_outcome(client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    """A committed and an aborted one; one that is decided after the end of the clone; one that stays open, which is aborted."""
    client.create_topic(topic)
    committed, aborted, late, hanging = (client.producer(transactional_id=f"{name}-{topic}") for name in ("a", "b", "c", "d"))
    for producer in (committed, aborted, late, hanging):
        producer.begin()
        producer.produce(topic, producer_name(producer), partition=0)
        producer.flush()
    committed.commit()
    aborted.abort()
    end = ends(client, topic)

    def planned(_: int) -> Callable[[int], None]:
        late.commit()
        return lambda _: None

    cloned = clone(planned=planned)
    assert cloned.logs[0].log_end_offset == end + 2, "two markers are added"
    assert cloned.notes == [f"{topic}-0: 1 of the transactions at the end are open at the source, and aborted here"]
    hanging.abort()
    expected = [record.value for fetched in client.read(TopicPartition(topic, 0), 0, ends(client, topic)) for record in fetched.records()]
    with Broker(data_dir=tmp_path / "clone") as broker:
        assert [record.value for record in broker.records(topic)] == expected == [producer_name(committed), producer_name(late)]
        with ottla.client.connect(broker.direct_server) as local:
            again = local.producer(transactional_id=f"a-{topic}")
            again.begin()
            again.produce(topic, b"more", partition=0)
            again.commit()
            again.close()
        assert [record.value for record in broker.records(topic)] == [*expected, b"more"]
    for producer in (committed, aborted, late, hanging):
        producer.close()


def producer_name(producer: ottla.client.Producer) -> bytes:
    return str(id(producer)).encode()


def test_gaps_of_a_compaction_are_cloned(source: Broker, client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    client.create_topic(topic, configs=COMPACTED)
    write(client, topic, 200)
    assert happens(lambda: len(stored(source.data_dir, topic)) < 6_000)

    def is_equal() -> bool:
        """Clones again as long as the source is compacted meanwhile."""
        shutil.rmtree(tmp_path / "clone", ignore_errors=True)
        before = stored(source.data_dir, topic)
        clone()
        return stored(tmp_path / "clone", topic) == before

    assert happens(is_equal)


def test_a_compaction_during_the_clone_loses_no_key(source: Broker, client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    """New values replace all old ones before the first record is read. The old end would have left no value of some keys."""
    client.create_topic(topic, configs=COMPACTED)
    write(client, topic, 100)

    def planned(_: int) -> Callable[[int], None]:
        write(client, topic, 200, first=100)
        assert happens(lambda: len(stored(source.data_dir, topic)) < 6_000)
        return lambda _: None

    cloned = clone(planned=planned)
    assert cloned.logs[0].log_end_offset == 300
    with Broker(data_dir=tmp_path / "clone") as broker:
        latest = {record.key: record.value for record in broker.records(topic)}
    assert latest == {b"key-%d" % (number % 7): b"%d" % number for number in range(293, 300)}


def test_a_source_that_trims_during_the_clone(client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    client.create_topic(topic)
    write(client, topic, 40)

    def planned(_: int) -> Callable[[int], None]:
        client.delete_records({TopicPartition(topic, 0): 20})
        return lambda _: None

    cloned = clone(planned=planned)
    assert (cloned.logs[0].log_start_offset, cloned.logs[0].log_end_offset) == (20, 40)
    assert cloned.notes == [f"{topic}-0 begins at offset 20: the source has deleted older records meanwhile"]


def test_a_topic_that_is_created_again_during_the_clone_is_refused(client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    client.create_topic(topic)

    def planned(_: int) -> Callable[[int], None]:
        client.delete_topic(topic)
        client.create_topic(topic)
        return lambda _: None

    with pytest.raises(CloneError, match="was deleted and created again at the source; run the command again"):
        clone(planned=planned)
    assert not (tmp_path / "clone").exists()
    clone()


@pytest.mark.parametrize("after", range(3))
def test_a_clone_that_was_interrupted_continues(
    source: Broker, client: Client, topic: str, clone: MakeClone, tmp_path: Path, after: int
) -> None:
    """It ends before the first record, after some, or after all records and before the directory is complete."""
    client.create_topic(topic, partitions=2)
    write(client, topic, 40)
    client.commit("billing-" + topic, {TopicPartition(topic, 0): 40})
    hanging = client.producer(transactional_id=topic)
    hanging.begin()
    hanging.produce(topic, b"open", partition=0)
    hanging.flush()

    def interrupted(_: int) -> Callable[[int], None]:
        if after == 0:
            raise KeyboardInterrupt
        return lambda _: interrupt() if after == 1 else None

    if after < 2:
        with pytest.raises(KeyboardInterrupt):
            clone(planned=interrupted)
    else:
        (tmp_path / "clone").mkdir()

        def occupied(_: int) -> Callable[[int], None]:
            (tmp_path / "clone" / "file").touch()
            hanging.commit()
            return lambda _: None

        with pytest.raises(CloneError, match=r"cannot write .*: directory not empty"):
            clone(planned=occupied)
        (tmp_path / "clone" / "file").unlink()
    assert read_plan(tmp_path / "clone.partial") is not None
    if after < 2:
        hanging.commit()
    hanging.close()
    write(client, topic, 5, first=40)
    cloned = clone()
    assert cloned.is_continued
    copied = stored(tmp_path / "clone", topic)
    assert stored(source.data_dir, topic).startswith(copied[: copied.index(b"open")])
    with Broker(data_dir=tmp_path / "clone") as broker:
        values = [record.value for record in broker.records(topic)]
    assert values == [b"%d" % number for number in range(40)] + [b"open"] + [b"%d" % number for number in range(40, 45)][: len(values) - 41]


def interrupt() -> None:
    raise KeyboardInterrupt


def test_another_request_starts_over(client: Client, topic: str, clone: MakeClone) -> None:
    client.create_topic(topic)
    write(client, topic, 10)

    def fail(_: int) -> Callable[[int], None]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clone(planned=fail, description="all")
    cloned = clone(description="two", tail=2)
    assert (cloned.is_continued, cloned.logs[0].log_start_offset) == (False, 8)


def test_a_clone_that_was_killed_continues(source: Broker, client: Client, topic: str, tmp_path: Path) -> None:
    """kill -9 while it copies: the log so far is checked, and continued."""
    client.create_topic(topic)
    producer = client.producer()
    for _ in range(300):
        producer.produce(topic, bytes(100_000), partition=0)
    producer.flush()
    producer.close()
    words = ["clone", source.direct_server, "--topics", topic, "-d", str(tmp_path / "clone"), "-o", "json"]
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    partial = tmp_path / "clone.partial" / "data"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert happens(lambda: process.poll() is not None or any(path.stat().st_size for path in partial.glob("*/*.log")))
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
    if not (tmp_path / "clone").exists():  # killed in time
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["continued"] is True
    assert stored(tmp_path / "clone", topic) == stored(source.data_dir, topic)


@pytest.mark.parametrize(
    ("chosen", "bounds"),
    [
        ({"tail": 12}, (28, 40)),
        ({"first_offset": 7, "end_offset": 13}, (7, 15)),
        ({"since_ms": 1020, "until_ms": 1030}, (20, 30)),
        ({"since_ms": 5000}, (40, 40)),
        ({"end_offset": 0}, (0, 0)),
        ({"size": 1}, (40, 40)),
        ({"size": 1 << 30}, (0, 40)),
    ],
)
def test_a_range_is_cloned_in_whole_batches(
    client: Client, topic: str, clone: MakeClone, chosen: dict[str, int], bounds: tuple[int, int]
) -> None:
    client.create_topic(topic, configs={"retention.ms": "-1"})
    producer = client.producer()
    for number in range(40):
        producer.produce(topic, b"value", partition=0, timestamp=1000 + number)
        if number % 5 == 4:
            producer.flush()
    producer.close()
    (log,) = clone(**chosen).logs
    assert (log.log_start_offset, log.log_end_offset) == bounds


def test_groups_outside_of_the_clone_are_noted(client: Client, topic: str, clone: MakeClone) -> None:
    """A clone of offsets 10 to 20: the reset policy of the consumers decides for groups that are before or after it."""
    client.create_topic(topic)
    write(client, topic, 40)
    for name, offset in (("before", 3), ("first", 10), ("end", 20), ("after", 33)):
        client.commit(f"{name}-{topic}", {TopicPartition(topic, 0): offset})
    groups = [f"{name}-{topic}" for name in ("before", "first", "end", "after")]
    notes = clone(first_offset=10, end_offset=20, groups=groups).notes
    rest = "its auto.offset.reset decides where it continues"
    assert notes == [
        f"group 'before-{topic}' in {topic}-0 is at offset 3, before the clone's start 10: {rest}",
        f"group 'after-{topic}' in {topic}-0 is at offset 33, after the clone's end 20: {rest}",
    ]


def test_about_the_newest_bytes(client: Client, topic: str, clone: MakeClone, tmp_path: Path) -> None:
    """Old records are small and new ones large."""
    client.create_topic(topic)
    write(client, topic, 1000)
    producer = client.producer()
    for _ in range(200):
        producer.produce(topic, bytes(1000), partition=0)
        producer.flush()
    producer.close()
    clone(size=100_000)
    assert 50_000 < len(stored(tmp_path / "clone", topic)) < 200_000
