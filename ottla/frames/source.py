"""The cluster of a frame, and the settings of the client that reads or writes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client import DEFAULT_BOOTSTRAP, Client, addresses_in, connect
from ottla.frames.errors import FrameUsageError


class Source(NamedTuple):
    """A cluster, its client's settings, and which records are visible."""

    bootstrap: str
    config: Mapping[str, str]
    isolation: str = "read_committed"

    def connect(self) -> Client:
        """Returns a client. Raises `FrameUsageError` for wrong settings, `ClientError` if no broker can be used."""
        try:
            return connect(self.bootstrap, self.config)
        except ValueError as error:
            raise FrameUsageError(f"bootstrap, config: {error}") from None


def source_of(bootstrap: str | None, config: Mapping[str, str] | None, isolation: str = "read_committed") -> Source:
    """Returns the source that the arguments name. Without `bootstrap` it is in OTTLA_BOOTSTRAP or KAFKA_BOOTSTRAP_SERVERS, else
    `DEFAULT_BOOTSTRAP`."""
    return Source(bootstrap or addresses_in(os.environ) or DEFAULT_BOOTSTRAP, dict(config or {}), isolation)
