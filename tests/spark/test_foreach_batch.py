"""`foreachBatch` without Spark: the error for a refusal of the cluster names the option to change, as in the sink."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")

from ottla.client import ErrorCode, KafkaError
from ottla.spark import sink
from ottla.spark.decision import BatchRange
from ottla.spark.errors import BrokerError, OutputError
from ottla.spark.foreach_batch import exactly_once

pytestmark = pytest.mark.usefixtures("own_temporary_directory")


def test_a_refusal_names_the_option_that_helps(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BrokerError("batch 0 was not committed") from KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "out-0")

    monkeypatch.setattr(sink, "commit_batch", refuse)
    monkeypatch.setattr(sink, "find_batch_range", lambda *_, **__: BatchRange({}, {}))
    options = {"kafka.bootstrap.servers": "localhost:1", "group": "g", "topic": "out"}
    commit = exactly_once(lambda rows, batch_id: [], options, checkpoint=str(tmp_path))
    with pytest.raises(OutputError, match=r"batch 0 was not committed; make values smaller, or raise the topic's max\.message\.bytes"):
        commit(None, 0)
