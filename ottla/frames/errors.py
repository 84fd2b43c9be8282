"""The errors of frames. Each message is one line that names the argument, topic or package, and says what to do."""

from __future__ import annotations

from ottla.base.errors import OttlaError


class FrameError(OttlaError):
    """The base class: a topic cannot be read as a DataFrame, a query failed, or a DataFrame cannot be written."""


class FrameUsageError(FrameError, ValueError):
    """An argument is wrong, unknown, or contradicts another one. Nothing was read or written."""


class UnfitValueError(FrameError):
    """A value does not fit its schema. `offset` is the offset of its record."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class MissingPackageError(FrameError, ImportError):
    """A package is not installed; the message has the command that installs it."""
