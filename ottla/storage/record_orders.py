"""What the process of `server/record_worker.py` does with each order."""

from __future__ import annotations

from ottla.storage.inspection import InspectBatch, Inspected, inspect_batch

Order = InspectBatch
Answer = Inspected


def perform(order: Order) -> Answer:
    return inspect_batch(order)
