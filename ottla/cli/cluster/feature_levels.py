"""Tables of feature levels: their names, the levels in each version of Kafka, and the dependencies between features."""

from __future__ import annotations

from ottla.cli.command import Refused, UsageError

METADATA = "metadata.version"
_FIRST_METADATA = 7
_METADATA_NAMES = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3"),
    *("4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0"),
)
_HIGHEST = {
    "kraft.version": 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
_NEEDS = {("eligible.leader.replicas.version", 1): (METADATA, 23)}


def metadata_name(level: int) -> str | None:
    """Returns the name of a level of metadata.version, such as 4.0-IV3; None for an unknown level."""
    position = level - _FIRST_METADATA
    return _METADATA_NAMES[position] if 0 <= position < len(_METADATA_NAMES) else None


def dependency(name: str, level: int) -> tuple[str, int] | None:
    """Returns the feature and level that a level of a feature needs, or None.

    Raises `UsageError` for an unknown feature and `Refused` for an unknown level.
    """
    if name == METADATA:
        if metadata_name(level) is None:
            raise Refused(f"Unknown metadata.version {level}", "INVALID_UPDATE_VERSION")
    elif name not in _HIGHEST:
        raise UsageError(f"Unknown feature: {name}")
    elif level > _HIGHEST[name]:
        raise Refused(f"No feature:{name} with feature level {level}", "INVALID_UPDATE_VERSION")
    return _NEEDS.get((name, level))


def named_level(name: str, level: int) -> str:
    return f"{name}={level}" + (f" ({metadata_name(level)})" if name == METADATA else "")


_NAMES = (
    "metadata.version",
    "kraft.version",
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
)
_LEVELS = {
    "3.3": (7, 0, 0, 0, 0, 0, 0),
    "3.4": (8, 0, 0, 0, 0, 0, 0),
    "3.5": (11, 0, 0, 0, 0, 0, 0),
    "3.6": (14, 0, 0, 0, 0, 0, 0),
    "3.7": (19, 0, 0, 0, 0, 0, 0),
    "3.8": (20, 0, 0, 0, 0, 0, 0),
    "3.9": (21, 1, 0, 0, 0, 0, 0),
    "4.0": (25, 1, 2, 1, 0, 0, 0),
    "4.1": (27, 1, 2, 1, 1, 0, 0),
    "4.2": (29, 1, 2, 1, 1, 1, 1),
    "4.3": (30, 1, 2, 1, 1, 1, 1),
}
LEVELS: dict[str, dict[str, int]] = {release: dict(zip(_NAMES, levels, strict=True)) for release, levels in _LEVELS.items()}
"""The level of each feature, by release of Kafka."""
RELEASES = {**LEVELS, **{str(metadata_name(levels[METADATA])): levels for levels in LEVELS.values()}}
"""`LEVELS` with a second key for each release: the name of its metadata.version, such as 4.0-IV3."""
