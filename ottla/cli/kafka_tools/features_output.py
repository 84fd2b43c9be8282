"""Prints the lines of `kafka-features`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ottla.cli.cluster.features import METADATA, ChangeRow, DependencyRow, FeatureRow, LevelRow, metadata_name
from ottla.cli.output import write
from ottla.cli.render.kafka import Printers


def show_features(rows: Sequence[FeatureRow]) -> None:
    for row in rows:
        low, high, level = (_level(row.feature, number) for number in (row.supported_min, row.supported_max, row.finalized))
        write(
            f"Feature: {row.feature:<41} SupportedMinVersion: {low:<16} SupportedMaxVersion: {high:<16} "
            f"FinalizedVersionLevel: {level:<16} Epoch: {row.epoch}\n"
        )


def _level(feature: str, level: int) -> str:
    return (metadata_name(level) if feature == METADATA else None) or str(level)


def show_changes(rows: Sequence[ChangeRow]) -> None:
    done = {"upgrade": "upgraded", "downgrade": "downgraded", "disable": "disabled"}
    for row in rows:
        to = "" if row.verb == "disable" else f" to {row.level}"
        if row.error:
            write(f"{'Can' if row.is_dry_run else 'Could'} not {row.verb} {row.feature}{to}. {row.message or row.error}\n")
        else:
            write(f"{row.feature} {'can be' if row.is_dry_run else 'was'} {done[row.verb]}{to}.\n")
    failed = sum(1 for row in rows if row.error)
    if failed:
        sys.stderr.write(f"{failed} out of {len(rows)} operation(s) failed.\n")


def show_levels(rows: Sequence[LevelRow]) -> None:
    for row in rows:
        write(f"{row.feature}={row.level}" + (f" ({row.release})\n" if row.feature == METADATA else "\n"))


def show_dependencies(rows: Sequence[DependencyRow]) -> None:
    for row in rows:
        write(f"{row.named} requires:\n    {row.needs}\n" if row.needs else f"{row.named} has no dependencies.\n")


PRINTERS: Printers = {
    FeatureRow: show_features, ChangeRow: show_changes, LevelRow: show_levels, DependencyRow: show_dependencies,
}  # fmt: skip
