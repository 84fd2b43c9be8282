"""Writing tasks find the groups of the query's sources that reading tasks of the same run on this host have recorded."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark.sql.datasource")

from pyspark import TaskContext

from ottla.spark.source_groups import find_groups, leave_group
from ottla.spark.spool import STALE_S, Spool, spool_root

pytestmark = pytest.mark.usefixtures("own_temporary_directory")


def in_run(patch: pytest.MonkeyPatch, run: str | None) -> None:
    """Makes this process a task of a query's run; with None a task outside of a query."""
    context = SimpleNamespace(getLocalProperty={"spark.jobGroup.id": run}.get)
    patch.setattr(TaskContext, "get", lambda: context)


def test_the_groups_of_a_run_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    in_run(monkeypatch, "run-1")
    assert find_groups() == ()
    for group in ("orders-etl", None, "orders-etl", "a/../b"):
        leave_group(group)
    assert find_groups() == ("", "a/../b", "orders-etl")
    in_run(monkeypatch, "run-2")
    assert find_groups() == ()


def test_outside_of_a_query_nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_group("g")
    in_run(monkeypatch, None)
    leave_group("g")
    assert find_groups() == () and not list(spool_root().iterdir())


def test_a_note_stays_as_long_as_tasks_read_and_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    in_run(monkeypatch, "run-1")
    long_ago = time.time() - STALE_S - 1
    leave_group("g")
    (note,) = spool_root().iterdir()
    os.utime(note, (long_ago, long_ago))
    leave_group("g")
    Spool.create("checkpoint")
    assert find_groups() == ("g",)
    os.utime(note, (long_ago, long_ago))
    Spool.create("checkpoint")
    assert find_groups() == () and not Path(note).exists()
