"""Deletes groups of any kind and prints the outcome."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.counted import counted
from ottla.base.errors import ApiError
from ottla.cli.command import Refused
from ottla.cli.output import Output
from ottla.client.blocking import group_admin
from ottla.client.blocking.cluster import Cluster


def delete_groups(cluster: Cluster, names: list[str]) -> dict[str, ApiError]:
    """Deletes each group that can be deleted; returns the refusals of the others."""
    failures: dict[str, ApiError] = {}
    for name in names:
        try:
            group_admin.delete_group(cluster, name)
        except ApiError as error:
            failures[name] = error
    return failures


def report_deletion(output: Output, names: list[str], failures: Mapping[str, ApiError]) -> int:
    """Prints what was deleted and what was refused; returns the exit code."""
    deleted = [name for name in names if name not in failures]
    if output.is_structured:
        output.show_object({"deleted": deleted, "errors": {name: error.code.name for name, error in failures.items()}})
        if failures:
            first = next(iter(failures.values()))
            raise Refused(f"not deleted: {len(failures)} of {counted(len(names), 'group')}", first.code.name)
        return 0
    if deleted:
        output.done(f"Deleted {', '.join(deleted)}.", {})
    for name, error in failures.items():
        output.error(f"{name}: {error.message or 'refused'} ({error.code.name})")
    return 1 if failures else 0
