"""The features of the cluster (KIP-584): the supported levels, and the current level. Clients read them in ApiVersions. With
`transaction.version` 2 producers use transactions v2 (KIP-890). With `group.version` 1 the broker serves the consumer protocol (KIP-848),
with `share.version` 1 share groups (KIP-932), with `share.version` 2 also their dead-letter topics (KIP-1191), and with `streams.version` 1
streams groups (KIP-1071). A broker advertises the levels that its configuration allows (`handlers/advertised_levels.py`).
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """The lowest and highest supported level of a feature, and its current level."""

    name: str
    lowest: int
    highest: int
    level: int


SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("group.version", 0, 1, 1),
        Feature(SHARE_VERSION, 0, 2, 2),
        Feature(STREAMS_VERSION, 0, 1, 1),
        Feature("transaction.version", 0, 2, 2),
    )
}

FEATURES_EPOCH = 1
"""The epoch of the current levels. They never change while a broker runs."""
