"""The line that Kafka's console consumers end with: how many messages were processed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.cli.render.ottla import Output


@contextmanager
def processed_count(output: Output, count: Callable[[], int]) -> Iterator[None]:
    """Flushes the records and notes their number when reading ends, by itself or by Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(f"Processed a total of {count()} messages")
        raise
    finally:
        sys.stdout.buffer.flush()
    output.note(f"Processed a total of {count()} messages")
