"""Quotas that are looked up by entity and never walked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.base.cluster_metadata import QuotaEntity


class Unwalked(dict[QuotaEntity, Mapping[str, float]]):
    """Of thousands of quotas a change looks at those that it changes."""

    def __iter__(self) -> Iterator[QuotaEntity]:
        raise AssertionError("all quotas are walked")

    items = keys = values = __iter__  # type: ignore[assignment]
