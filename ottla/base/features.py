"""The features of the cluster (KIP-584): what this version can do, and which level is in force.

Clients read them in ApiVersions: with `transaction.version` 2 producers use transactions v2 (KIP-890), `group.version` 1 means
that the consumer protocol of KIP-848 is served, `share.version` 1 that share groups are (KIP-932). A broker advertises the levels that its
configuration allows.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature's lowest and highest level this version can serve, and the level in force."""

    name: str
    lowest: int
    highest: int
    level: int


SHARE_VERSION = "share.version"

FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (Feature("group.version", 0, 1, 1), Feature(SHARE_VERSION, 0, 1, 1), Feature("transaction.version", 0, 2, 2))
}

FEATURES_EPOCH = 1
"""Counts changes of the levels in force; they do not change while a broker runs."""
