"""Runs readers of the source without Spark: plans ranges, and reads them as tasks do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from ottla.spark.offset_json import read_offsets
from ottla.spark.options import parse_source
from ottla.testing.handle import BrokerHandle

Fill = Callable[..., None]
"""What the fixture `fill` gives."""


def options_of(broker: BrokerHandle, **given: str) -> Any:
    return parse_source({"kafka.bootstrap.servers": broker.direct_server, **given})


def values(reader: Any, planned: list[Any]) -> list[tuple[str, int, int, bytes]]:
    """Returns the values that tasks read of some ranges, with copies of the reader."""
    copy = pickle.loads(pickle.dumps(reader))
    found = []
    for one in planned:
        for batch in copy.read(pickle.loads(pickle.dumps(one))):
            columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "value"))
            found += list(zip(*columns, strict=True))
    return found


def stream(broker: BrokerHandle, **given: str) -> Any:
    from ottla.spark.source import OttlaStreamReader

    return OttlaStreamReader(options_of(broker, **given))


def offsets(stored: Any) -> dict[tuple[str, int], int]:
    found = read_offsets(stored)
    assert found is not None
    return {(partition.topic, partition.partition): offset for partition, offset in found.offsets.items()}


def batch_values(broker: BrokerHandle, **given: str) -> list[bytes]:
    """Returns the values that a batch read gives."""
    from ottla.spark.source import OttlaBatchReader

    reader = OttlaBatchReader(options_of(broker, **given), None)
    return [row[3] for row in values(reader, reader.partitions())]
