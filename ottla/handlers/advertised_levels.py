"""The versions that a broker of an earlier Kafka release offers, for `ottla.advertise.level` and `ottla start --as-version`.

A level is the name of a Kafka release. At a level, this broker offers only the APIs and versions that the release had, as far as it serves
them itself. `CHANGES` has the highest version of each API in 3.0, then the changes in each later release. The data are ApiVersions
answers of Kafka brokers. A test compares them with kafka-python's table of broker versions. Kafka's brokers offer the APIs of client
telemetry (71, 72) only with a plugin, so earlier levels do not have them.

Features (KIP-584): Kafka has `transaction.version` and `group.version` since 4.0, `share.version` since 4.1, `streams.version` since 4.2.
Kafka 4.1 had the APIs of share groups, but the feature was at level 0, so requests of share groups were refused. Since 4.2 it is at level
1, and since 4.4, which has dead-letter topics, at level 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.features import FEATURES, SHARE_VERSION, STREAMS_VERSION, Feature
from ottla.handlers.context import Broker
from ottla.handlers.served_apis import TABLE, ServedApi

NEWEST = "4.4"
FEATURES_SINCE = {"group.version": "4.0", "transaction.version": "4.0", SHARE_VERSION: "4.1", STREAMS_VERSION: "4.2"}
SHARE_GROUPS_SINCE = "4.2"
DEAD_LETTERS_SINCE = NEWEST
DEAD_LETTERS_LEVEL = 2

CHANGES: dict[str, dict[int, int]] = {
    "3.0": {
        0: 9, 1: 12, 2: 7, 3: 11, 8: 8, 9: 8, 10: 4, 11: 7, 12: 4, 13: 4, 14: 5, 15: 5, 16: 4, 17: 1, 18: 3, 19: 7, 20: 6, 21: 2,
        22: 4, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 3, 38: 2, 39: 2,
        40: 2, 41: 2, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 47: 0, 48: 1, 49: 1, 50: 0, 51: 0, 57: 0, 60: 0, 61: 0, 65: 0, 66: 0,
    },
    "3.1": {1: 13, 3: 12},
    "3.2": {11: 9, 13: 5, 35: 3},
    "3.3": {29: 3, 30: 3, 31: 3, 35: 4, 38: 3, 41: 3, 57: 1},
    "3.4": {},
    "3.5": {1: 15, 2: 8},
    "3.6": {24: 4},
    "3.7": {0: 10, 1: 16, 8: 9, 9: 9, 60: 1, 68: 0},
    "3.8": {0: 11, 10: 5, 16: 5, 22: 5, 24: 5, 25: 4, 26: 4, 28: 4, 66: 1, 69: 0},
    "3.9": {1: 17, 2: 9, 10: 6, 18: 4},
    "4.0": {0: 12, 2: 10, 3: 13, 15: 6, 26: 5, 28: 5, 55: 2, 57: 2, 60: 2, 64: 0, 68: 1, 69: 1, 74: 0, 75: 0, 80: 0, 81: 0},
    "4.1": {
        0: 13, 1: 18, 45: 1, 66: 2, 74: 1, 76: 1, 77: 1, 78: 1, 79: 1, 83: 0, 84: 0, 85: 0, 86: 0, 87: 0, 90: 0, 91: 0, 92: 0,
    },
    "4.2": {2: 11, 8: 10, 9: 10, 27: 2, 78: 2, 79: 2, 80: 1, 85: 1, 87: 1, 88: 0, 89: 0, 90: 1},
    "4.3": {35: 5},
    NEWEST: {18: 5, 22: 6, 28: 6, 42: 3, 71: 0, 72: 0, 88: 1, 89: 1, 93: 0},
}  # fmt: skip


@cache
def highest_versions(level: str) -> Mapping[int, int]:
    """Returns the highest version of each API at a level."""
    highest: dict[int, int] = {}
    for name, changed in CHANGES.items():
        highest.update(changed)
        if name == level:
            return highest
    raise AssertionError(f"there is no level {level}")


@cache
def served(level: str | None) -> Mapping[int, ServedApi]:
    """Returns the APIs that this broker serves at a level (None: the newest). APIs that are not advertised are the same at all levels.
    Levels below the newest exclude our extensions."""
    if level is None:
        return TABLE
    highest = highest_versions(level)
    found = {}
    for key, api in TABLE.items():
        if not api.is_advertised or (api.is_extension and level == NEWEST):
            found[key] = api
        elif highest.get(key, -1) >= api.min_version:
            found[key] = api._replace(max_version=min(api.max_version, highest[key]))
    return found


@cache
def features(level: str | None) -> Mapping[str, Feature]:
    """Returns the features of a broker at a level, with their ranges and finalised levels."""
    if level is None:
        return FEATURES
    found = {name: feature for name, feature in FEATURES.items() if _is_since(level, FEATURES_SINCE[name])}
    if SHARE_VERSION in found and not _is_since(level, DEAD_LETTERS_SINCE):
        found[SHARE_VERSION] = found[SHARE_VERSION]._replace(highest=1, level=int(_is_since(level, SHARE_GROUPS_SINCE)))
    return found


def has_dead_letter_topics(level: str | None) -> bool:
    """Whether share groups may have dead-letter topics at the level."""
    known = features(level).get(SHARE_VERSION)
    return known is not None and known.level >= DEAD_LETTERS_LEVEL


def _is_since(level: str, release: str) -> bool:
    names = list(CHANGES)
    return names.index(level) >= names.index(release)


def require_share_groups(level: str | None) -> None:
    """Raises `ApiError` UNSUPPORTED_VERSION if the feature `share.version` is at 0 at the level."""
    _require(SHARE_VERSION, level)


def require_streams_groups(broker: Broker) -> None:
    """Raises `ApiError` UNSUPPORTED_VERSION if the feature `streams.version` is at 0, or if the configuration excludes streams groups."""
    _require(STREAMS_VERSION, broker.config.ottla_advertise_level)
    if "streams" not in broker.config.group_coordinator_rebalance_protocols:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols excludes streams groups")


def _require(name: str, level: str | None) -> None:
    known = features(level).get(name)
    if known is None or known.level == 0:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the feature {name} is not enabled")
