"""Prints the lines of `kafka-features` exactly, and knows the dependencies between features."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cli.command import Refused, UsageError
from ottla.cli.output import write

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
    """The name of a level of metadata.version."""
    position = level - _FIRST_METADATA
    return _METADATA_NAMES[position] if 0 <= position < len(_METADATA_NAMES) else None


def show_features(rows: Sequence[Mapping[str, Any]]) -> None:
    """The lines of `kafka-features describe`."""
    for row in rows:
        low, high, level = (_level(row["feature"], row[key]) for key in ("supported_min", "supported_max", "finalized"))
        write(
            f"Feature: {row['feature']:<41} SupportedMinVersion: {low:<16} SupportedMaxVersion: {high:<16} "
            f"FinalizedVersionLevel: {level:<16} Epoch: {row['epoch']}\n"
        )


def _level(feature: str, level: int) -> str:
    return (metadata_name(level) if feature == METADATA else None) or str(level)


def show_changes(verb: str, rows: Sequence[Mapping[str, Any]], *, is_dry_run: bool) -> None:
    """The lines of upgrade, downgrade or disable, which is `verb`."""
    done = verb + ("d" if verb.endswith("e") else "ed") if verb != "downgrade" else "downgraded"
    for row in rows:
        to = "" if verb == "disable" else f" to {row['level']}"
        if row["error"]:
            write(f"{'Can' if is_dry_run else 'Could'} not {verb} {row['feature']}{to}. {row['message'] or row['error']}\n")
        else:
            write(f"{row['feature']} {'can be' if is_dry_run else 'was'} {done}{to}.\n")
    failed = sum(1 for row in rows if row["error"])
    if failed:
        sys.stderr.write(f"{failed} out of {len(rows)} operation(s) failed.\n")


def show_levels(levels: Mapping[str, int], release: str | None) -> None:
    for name, level in levels.items():
        note = f" ({release or metadata_name(level)})" if name == METADATA else ""
        write(f"{name}={level}{note}\n")


def dependency(name: str, level: int) -> tuple[str, int] | None:
    """The level of another feature that a level of a feature needs. Raises `Refused` for an unknown level."""
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


def show_dependency(name: str, level: int, needed: tuple[str, int] | None) -> None:
    if needed is None:
        write(f"{named_level(name, level)} has no dependencies.\n")
    else:
        write(f"{named_level(name, level)} requires:\n    {named_level(*needed)}\n")
