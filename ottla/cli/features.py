"""`ottla features`: the feature levels of a cluster."""

from __future__ import annotations

from ottla.cli.cluster import FEATURE_COMMANDS

COMMANDS = FEATURE_COMMANDS
