"""A dictionary of quotas that fails a test when code iterates over all quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.base.cluster_metadata import QuotaEntity


class Unwalked(dict[QuotaEntity, Mapping[str, float]]):
    """Quotas for tests that a change looks only at the quotas that it changes, not at all of thousands."""

    def __iter__(self) -> Iterator[QuotaEntity]:
        raise AssertionError("all quotas are walked")

    items = keys = values = __iter__  # type: ignore[assignment]
