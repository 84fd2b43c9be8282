"""The errors of the codec."""

from __future__ import annotations

from ottla.base.errors import OttlaError


class DamagedBatchError(OttlaError):
    """A fetched batch cannot be decoded; the message has topic, partition and offset."""


class RowsError(OttlaError):
    """Rows cannot be written as records: a column of an unsupported type, a null topic, a partition that does not exist, or a record that
    is too large (`RecordTooLargeError`)."""


class RecordTooLargeError(RowsError):
    """A row makes a record above the maximum size."""
