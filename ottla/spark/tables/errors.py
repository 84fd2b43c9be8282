"""Errors that are handled inside of this package; those for users are in `ottla/spark/errors.py`."""

from __future__ import annotations

from ottla.spark.errors import PipelineError


class MissingTableError(PipelineError):
    """There is no table at the location."""


class RacedError(Exception):
    """Another commit came in between, and nothing of this one is in the table. The table's new state has to be looked at."""
