"""Names and labels in Prometheus' text format 0.0.4. Clients may choose the values of labels."""

from __future__ import annotations

CLIENT_INFO = "ottla_client_info"
"""The metric that describes each client that pushes its metrics (KIP-714)."""
PUSHED_PREFIX = "kafka_client_"
"""Prefix of the metrics that clients push."""
CLIENT_LABELS = ("client_id", "client_instance_id")
"""Labels that the broker adds to pushed metrics."""


def labels_text(**labels: object) -> str:
    """Returns `{topic="a",partition="0"}` for the labels."""
    return "{" + ",".join(f'{name}="{escape(str(value))}"' for name, value in labels.items()) + "}"


def escape(value: str) -> str:
    """Escapes a label's value, because clients may choose any names."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value
