"""Measures typed values: a million rows of six fields in Avro and JSON, decoded from Arrow columns and read by Spark, in CPU time.

usage: python -m tools.bench.typed_values [--rows 1000000] [--no-spark]

The first table is the decoder alone, beside fastavro. The second is a query of Spark with one task that reads all values and drops them:
the CPU seconds of Java and its workers, with Spark's `from_json` on the same topic. Each figure is the best of three rounds, in turn.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import psutil
import pyarrow as pa

from ottla.client import connect
from ottla.schemas.value_options import ValueOptions
from ottla.schemas.values import ValueDecoder, ValueSchema, resolve_values
from ottla.spark.session import build_session
from tools.bench.brokers import start_ottla
from tools.bench.report import machine

ROUNDS = 3
CHUNK_ROWS = 16_384
FIELDS = (("id", "long"), ("item", "string"), ("amount", "double"), ("quantity", ["null", "int"]), ("at", "string"), ("paid", "boolean"))
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in FIELDS]})
DDL = "id BIGINT, item STRING, amount DOUBLE, quantity INT, at STRING, paid BOOLEAN"


def make_rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": 1000 * number, "item": f"item-{number % 1000}", "amount": number / 7, "quantity": number if number % 3 else None,
         "at": f"2026-01-01T00:00:{number % 60:02}", "paid": number % 2 == 0}
        for number in range(count)
    ]  # fmt: skip


def encoded(rows: Sequence[dict[str, Any]]) -> tuple[list[bytes], list[bytes]]:
    """Returns the rows in Avro and in JSON."""
    parsed, avro = fastavro.parse_schema(json.loads(SCHEMA)), []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        avro.append(stream.getvalue())
    return avro, [json.dumps(row).encode() for row in rows]


def best(clock: Callable[[], float], uses: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Runs all uses in turn for several rounds. Returns the shortest time of each in seconds."""
    found = dict.fromkeys(uses, float("inf"))
    for _ in range(ROUNDS):
        for name, use in uses.items():
            started = clock()
            use()
            found[name] = min(found[name], clock() - started)
    return found


def decoding(avro: Sequence[bytes], texts: Sequence[bytes]) -> dict[str, float]:
    def chunks(values: Sequence[bytes]) -> list[Any]:
        return [pa.array(values[first : first + CHUNK_ROWS], pa.binary()) for first in range(0, len(values), CHUNK_ROWS)]

    of_avro, of_texts = chunks(avro), chunks(texts)
    typed = resolve_values(ValueOptions(format="avro", schema=SCHEMA), [])
    decoder = ValueDecoder(typed)
    of_json = ValueDecoder(ValueSchema(options=ValueOptions(format="json"), kind=decoder.kind))
    parsed, head = fastavro.parse_schema(json.loads(SCHEMA)), avro[: len(avro) // 10]

    def by_fastavro() -> None:
        pa.array([fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in head], decoder.kind)

    found = best(time.process_time, {
        "Avro": lambda: [decoder.decode(chunk) for chunk in of_avro],
        "JSON": lambda: [of_json.decode(chunk) for chunk in of_texts],
        "fastavro, and Arrow of its values": by_fastavro,
    })  # fmt: skip
    found["fastavro, and Arrow of its values"] *= len(avro) / len(head)
    return found


def children_seconds() -> float:
    """Returns the CPU seconds of Java and its workers."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def reading(avro: Sequence[bytes], texts: Sequence[bytes]) -> dict[str, float]:
    broker = start_ottla()
    try:
        with connect(broker.address) as client:
            for topic, values in (("avro", avro), ("json", texts)):
                client.create_topic(topic, partitions=1)
                with client.producer(batch_bytes=900_000) as producer:
                    producer.produce_values(topic, values)
        session = build_session("typed values", master="local[1]", config={}, is_quiet=True)

        def rows(topic: str, columns: str, **options: str) -> Any:
            given = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "minPartitions": "1", **options}
            return session.read.format("ottla").options(**given).schema(columns).load()

        struct = ", ".join(f"{name}: {kind}" for name, kind in (field.split() for field in DDL.split(", ")))
        texts_of = rows("json", "value BINARY").selectExpr(f"from_json(cast(value AS string), '{DDL}') AS value")
        uses = {
            "Avro": rows("avro", f"value STRUCT<{struct}>", valueFormat="avro", schema=SCHEMA),
            "JSON": rows("json", f"value STRUCT<{struct}>", valueFormat="json"),
            "JSON by Spark's from_json": texts_of,
            "bytes": rows("json", "value BINARY"),
        }

        def drop(found: Any) -> Callable[[], object]:
            chosen = found.selectExpr("value.*" if "struct" in found.dtypes[0][1] else "value")
            return lambda: chosen.write.format("noop").mode("overwrite").save()

        try:
            drop(uses["bytes"])()  # starts Java's and Python's parts
            return best(children_seconds, {name: drop(found) for name, found in uses.items()})
        finally:
            session.stop()
    finally:
        broker.stop()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each topic (default 1000000)")
    parser.add_argument("--no-spark", action="store_true", help="only the decoder")
    args = parser.parse_args(argv)
    avro, texts = encoded(make_rows(args.rows))
    print(machine())
    for title, measure in (("Decoding", decoding), ("A query of Spark", reading)):
        if measure is reading and args.no_spark:
            continue
        print(f"{title}: CPU seconds and million rows per CPU second")
        for name, seconds in measure(avro, texts).items():
            print(f"  {name:36}{seconds:8.2f}{args.rows / seconds / 1e6:8.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
