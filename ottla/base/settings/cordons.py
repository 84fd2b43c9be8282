"""Cordoned log directories (KIP-1066): they keep their replicas, and new replicas are not placed in them.

`cordoned.log.dirs` lists paths of `log.dirs`, or is `*` for all of them. A broker with all directories cordoned gets no new replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

CORDONED = "cordoned.log.dirs"
ALL = "*"


def why_not_cordonable(entries: Sequence[str], directories: Collection[str]) -> str:
    """Returns, in one sentence, why these entries are invalid for a broker with these log directories; empty if they are valid."""
    if ALL in entries:
        return "" if len(entries) == 1 else f"When {CORDONED} is set to {ALL}, it must not contain other values"
    missing = [entry for entry in entries if entry not in directories]
    if missing:
        return f"All entries in {CORDONED} must be present in log.dirs or log.dir. Missing entries : {','.join(missing)}"
    return ""


def cordoned(entries: Collection[str], directories: Collection[str]) -> frozenset[str]:
    """Returns the directories that the entries of `cordoned.log.dirs` cordon."""
    return frozenset(directories if ALL in entries else {*entries}.intersection(directories))
