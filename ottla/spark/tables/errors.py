"""The error of a missing table, which callers inside of this package handle."""

from __future__ import annotations

from ottla.spark.errors import PipelineError


class MissingTableError(PipelineError):
    """There is no table at the location."""
