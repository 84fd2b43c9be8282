"""The names that the broker's metrics can have."""

from __future__ import annotations

from ottla.server.metric_families import FAMILIES, SUMMARY, alias


def exported_names(dialects: tuple[str, ...] = ()) -> frozenset[str]:
    """Every name that a sample can have, so that an expression can be checked."""
    names = set()
    for family in FAMILIES.values():
        names.add(family.name)
        names.update(name for dialect in dialects if (name := alias(family, dialect)))
        if family.kind == SUMMARY:
            names.update((f"{family.name}_sum", f"{family.name}_count"))
    return frozenset(names)
