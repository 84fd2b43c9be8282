"""Orders in Avro, whose schemas a registry has, become bills in Avro. Orders that do not fit go to a topic of dead letters.

    ottla topic create orders && ottla topic create bills && ottla topic create orders-dead
    SCHEMA_REGISTRY=http://localhost:8081 ottla pipeline run examples/avro_orders.py

An order has at least the fields `item` (a string) and `amount` (an int). The schema of the bills is stored as a version of `bills-value`.
"""

from __future__ import annotations

import os
from typing import Any

from ottla.spark import Pipeline

REGISTRY = os.environ.get("SCHEMA_REGISTRY", "http://localhost:8081")
BILL = """
{"type": "record", "name": "Bill", "fields": [
    {"name": "item", "type": "string"},
    {"name": "total", "type": ["null", "long"]}
]}
"""


def bills(orders: Any) -> Any:
    """The item of each order in capitals, and twice its amount."""
    return orders.selectExpr("key", "struct(upper(value.item) AS item, 2L * value.amount AS total) AS value")


pipeline = Pipeline(
    group="avro-orders",
    source="orders",
    sink="bills",
    transform=bills,
    source_options={"valueFormat": "avro", "registry": REGISTRY, "errors": "orders-dead"},
    sink_options={"valueFormat": "avro", "schema": BILL, "registry": REGISTRY},
)
