"""Converts a client's last push to the series that the broker shows in `/metrics`.

`org.apache.kafka.producer.record.send.total` becomes `kafka_client_producer_record_send_total`: the prefix prevents clients from using a
name of the broker's own metrics. A counter's name ends in `_total`. The attributes of a metric become labels of the same name.

The size of a report is limited, because clients choose names and labels. Points that would exceed the limit are dropped and counted.
"""

from __future__ import annotations

import re
from sys import getsizeof

from ottla.base.metric_text import CLIENT_LABELS, PUSHED_PREFIX, escape
from ottla.telemetry.otlp import Attributes, Kind, Point

KAFKA_PREFIX = "org.apache.kafka."
COUNTER, GAUGE = "counter", "gauge"
FAMILY_BYTES = 600
"""Memory of one metric besides its name, in bytes: its table of series, and its slot in the report."""
SERIES_BYTES = 140
"""Memory of one series besides its labels, in bytes: a slot in the table, and the value."""

_not_of_a_name = re.compile(r"[^a-zA-Z0-9_]").sub


class Family:
    """The series of one metric: values by the text of their labels, which is empty or begins with a comma."""

    __slots__ = ("kind", "series")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.series: dict[str, float] = {}


class Report:
    """The series of one push. `before` is the client's former report: a value since the last push is added to the former value."""

    __slots__ = ("_before", "_bytes_max", "bytes", "dropped", "families")

    def __init__(self, bytes_max: int, before: Report | None) -> None:
        self._bytes_max = bytes_max
        self._before = before
        self.families: dict[str, Family] = {}
        self.bytes = 0
        self.dropped = 0
        """The number of points dropped because of the bound."""

    @property
    def series_count(self) -> int:
        return sum(len(family.series) for family in self.families.values())

    def add(self, point: Point) -> None:
        kind = GAUGE if point.kind is Kind.GAUGE else COUNTER
        name = family_name(point.name, kind)
        labels = labels_of(point.attributes)
        family = self.families.get(name)
        is_known = family is not None and labels in family.series
        added = 0 if is_known else getsizeof(labels) + SERIES_BYTES + (getsizeof(name) + FAMILY_BYTES if family is None else 0)
        if self.bytes + added > self._bytes_max:
            self.dropped += 1
            return
        self.bytes += added
        if family is None:
            family = self.families[name] = Family(kind)
        value = point.value
        if point.kind is Kind.DELTA:
            value += self._former_value(name, labels)
        family.series[labels] = value

    def end(self) -> None:
        """Releases the former report when all points were added."""
        self._before = None

    def _former_value(self, name: str, labels: str) -> float:
        family = self._before.families.get(name) if self._before is not None else None
        return family.series.get(labels, 0) if family is not None else 0


def family_name(metric: str, kind: str) -> str:
    name = PUSHED_PREFIX + _not_of_a_name("_", metric.removeprefix(KAFKA_PREFIX))
    return f"{name}_total" if kind == COUNTER and not name.endswith("_total") else name


def labels_of(attributes: Attributes) -> str:
    """Returns `,topic="a",node_id="1"` for the attributes. Of attributes with the same name, the last one is used.
    An attribute with the name of a label that the broker adds is dropped."""
    found = {_label_name(name): value for name, value in attributes}
    return "".join([f',{name}="{escape(value)}"' for name, value in sorted(found.items()) if name not in CLIENT_LABELS])


def _label_name(attribute: str) -> str:
    """Returns a valid label. Prometheus reserves names that begin with two underscores, and a name must not begin with a digit."""
    name = _not_of_a_name("_", attribute)
    return f"label_{name}" if name[0].isdigit() or name.startswith("__") else name
