"""Faults of Spark's tasks, with executors as processes, do not change the output, because tasks do not append to topics."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests.spark_jobs.cluster import Cluster
from tests.spark_jobs.cluster_program import FAULTY
from tests.spark_jobs.copied import Copy

ANSWER_S = 170.0


def spools_in(temporary_directory: Path) -> set[Path]:
    """Returns the output files of tasks below a temporary directory."""
    return set(temporary_directory.glob(f"ottla-spool-{os.getuid()}/*"))


@pytest.mark.parametrize("fault", [pytest.param("fails", marks=pytest.mark.night), "loses its worker", "loses its executor"])
def test_task_retry_lost_executor_and_stage_retry_leave_one_winner_a_partition(
    cluster: Cluster, broker: Broker, tmp_path: Path, fault: str
) -> None:
    before = spools_in(cluster.directory)
    copy = Copy(broker.direct_server, tmp_path, rows=600, batches=2)
    cluster.submit(copy.job(fault=fault))
    answer = cluster.answer(ANSWER_S)
    assert answer is not None and answer["is_done"], f"{answer}\n{cluster.log_tail()}"
    markers = sorted(one.name for one in copy.markers.iterdir())
    assert [name for name in markers if name.startswith(fault)] == [f"{fault}-{number}" for number in FAULTY[fault]]
    attempts = Counter(name.rpartition("-")[0] for name in markers if name.startswith("ran-"))
    again = {int(name.rpartition("-")[2]) for name, count in attempts.items() if count > 1}
    assert again >= set(FAULTY[fault]), "each of these tasks was run twice in one batch"
    copy.check()
    left = [path for path in spools_in(cluster.directory) - before if path.is_dir()]
    assert left == [], "files of failed attempts are removed with their batch"
