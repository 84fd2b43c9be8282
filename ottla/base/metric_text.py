"""Labels in Prometheus' text format 0.0.4, whose values clients may choose."""

from __future__ import annotations


def labels_text(**labels: object) -> str:
    """Returns `{topic="a",partition="0"}` for the labels."""
    return "{" + ",".join(f'{name}="{escape(str(value))}"' for name, value in labels.items()) + "}"


def escape(value: str) -> str:
    """Escapes a label's value, because clients may choose any names."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value
