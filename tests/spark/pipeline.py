"""A pipeline without Spark: drivers commit numbered batches as Spark's driver would, and `check` compares the sink with the expected
output.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.client import Client, KafkaError, TopicPartition
from ottla.spark.decision import BatchRange
from ottla.spark.options import ClusterConnection
from ottla.spark.relay import CommitOutcome, Relay, Target
from ottla.spark.spool import TaskOutput
from ottla.spark.staging import StagedWriter, TaskAttempt
from tests.spark.encoded import encode, task_output, values

WAIT_S = 120.0
ROWS = 3
"""Of each batch in each partition of the sink."""


@dataclass
class Pipeline:
    """Topics, group and address. Batch n moves the first partition of the source by 10 and the second by 1."""

    bootstrap: str
    source: str
    sink: str
    group: str
    may_use_v2: bool = True
    drivers: list[Driver] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """Returns the data that another process needs to run drivers of this pipeline."""
        names = ("bootstrap", "source", "sink", "group", "may_use_v2")
        return {name: getattr(self, name) for name in names}

    def target(self, **options: Any) -> Target:
        return Target(self.bootstrap, group=self.group, **{"request_timeout_s": 10.0, "retry_s": 60.0, **options})

    def driver(self, **options: Any) -> Driver:
        """Returns a new driver without any state."""
        driver = Driver(self, self.target(**options))
        self.drivers.append(driver)
        return driver

    def close(self) -> None:
        """Closes the connections of all drivers."""
        for driver in self.drivers:
            driver.relay.close()

    def range(self, batch_id: int) -> BatchRange:
        first, second = TopicPartition(self.source, 0), TopicPartition(self.source, 1)
        return BatchRange({first: 10 * batch_id, second: batch_id}, {first: 10 * batch_id + 10, second: batch_id + 1})

    def rows(self, batch_id: int, execution: str = "") -> dict[TopicPartition, list[bytes]]:
        """Returns the output of a batch; `execution` distinguishes its executions."""
        return {
            TopicPartition(self.sink, number): [b"%d%s-%d-%d" % (batch_id, execution.encode(), number, row) for row in range(ROWS)]
            for number in range(2)
        }

    def staged(self, batch_id: int, execution: str = "") -> list[TaskOutput]:
        """Returns the output of an execution of a batch that its tasks have staged, one task for each partition."""
        token, connection = secrets.token_bytes(16), ClusterConnection(bootstrap=self.bootstrap)
        outputs = []
        for number, (partition, rows) in enumerate(self.rows(batch_id, execution).items()):
            with StagedWriter(TaskAttempt(number, 1 + number), token, connection, is_required=True) as writer:
                for row in rows:
                    writer.append(partition, encode(row), 1)
                outputs.append(writer.finish())
        assert all(output.message_bytes == 0 for output in outputs)
        return outputs

    def expected(self, batches: Iterable[int | tuple[int, str]]) -> list[bytes]:
        """Returns the contents of the sink after these batches, in this order."""
        outputs = [self.rows(batch) if isinstance(batch, int) else self.rows(*batch) for batch in batches]
        return [value for number in range(2) for rows in outputs for value in rows[TopicPartition(self.sink, number)]]

    def wait_for_markers(self, client: Client) -> None:
        """Waits until no transaction of the pipeline is being completed."""
        wait_for_markers(client, f"eos/{self.group}")

    def check(self, client: Client, batches: Iterable[int | tuple[int, str]]) -> None:
        """Checks that the sink has exactly the output of these batches, and that the group's offsets are the end of the last batch."""
        wanted = list(batches)
        self.wait_for_markers(client)
        assert values(client, self.sink) == self.expected(wanted)
        last = max([batch if isinstance(batch, int) else batch[0] for batch in wanted], default=None)
        found = {partition: one.offset for partition, one in client.committed(self.group).items()}
        assert found == ({} if last is None else self.range(last).end)


def wait_for_topic(client: Client, topic: str) -> None:
    """Waits for the leaders of a new topic: a broker may answer CreateTopics before it has them."""
    deadline = time.monotonic() + WAIT_S
    while topic not in client.topics() or any(one.leader < 0 for one in client.describe_topic(topic).partitions):
        assert time.monotonic() < deadline, "the topic has no leader in time"
        time.sleep(0.01)


def wait_for_markers(client: Client, transactional_id: str) -> None:
    """Waits until no transaction is being completed: a broker may answer EndTxn before readers can see the end."""
    deadline = time.monotonic() + WAIT_S
    while transaction_state(client, transactional_id).startswith("Prepare"):
        assert time.monotonic() < deadline, "the transaction is not completed in time"
        time.sleep(0.01)


def transaction_state(client: Client, transactional_id: str) -> str:
    """Returns the state of a transactional id; empty before its first use."""
    try:
        return client.describe_transaction(transactional_id).state
    except KafkaError as error:
        assert error.name == "TRANSACTIONAL_ID_NOT_FOUND"
        return ""


class Driver:
    """One process's relay."""

    def __init__(self, pipeline: Pipeline, target: Target) -> None:
        self.pipeline = pipeline
        self.relay = Relay(target, may_use_v2=pipeline.may_use_v2)

    def commit(self, batch_id: int, execution: str = "", *, query_id: str = "q") -> CommitOutcome:
        """Runs a batch: encodes its rows in one task for each partition, and commits them."""
        return self.send(self.outputs(batch_id, execution), batch_id, query_id=query_id)

    def outputs(self, batch_id: int, execution: str = "") -> list[TaskOutput]:
        """Returns the output of one execution of a batch, one task for each partition."""
        rows = self.pipeline.rows(batch_id, execution)
        return [task_output({partition: some}, task=f"{partition.partition}-0") for partition, some in rows.items()]

    def send(self, outputs: Sequence[TaskOutput], batch_id: int, *, query_id: str = "q") -> CommitOutcome:
        return self.relay.commit(outputs, batch_id=batch_id, query_id=query_id, batch_range=self.pipeline.range(batch_id))
