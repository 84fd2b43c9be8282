"""Reads all commits of a Delta table's log, from its remaining JSON files.

deltalake shows the information of a commit, but not its files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ottla.spark.tables.position import KEY, read_commit
from ottla.spark.tables.storage import TableFiles
from ottla.spark.tables.table_log import LoggedCommit, TableHistory

LOG_DIRECTORY = "_delta_log"
_COMMIT = re.compile(rf"{LOG_DIRECTORY}/(\d{{20}})\.json")


def read_history(files: TableFiles) -> TableHistory:
    """Returns the commits that add or remove rows, or have a pipeline's position."""
    versions = {int(found[1]): found[0] for path in files.below(LOG_DIRECTORY) if (found := _COMMIT.fullmatch(path))}
    commits = []
    for version in sorted(versions):
        with files.open(versions[version]) as file:
            logged = _logged(version, (json.loads(line) for line in file.read().splitlines() if line.strip()))
        if logged.commit is not None or logged.added or logged.removed:
            commits.append(logged)
    return TableHistory(commits, 0 in versions)


def _logged(version: int, actions: Iterable[dict[str, Any]]) -> LoggedCommit:
    commit, timestamp_ms, added, removed = None, 0, 0, 0
    for action in actions:
        if (information := action.get("commitInfo")) is not None:
            commit, timestamp_ms = read_commit(information.get(KEY)), int(information.get("timestamp", 0))
        elif (add := action.get("add")) is not None and add["dataChange"]:
            added += _rows(add)
        elif (remove := action.get("remove")) is not None and remove["dataChange"]:
            removed += _rows(remove)
    return LoggedCommit(version, timestamp_ms, commit, added, removed)


def _rows(action: dict[str, Any]) -> int:
    """Returns the rows of a file; 1 if the log does not have their number, so that the change is noticed."""
    return int(json.loads(action.get("stats") or "{}").get("numRecords", 1))
