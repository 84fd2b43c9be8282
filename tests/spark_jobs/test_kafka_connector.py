"""Spark's own Kafka connector reads and writes an Ottla broker like a broker of Kafka: `format("kafka")`, batch and streaming,
read_committed.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.client import EARLIEST, LATEST, Client, TopicPartition, partition_for_key
from ottla.testing.broker import Broker
from ottla.wire.records import Record, encode_batch
from tests.spark_jobs.kafka_connector_program import ROWS
from tests.spark_jobs.quick_java import QUICK_JAVA
from tools.spark_connector import environment, python_program

PROGRAM = Path(__file__).with_name("kafka_connector_program.py")
PROGRAM_SECONDS = 300
START_MS = (time.time_ns() // 1_000_000_000 + 3000) * 1000
"""The first record's timestamp: later than those of the markers, which a search by time finds as well, however late they are written; and
less than an hour ahead, which is what brokers accept."""
pytestmark = [pytest.mark.night, pytest.mark.timeout(900)]
"""The first run installs half a gigabyte."""

TRADES = (TopicPartition("trades", 0), TopicPartition("trades", 1))


def fill_trades(client: Client) -> list[list[Any]]:
    """Writes six transactions, every second one aborted, with three records in each partition. Returns the committed rows."""
    client.create_topic("trades", partitions=2)
    committed: list[list[Any]] = []
    for turn in range(6):
        values = [b"turn %d, %d" % (turn, at) for at in range(3)]
        records = [Record(0, START_MS + 30 * turn + 10 * at, b"key %d" % at, value, (("turn", b""),)) for at, value in enumerate(values)]
        with client.transaction("trades") as transaction:
            firsts = transaction.produce({target: [encode_batch(records, is_transactional=True)] for target in TRADES})
            if turn % 2:
                transaction.abort()
                continue
        for target, first in firsts.items():
            committed += [[target.partition, first + at, record.key.decode(), record.value.decode()] for at, record in enumerate(records)]
    return sorted(committed)


@pytest.fixture(scope="module")
def python(java: str, need_program: Callable[[str], str]) -> str:
    """The interpreter of the environment with the connector."""
    need_program("mvn")
    return python_program()


@pytest.fixture(scope="module")
def run(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, list[list[Any]], dict[str, Any]]]:
    """A broker after the program has run: a client, the committed records of `trades`, and the records that the program read."""
    folder = tmp_path_factory.mktemp("connector")
    with Broker(topics=["written:3", "keyed:5", "copied:1"]) as broker, ottla.client.connect(broker.get_bootstrap_server()) as client:
        committed = fill_trades(client)
        command = [python, str(PROGRAM), broker.get_bootstrap_server(), str(folder), str(START_MS + 100)]
        variables = {**environment(), "JDK_JAVA_OPTIONS": QUICK_JAVA}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        yield client, committed, json.loads((folder / "results.json").read_text())


def stored(client: Client, topic: str, partitions: int) -> list[tuple[int, Record]]:
    """Returns all committed records of a topic with their partitions."""
    found = []
    for partition in range(partitions):
        target = TopicPartition(topic, partition)
        start, end = (client.list_offsets({target: at})[target].offset for at in (EARLIEST, LATEST))
        found += [(partition, record) for fetched in client.read(target, start, end) for record in fetched.records()]
    return found


def test_read_committed_leaves_out_aborted_rows(run: tuple[Client, list[list[Any]], dict[str, Any]]) -> None:
    _, committed, results = run
    assert len(committed) == 18
    assert results["committed"] == committed
    assert len(results["uncommitted"]) == 36
    assert [row for row in results["uncommitted"] if row in committed] == committed


def test_ranges_are_split_and_begin_at_the_starting_offsets(run: tuple[Client, list[list[Any]], dict[str, Any]]) -> None:
    _, committed, results = run
    assert results["split"] == committed
    assert results["from"] == [row for row in committed if row[0] or row[1] >= 2]
    assert results["later"] == [row for row in committed if int(row[3][5]) >= 4]


def test_other_columns_are_those_of_the_log(run: tuple[Client, list[list[Any]], dict[str, Any]]) -> None:
    _, committed, results = run
    assert results["details"] == [["trades", row[0], row[1], START_MS // 1000, 0, ["turn"]] for row in committed]


def test_written_rows_have_their_keys_headers_and_partitions(run: tuple[Client, list[list[Any]], dict[str, Any]]) -> None:
    client, _, _ = run
    found = stored(client, "written", 3)
    assert {int(record.key or b""): record.value for _, record in found} == {number: b"value %d" % number for number in range(ROWS)}
    assert len(found) == ROWS
    for partition, record in found:
        assert partition == partition_for_key(record.key or b"", 3)
        assert record.headers == (("source", record.value),)


def test_the_partition_column_wins_over_the_key(run: tuple[Client, list[list[Any]], dict[str, Any]]) -> None:
    _, _, results = run
    assert len(results["keyed"]) == ROWS
    for partition, _, key, value in results["keyed"]:
        assert partition == (2 if int(value) % 10 == 0 else partition_for_key(key.encode(), 5))


def test_a_stream_goes_on_from_its_checkpoint(run: tuple[Client, list[list[Any]], dict[str, Any]]) -> None:
    _, committed, results = run
    assert results["copied_rows"] == [len(committed), 100]
    wanted = sorted(row[3] for row in committed) + sorted(f"later {number}" for number in range(100))
    assert sorted(row[3] for row in results["copied"]) == sorted(wanted)
