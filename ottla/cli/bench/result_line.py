"""Prints a result line of Kafka's performance tools."""

from __future__ import annotations

import sys

from ottla.cli.output import write
from ottla.cli.render.ottla import Output


def write_line(output: Output, text: str) -> None:
    """Prints a line at once, for people; with -o json the figures follow at the end as one object."""
    if not output.is_structured:
        write(text + "\n")
        sys.stdout.flush()
