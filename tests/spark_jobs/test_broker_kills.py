"""A pipeline on three brokers, each of which is killed with -9 in turn: the output is exactly right, and the query continues by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.spark.verify import verify
from ottla.testing.cluster import Cluster
from tests.clients.broker_process import eventually
from tests.clients.copied import SECONDS, Feed, committed, is_in_sync, make_topics
from tests.spark.pipeline import wait_for_markers
from tests.spark_jobs.queries import committed_records

GROUP = "copiers"
SOURCE, SINK = "source", "sink"
TRIGGER = "1 second"
"""Between the starts of two batches. Batches without a pause take a whole core for as long as a broker needs to come back."""


@pytest.mark.timeout(600)
def test_a_pipeline_survives_the_kill_of_each_broker(spark: Any, need_zookeeper: None, tmp_path: Path) -> None:
    """A pipeline survives the kill of each broker while a batch runs. Each broker leads partitions of source and sink, and each partition
    of `__consumer_offsets` and `__transaction_state` loses its leader once.
    """
    with Cluster(3, directory=tmp_path / "brokers") as brokers:
        address = brokers.direct_server
        make_topics(address, SOURCE, SINK, replicas=3)
        feed = Feed(address, SOURCE)
        query = copy(spark, address, str(tmp_path / "checkpoint"))
        try:
            for broker in brokers.brokers:
                advances(address, query)
                eventually(lambda: is_running(query) and query.status["isTriggerActive"], SECONDS, 0.02)
                broker.kill()
                advances(address, query)
                broker.start()
                eventually(lambda: is_in_sync(address), SECONDS, 0.2)
            count = feed.stop()
            eventually(lambda: is_running(query) and committed(address, GROUP) == count, SECONDS, 0.2)
        finally:
            query.stop()
        with ottla.client.connect(address) as client:
            wait_for_markers(client, f"eos/{GROUP}")
            values = sorted(int(message.value()) for message in committed_records(address, SINK))
            assert values == list(range(count)), "no record is missing, none is there twice"
            proof = verify(client, GROUP, [SINK])
            assert proof.is_proved, proof.faults


def copy(spark: Any, address: str, checkpoint: str) -> Any:
    """Starts a query that copies all new records, in small batches."""
    given = {"kafka.bootstrap.servers": address, "group": GROUP}
    source = {"subscribe": SOURCE, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20000"}
    rows = spark.readStream.format("ottla").options(**given, **source).load().select("key", "value")
    writer = rows.writeStream.format("ottla").options(**given, topic=SINK, checkpointLocation=checkpoint)
    return writer.trigger(processingTime=TRIGGER).start()


def advances(address: str, query: Any) -> None:
    """Waits until the query has committed more records."""
    known = committed(address, GROUP)
    eventually(lambda: is_running(query) and committed(address, GROUP) > max(known, 0), SECONDS, 0.1)


def is_running(query: Any) -> bool:
    """Returns True while the query runs; raises the query's error if it has stopped."""
    assert query.isActive, query.exception()
    return True
