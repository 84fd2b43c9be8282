"""Two pipelines on the flights that left New York City in 2013: delays with the weather, and running figures per carrier and hour.

The first is stateless: it joins the stream of flights with the topics `weather` and `airlines` and writes a record a flight. The second
reads what the first has committed, keeps a state, and writes the new figures of a carrier and hour of the day whenever they change; the
last record of a key is the present one. `make demo-pipeline` fills the topics, runs both and kills them on the way.

    ottla pipeline run examples/flights.py
    ottla pipeline verify examples/flights.py
"""

from __future__ import annotations

import os
from typing import Any

from ottla.spark import Pipeline

BOOTSTRAP = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")

FLIGHT = "row INT, carrier STRING, flight INT, origin STRING, dest STRING, time_hour STRING, hour INT, dep_delay DOUBLE"
WEATHER = "origin STRING, time_hour STRING, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"
AIRLINE = "carrier STRING, name STRING"
DELAY = f"{FLIGHT}, name STRING, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"


def parsed(rows: Any, schema: str) -> Any:
    """The JSON of the values as columns."""
    return rows.selectExpr(f"from_json(cast(value AS string), '{schema}') AS v").select("v.*")


def table(session: Any, topic: str, schema: str) -> Any:
    """A topic as a table: a snapshot, read once and kept."""
    rows = session.read.format("ottla").option("kafka.bootstrap.servers", BOOTSTRAP).option("subscribe", topic).load()
    return parsed(rows, schema).cache()


def delays(rows: Any) -> Any:
    """Each flight with its airline's name and the weather of its hour, where there is a measurement."""
    session = rows.sparkSession
    flights = parsed(rows, FLIGHT).join(table(session, "airlines", AIRLINE), "carrier", "left")
    found = flights.join(table(session, "weather", WEATHER), ["origin", "time_hour"], "left")
    return found.selectExpr("carrier AS key", "to_json(struct(*)) AS value")


def figures(rows: Any) -> Any:
    """Flights, those that departed, and the sum of their delays, per carrier and hour of the day."""
    from pyspark.sql.functions import expr

    found = parsed(rows, DELAY).groupBy("carrier", "hour")
    sums = found.agg(expr("count(1) AS flights"), expr("count(dep_delay) AS departed"), expr("sum(dep_delay) AS minutes"))
    return sums.selectExpr("concat(carrier, ' ', cast(hour AS string)) AS key", "to_json(struct(*)) AS value")


flight_delays = Pipeline(
    group="flight-delays",
    source="flights",
    sink="flight-delays",
    transform=delays,
    bootstrap=BOOTSTRAP,
    source_options={"maxOffsetsPerTrigger": "25000"},
)
carrier_hours = Pipeline(
    group="carrier-hours",
    source="flight-delays",
    sink="carrier-hours",
    transform=figures,
    bootstrap=BOOTSTRAP,
    output_mode="update",
    source_options={"maxOffsetsPerTrigger": "25000"},
)
