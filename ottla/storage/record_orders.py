"""Performs the orders of the worker process of `server/record_worker.py`."""

from __future__ import annotations

from ottla.storage.inspection import InspectBatch, Inspected, inspect_batch
from ottla.storage.time_search import BatchTimes, FindTime, find_time

Order = InspectBatch | FindTime
Answer = Inspected | BatchTimes


def perform(order: Order) -> Answer:
    return inspect_batch(order) if isinstance(order, InspectBatch) else find_time(order)
