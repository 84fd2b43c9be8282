"""Tables and views in Spark's catalog: which ways to give options work for the source and the sink, and the errors for the other ways.
Spark 4.3 does not pass a table's options to sources in Python, whether they are set by `OPTIONS`, `TBLPROPERTIES` or `createTable`. Options
must be in the statement, in the DataFrame, or in a permanent view. Temporary views are in `test_source.py` and `test_sink.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ottla.testing.broker import Broker
from tests.spark_jobs.queries import failure, run, stock_values, write_numbers

ADVICE = "CREATE VIEW ... AS SELECT ... FROM the_table WITH (...)"


class Tables(NamedTuple):
    """A source topic with the numbers below 20, a sink topic, and tables with both names and no options."""

    source: str
    sink: str
    broker: str

    def options(self, **more: str) -> str:
        """Returns options in the form of SQL's WITH (...)."""
        return ", ".join(f"'{name}' = '{value}'" for name, value in {"kafka.bootstrap.servers": self.broker, **more}.items())


@pytest.fixture
def tables(spark: Any, broker: Broker, request: pytest.FixtureRequest) -> Iterator[Tables]:
    name = f"{abs(hash(request.node.name)):x}"
    made = Tables(broker.create_topic(f"in_{name}", partitions=2), broker.create_topic(f"out_{name}"), broker.direct_server)
    write_numbers(broker, made.source, range(20))
    spark.sql(f"CREATE TABLE {made.source} (key BINARY, value BINARY) USING ottla")
    spark.sql(f"CREATE TABLE {made.sink} (key STRING, value STRING) USING ottla")
    yield made
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if 'VIEW' in table.tableType else 'TABLE'} {table.name}")


def test_a_view_for_good_has_the_options_of_a_table(spark: Any, broker: Broker, tables: Tables) -> None:
    """A permanent view has the options of its table. Unlike a temporary view it is not a snapshot: each query reads the current records."""
    given = tables.options(subscribe=tables.source)
    spark.sql(f"CREATE VIEW numbers AS SELECT CAST(CAST(value AS string) AS int) AS number FROM {tables.source} WITH ({given})")
    total = "SELECT count(*) AS n, sum(number) AS total FROM numbers"
    assert tuple(spark.sql(total).first()) == (20, 190)
    write_numbers(broker, tables.source, [20])
    assert tuple(spark.newSession().sql(total).first()) == (21, 210)
    spark.sql(
        f"INSERT INTO {tables.sink} WITH ({tables.options(topic=tables.sink)}) "
        "SELECT NULL, CAST(number AS string) FROM numbers WHERE number < 5"
    )
    assert stock_values(broker, tables.sink) == list(range(5))


@pytest.mark.parametrize("clause", ["OPTIONS", "TBLPROPERTIES"])
def test_options_of_a_table_are_not_passed_on_and_one_line_says_what_is(spark: Any, tables: Tables, clause: str) -> None:
    spark.sql(f"CREATE TABLE with_options USING ottla {clause} ({tables.options(subscribe=tables.source)})")
    assert ADVICE in failure(spark.table("with_options").collect)
    assert spark.read.options(**{"kafka.bootstrap.servers": tables.broker}, subscribe=tables.source).table("with_options").count() == 20


def test_a_table_made_of_a_query_in_sql_is_refused_and_not_left_behind(spark: Any, broker: Broker, tables: Tables) -> None:
    made = f"CREATE TABLE made USING ottla OPTIONS ({tables.options(topic=tables.sink)}) AS SELECT '1' AS value"
    assert "INSERT INTO the_table WITH (...) SELECT ..." in failure(lambda: spark.sql(made))
    assert not spark.catalog.tableExists("made")
    assert stock_values(broker, tables.sink) == []


def test_the_dataframe_s_ways_to_a_table_pass_its_options(spark: Any, broker: Broker, tables: Tables, checkpoint: str) -> None:
    rows = spark.range(4).selectExpr("CAST(id AS string) AS value")
    given = {"kafka.bootstrap.servers": tables.broker, "topic": tables.sink}
    rows.where("value = 0").write.format("ottla").mode("append").options(**given).saveAsTable("new")
    rows.where("value = 1").write.format("ottla").mode("append").options(**given).saveAsTable("new")
    rows.where("value = 2").writeTo("new").options(**given).append()
    rows.where("value = 3").writeTo("newer").using("ottla").options(**given).create()
    assert stock_values(broker, tables.sink) == [0, 1, 2, 3]
    assert "INSERT INTO the_table WITH (...) SELECT ..." in failure(lambda: rows.write.options(**given).insertInto("new"))
    assert stock_values(broker, tables.sink) == [0, 1, 2, 3]


def test_a_stream_from_table_to_table(spark: Any, broker: Broker, tables: Tables, checkpoint: str) -> None:
    reading = {"subscribe": tables.source, "startingOffsets": "earliest", "group": "tables"}
    by_options = spark.readStream.options(**{"kafka.bootstrap.servers": tables.broker}, **reading).table(tables.source)
    by_statement = spark.sql(f"SELECT * FROM STREAM {tables.source} WITH ({tables.options(**reading)})")

    def written(rows: Any) -> Any:
        writer = rows.selectExpr("CAST(key AS string) AS key", "CAST(value AS string) AS value").writeStream
        given = {"kafka.bootstrap.servers": tables.broker, "topic": tables.sink, "group": "tables", "checkpointLocation": checkpoint}
        return writer.options(**given).trigger(availableNow=True)

    query = written(by_options).toTable(tables.sink)
    assert query.awaitTermination(120)
    assert stock_values(broker, tables.sink) == list(range(20))
    write_numbers(broker, tables.source, range(20, 30))
    run(written(by_statement).format("ottla"))
    assert stock_values(broker, tables.sink) == list(range(30))
