"""`ottla pipeline verify` and `compact` on a pipeline that writes a table."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import ottla.client
from ottla.spark.tables.table import Table
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.spark.tables.drivers import Driver

DEFINITION = """
from ottla.spark import Pipeline, Table

pipeline = Pipeline(group={group!r}, source={topic!r}, sink=Table({location!r}), transform=lambda rows: rows)
"""


@pytest.fixture
def definition(broker: Broker, tmp_path: Path) -> Path:
    """A pipeline whose table has the first 20 of 30 records, in two files."""
    name = uuid.uuid4().hex[:12]
    topic, location = broker.create_topic(f"in-{name}", 1), str(tmp_path / "table")
    with ottla.client.connect(broker.get_bootstrap_server()) as client:
        with client.producer() as producer:
            for number in range(30):
                producer.produce(topic, b"%d" % number)
        driver = Driver(Table(location), group=f"group-{name}", topic=topic)
        for batch_id in range(2):
            made = driver.run(batch_id, 10 * batch_id, 10 * batch_id + 10)
            assert made is not None
            client.commit(made.group, made.committed())
    path = tmp_path / "orders.py"
    path.write_text(DEFINITION.format(group=f"group-{name}", topic=topic, location=location))
    return path


def test_a_table_is_proved_compacted_and_proved_again(ottla: Ottla, definition: Path) -> None:
    found = ottla("pipeline", "verify", definition, "-o", "json")
    (row,) = found.json()["pipelines"]
    assert found.code == 0 and (row["proved"], row["batches"], row["rows_out"], row["lag"]) == (True, 2, 20, 10)
    compacted = ottla("pipeline", "compact", definition, "-o", "json")
    (row,) = compacted.json()["tables"]
    assert compacted.code == 0 and (row["files_before"], row["files_after"]) == (2, 1)
    assert ottla("pipeline", "verify", definition).code == 0


def test_a_fault_is_found(ottla: Ottla, definition: Path) -> None:
    next(definition.parent.rglob("*.parquet")).unlink()
    found = ottla("pipeline", "verify", definition)
    assert found.code == 1 and "is missing, with 10 rows" in found.out


def test_a_table_that_is_not_there_is_one_line(ottla: Ottla, definition: Path) -> None:
    definition.write_text(definition.read_text().replace("table'", "other'"))
    for command in ("verify", "compact"):
        found = ottla("pipeline", command, definition)
        assert found.code == 1 and "there is no Delta table" in found.err and len(found.err.splitlines()) == 1


def test_topics_are_not_compacted(ottla: Ottla, definition: Path) -> None:
    definition.write_text(definition.read_text().replace("sink=Table(", "sink=str("))
    found = ottla("pipeline", "compact", definition)
    assert found.code == 2 and "writes a table" in found.err
