"""The failure matrix of the relay (docs/spark.md) on a real broker, one test for each row: the fault, the state after it, the steps of the
next driver, the result. Driver processes are killed with -9; a proxy makes lost answers and refusals. Faults of Spark's own tasks are in
tests/spark_jobs.
"""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ottla.client
from ottla.client import LATEST, Client, KafkaError, TopicPartition
from ottla.spark import sending, topics
from ottla.spark.decision import BatchRange
from ottla.spark.errors import FencedDriverError, OffsetConflictError
from ottla.spark.offset_json import write_offsets
from ottla.spark.options import SinkOptions, parse_sink
from ottla.spark.spool import Spool, SpooledBatch, TaskOutput, discard
from ottla.testing.broker import Broker
from ottla.testing.handle import BrokerHandle
from ottla.wire.batch_header import stamp_producer
from tests.clients.broker_process import BrokerProcess
from tests.spark.encoded import encode, task_output, values
from tests.spark.pipeline import WAIT_S, Driver, Pipeline, transaction_state

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 24, 25, 26, 28
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes slices small: five batches of `many_batches` fill a slice."""
    monkeypatch.setattr(sending, "SLICE_BYTES_MAX", 5 * len(encode(b"slow")))


class SlowOutput(TaskOutput):
    """A task's output whose reading stops before its last batch until the test continues it, so that the driver is in the middle of
    sending. Reading is one slice ahead of sending; with `small_slices` there are several slices.
    """

    __slots__ = ("may_go_on",)

    @classmethod
    def of(cls, output: TaskOutput) -> SlowOutput:
        slow = cls(output.task, output.partitions, output.index, output.rows, output.size_bytes, None, output.data)
        object.__setattr__(slow, "may_go_on", threading.Event())
        return slow

    def batches(self) -> Iterator[SpooledBatch]:
        *first, last = TaskOutput.batches(self)
        yield from first
        assert self.may_go_on.wait(WAIT_S)
        yield last


def many_batches(pipeline: Pipeline, count: int = 11) -> TaskOutput:
    return task_output({TopicPartition(pipeline.sink, 0): [b"slow"]}, copies=count)


def eventually(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def kill_driver(pipeline: Pipeline, batch_id: int, point: str, execution: str = "", *ways: str) -> None:
    """Runs a batch in a driver process that is killed by SIGKILL at the point."""
    command = [sys.executable, "-m", "tests.spark.driver_program", json.dumps(pipeline.fields()), str(batch_id), execution, point, *ways]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr


def state(client: Client, pipeline: Pipeline) -> str:
    """Returns the state of the pipeline's transactional id; empty before its first use."""
    return transaction_state(client, f"eos/{pipeline.group}")


@contextmanager
def sending_in_the_background(driver: Driver, output: TaskOutput, batch_id: int) -> Iterator[list[Exception]]:
    """Commits a batch in a thread during the block. After the block the thread has ended, and the list has its error, if it failed."""
    failures: list[Exception] = []

    def send() -> None:
        try:
            driver.send([output], batch_id)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield failures
    finally:
        thread.join()


# Spark's tasks


@pytest.mark.usefixtures("own_temporary_directory")
def test_speculation_and_zombie_tasks_leave_output_that_no_commit_names(pipeline: Pipeline, client: Client) -> None:
    """Two attempts of a task run at the same time. The driver gets the message of one, and the other one ends at any time; no commit names
    its output.
    """
    spool = Spool.create(None)
    outputs: list[TaskOutput] = []
    zombie = spool.open("0-0")
    for partition, rows in pipeline.rows(0, "zombie").items():
        zombie.append(partition, encode(*rows), len(rows))
    with spool.open("0-1") as winner:
        for partition, rows in pipeline.rows(0, "winner").items():
            winner.append(partition, encode(*rows), len(rows))
        outputs.append(winner.finish())
    driver = pipeline.driver()
    assert driver.send(outputs, 0).is_committed_now
    discard(outputs)
    late = zombie.finish()
    assert not Path(late.path or "").exists(), "its file is gone with the batch"
    assert driver.commit(1).is_committed_now
    pipeline.check(client, [(0, "winner"), 1])


# Crashes of the driver


def test_crash_after_step_1_leaves_a_new_epoch_only_and_the_batch_reruns(pipeline: Pipeline, client: Client) -> None:
    kill_driver(pipeline, 0, f"answered:{INIT_PRODUCER_ID}")
    assert state(client, pipeline) == "Empty"
    pipeline.check(client, [])
    assert pipeline.driver().commit(0, "again").is_committed_now
    pipeline.check(client, [(0, "again")])


@pytest.mark.parametrize("point", [f"sent:{ADD_PARTITIONS}", f"answered:{ADD_PARTITIONS}", f"sent:{PRODUCE}", f"answered:{PRODUCE}"])
def test_crash_in_steps_4_to_5_leaves_an_open_transaction_that_the_next_driver_aborts(
    pipeline: Pipeline, client: Client, point: str
) -> None:
    if pipeline.may_use_v2:
        point = point.replace(f":{ADD_PARTITIONS}", f":{PRODUCE}")  # in version 2 of the protocol a write adds its partition
    kill_driver(pipeline, 0, point)
    eventually(lambda: state(client, pipeline) == "Ongoing")
    assert values(client, pipeline.sink) == []
    driver = pipeline.driver()
    assert driver.commit(0, "again").is_committed_now
    pipeline.check(client, [(0, "again")])
    assert driver.commit(1).is_committed_now
    pipeline.check(client, [(0, "again"), 1])


@pytest.mark.usefixtures("own_temporary_directory")
def test_what_a_killed_driver_left_open_is_ended_before_the_tasks_of_the_next_run(
    pipeline: Pipeline, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark.sql.datasource")
    from pyspark.sql.types import BinaryType, StructField, StructType

    from ottla.spark.sink import OttlaStreamWriter

    monkeypatch.setattr(topics, "LEFT_OPEN_S", 0.2)
    options = parse_sink({"kafka.bootstrap.servers": pipeline.bootstrap, "topic": pipeline.sink, "group": pipeline.group})
    planned = OttlaStreamWriter(options, StructType([StructField("value", BinaryType())]))
    kill_driver(pipeline, 0, f"answered:{PRODUCE}")
    assert state(client, pipeline) == "Ongoing"
    first = TopicPartition(pipeline.sink, 0)
    assert client.list_offsets({first: LATEST}, isolation="read_committed")[first].offset == 0, "readers wait at its first record"
    pickle.dumps(planned)
    pipeline.wait_for_markers(client)
    assert state(client, pipeline) == "Empty" and values(client, pipeline.sink) == []
    assert pipeline.driver().commit(0, "again").is_committed_now
    pipeline.check(client, [(0, "again")])


def test_a_transaction_that_ends_by_itself_is_left_alone(pipeline: Pipeline, client: Client) -> None:
    options = parse_sink({"kafka.bootstrap.servers": pipeline.bootstrap, "topic": pipeline.sink, "group": pipeline.group})
    topics.end_left_open(options)
    assert state(client, pipeline) == "", "nothing is asked of a coordinator that does not know the pipeline"
    driver, slow = pipeline.driver(), SlowOutput.of(many_batches(pipeline))
    with sending_in_the_background(driver, slow, 0) as failures:
        eventually(lambda: state(client, pipeline) == "Ongoing")
        looking = threading.Thread(target=topics.end_left_open, args=(options,))
        looking.start()
        slow.may_go_on.set()
        looking.join()
    assert failures == [] and driver.commit(1).is_committed_now, "no other has taken over"


@pytest.mark.parametrize("point", [f"sent:{TXN_OFFSET_COMMIT}", f"answered:{TXN_OFFSET_COMMIT}"])
def test_crash_after_step_6_or_in_7_with_end_txn_not_received_reruns_the_batch(
    pipeline: Pipeline, client: Client, point: str
) -> None:
    kill_driver(pipeline, 0, point)
    assert state(client, pipeline) == "Ongoing"
    assert pipeline.driver().commit(0, "again").is_committed_now
    pipeline.check(client, [(0, "again")])


def test_crash_in_step_7_with_end_txn_received_and_its_reply_lost_skips_the_batch(pipeline: Pipeline, client: Client) -> None:
    kill_driver(pipeline, 0, f"sent:{END_TXN}")
    eventually(lambda: state(client, pipeline) != "Ongoing")
    assert not pipeline.driver().commit(0, "again").is_committed_now
    pipeline.check(client, [0])


def test_crash_after_step_7_before_spark_s_commit_log_skips_the_batch(pipeline: Pipeline, client: Client) -> None:
    kill_driver(pipeline, 0, f"answered:{END_TXN}")
    driver = pipeline.driver()
    assert not driver.commit(0, "again").is_committed_now
    assert driver.commit(1).is_committed_now
    pipeline.check(client, [0, 1])


def test_a_crash_at_any_request_between_two_batches_never_loses_or_doubles_one(pipeline: Pipeline, client: Client) -> None:
    for batch_id, key in enumerate([INIT_PRODUCER_ID, PRODUCE, TXN_OFFSET_COMMIT, END_TXN]):
        kill_driver(pipeline, batch_id, f"sent:{key}")
        pipeline.driver().commit(batch_id)
    pipeline.check(client, [0, 1, 2, 3])


# Lost answers and lost connections, while the driver runs


@pytest.mark.parametrize(
    "api", ["InitProducerId", "OffsetFetch", "Produce", "TxnOffsetCommit", "EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn"]
)
@pytest.mark.parametrize("is_carried_out", [True, False], ids=["answer-lost", "request-lost"])
def test_the_answer_to_any_request_is_lost_and_the_same_driver_commits_once(
    pipeline: Pipeline, client: Client, broker: BrokerHandle, api: str, is_carried_out: bool
) -> None:
    driver = pipeline.driver()
    driver.commit(0)
    if is_carried_out:
        broker.lose_answer(api, times=3)
    else:
        broker.fail_next(api, None, times=3)
    driver.commit(1)
    broker._faults().reset()
    driver.commit(2)
    pipeline.check(client, [0, 1, 2])


def test_end_txn_stays_unanswered_and_the_committed_offsets_decide(pipeline: Pipeline, client: Client, broker: BrokerHandle) -> None:
    """The outcome of EndTxn is unknown; after InitProducerId the committed offsets show that the transaction was committed."""
    driver = pipeline.driver(request_timeout_s=1.0)
    driver.commit(0)
    broker.lose_answer("EndTxn", times=1000)
    assert not driver.commit(1).is_committed_now
    broker._faults().reset()
    pipeline.check(client, [0, 1])
    assert driver.commit(2).is_committed_now
    pipeline.check(client, [0, 1, 2])


# The transaction's time


def test_transaction_timeout_while_sending_fences_the_driver_and_a_restart_loses_nothing(may_use_v2: bool) -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    with Broker(settings=settings, topics=["in:2", "out:2"]) as own, ottla.client.connect(own.direct_server) as client:
        pipeline = Pipeline(own.direct_server, "in", "out", "g", may_use_v2)
        driver = pipeline.driver(transaction_timeout_ms=500)
        slow = SlowOutput.of(many_batches(pipeline))
        with sending_in_the_background(driver, slow, 0) as failures:
            eventually(lambda: state(client, pipeline) == "CompleteAbort")
            slow.may_go_on.set()
        assert isinstance(failures[0], FencedDriverError), failures
        assert "ran out of time" in str(failures[0]) and "of 500 ms" in str(failures[0])
        assert "raise kafka.transaction.timeout.ms" in str(failures[0]) and "second copy" not in str(failures[0])
        assert pipeline.driver().commit(0).is_committed_now
        pipeline.check(client, [0])
        pipeline.close()


# Several drivers


def test_zombie_driver_wakes_up_in_a_transaction_and_is_fenced_at_its_next_request(pipeline: Pipeline, client: Client) -> None:
    zombie = pipeline.driver()
    slow = SlowOutput.of(many_batches(pipeline))
    with sending_in_the_background(zombie, slow, 0) as failures:
        eventually(lambda: len(values(client, pipeline.sink, isolation="read_uncommitted")) >= 5)
        assert pipeline.driver().commit(0).is_committed_now
        slow.may_go_on.set()
    assert isinstance(failures[0], FencedDriverError), failures
    assert f"eos/{pipeline.group}" in str(failures[0])
    pipeline.check(client, [0])


def test_zombie_driver_wakes_up_before_step_1_with_its_old_epoch_and_is_refused(pipeline: Pipeline, client: Client) -> None:
    zombie, driver = pipeline.driver(), pipeline.driver()
    zombie.commit(0)
    driver.commit(1)
    with pytest.raises(FencedDriverError, match="Does a second copy"):
        zombie.commit(1, "zombie")
    assert driver.commit(2).is_committed_now
    pipeline.check(client, [0, 1, 2])


def test_zombie_driver_wakes_up_before_step_1_without_its_epoch_and_the_other_goes_on(pipeline: Pipeline, client: Client) -> None:
    """A zombie driver without an epoch reads the committed offsets before it takes over. They show that its batch is done or stale, so the
    other driver continues.
    """
    driver = pipeline.driver()
    driver.commit(0)
    driver.commit(1)
    zombie = pipeline.driver()
    assert not zombie.commit(1, "zombie").is_committed_now
    assert driver.commit(2).is_committed_now
    for stale in (0, 1):
        with pytest.raises(OffsetConflictError):
            pipeline.driver().commit(stale, "stale")
    assert driver.commit(3).is_committed_now
    pipeline.check(client, [0, 1, 2, 3])


def test_zombie_driver_wakes_up_before_step_1_with_the_next_batch_and_the_other_stops(pipeline: Pipeline, client: Client) -> None:
    driver = pipeline.driver()
    driver.commit(0)
    assert pipeline.driver().commit(1, "zombie").is_committed_now
    with pytest.raises(FencedDriverError, match="another driver took over"):
        driver.commit(1)
    pipeline.check(client, [0, (1, "zombie")])


def test_a_stale_copy_does_not_end_the_transaction_of_a_driver_that_sends_slowly(
    pipeline: Pipeline, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stale copy, whose checkpoint has a batch before the group's offsets, does not end the transaction of the active driver. A copy
    whose checkpoint has the next batch is a restart of the pipeline.
    """
    monkeypatch.setattr(topics, "LEFT_OPEN_S", 0.2)
    driver = pipeline.driver()
    driver.commit(0)

    def options_at(batch_id: int) -> SinkOptions:
        checkpoint = tmp_path / f"checkpoint-{batch_id}"
        (checkpoint / "offsets").mkdir(parents=True)
        for number in range(batch_id + 1):
            end = json.dumps(write_offsets(pipeline.group, dict(pipeline.range(number).end)))
            (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{end}")
        given = {"kafka.bootstrap.servers": pipeline.bootstrap, "topic": pipeline.sink, "group": pipeline.group}
        return parse_sink({**given, "checkpointLocation": str(checkpoint)})

    driver.commit(1)
    slow = SlowOutput.of(many_batches(pipeline))
    with sending_in_the_background(driver, slow, 2) as failures:
        eventually(lambda: state(client, pipeline) == "Ongoing")
        topics.end_left_open(options_at(0))
        assert state(client, pipeline) == "Ongoing"
        slow.may_go_on.set()
    assert failures == []
    slow = SlowOutput.of(many_batches(pipeline))
    with sending_in_the_background(driver, slow, 3) as failures:
        eventually(lambda: state(client, pipeline) == "Ongoing")
        topics.end_left_open(options_at(3))
        assert state(client, pipeline) != "Ongoing"
        slow.may_go_on.set()
    assert isinstance(failures[0], FencedDriverError)


def test_a_fenced_driver_stops_and_never_takes_over_again_by_itself(pipeline: Pipeline, client: Client, broker: BrokerHandle) -> None:
    first, second = pipeline.driver(), pipeline.driver()
    first.commit(0)
    second.commit(1)
    before = client.describe_transaction(f"eos/{pipeline.group}").producer_epoch
    with pytest.raises(FencedDriverError):
        first.commit(1)
    assert client.describe_transaction(f"eos/{pipeline.group}").producer_epoch == before


# Late duplicates


def test_delayed_duplicate_produce_of_an_older_batch_is_rejected(pipeline: Pipeline, client: Client) -> None:
    driver = pipeline.driver()
    old = driver.commit(0)
    partition = TopicPartition(pipeline.sink, 0)

    def late(data: bytearray, sequence: int) -> bytearray:
        stamp_producer(data, 0, len(data), producer_id=old.producer_id, producer_epoch=old.epoch, base_sequence=sequence)
        return data

    driver.commit(1)
    for sequence in (0, 3):
        with pytest.raises(KafkaError):
            client.produce_batches(
                {partition: [late(encode(b"late"), sequence)]}, transactional_id=f"eos/{pipeline.group}", timeout_s=1
            )
    pipeline.check(client, [0, 1])


def test_delayed_duplicate_produce_of_the_same_sequence_is_dropped(pipeline: Pipeline, client: Client, broker: BrokerHandle) -> None:
    """The answer to Produce is lost, so the same batches are sent again; the broker drops the duplicate."""
    broker.lose_answer("Produce")
    assert pipeline.driver().commit(0).tries == 1
    pipeline.check(client, [0])
    assert len(values(client, pipeline.sink, isolation="read_uncommitted")) == 6


def test_delayed_duplicate_end_txn_changes_nothing(pipeline: Pipeline, client: Client, broker: BrokerHandle) -> None:
    """The client repeats EndTxn after its answer is lost; the duplicate arrives after the transaction has ended, and changes nothing."""
    driver = pipeline.driver()
    broker.lose_answer("EndTxn", times=2)
    assert driver.commit(0).tries == 1
    assert driver.commit(1).is_committed_now
    pipeline.check(client, [0, 1])


# Leaders and coordinators that move


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Produce", "NOT_LEADER_OR_FOLLOWER"),
        ("InitProducerId", "NOT_COORDINATOR"),
        ("InitProducerId", "CONCURRENT_TRANSACTIONS"),
        ("OffsetFetch", "UNSTABLE_OFFSET_COMMIT"),
        ("AddPartitionsToTxn", "NOT_COORDINATOR"),
        ("AddOffsetsToTxn", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("TxnOffsetCommit", "NOT_COORDINATOR"),
        ("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_partition_leader_or_coordinator_moves_and_the_same_driver_sends_once(
    pipeline: Pipeline, client: Client, broker: BrokerHandle, api: str, error: str
) -> None:
    driver = pipeline.driver()
    driver.commit(0)
    broker.fail_next(api, error, times=2)
    assert driver.commit(1).tries == 1
    broker._faults().reset()
    pipeline.check(client, [0, 1])


def test_broker_is_killed_in_mid_transaction_and_the_same_driver_sends_once(tmp_path: Path, may_use_v2: bool) -> None:
    own = BrokerProcess(tmp_path, ["offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1"]).start()
    try:
        with ottla.client.connect(own.address) as setup:
            setup.create_topic("in", partitions=2)
            setup.create_topic("out", partitions=2)
        pipeline = Pipeline(own.address, "in", "out", "g", may_use_v2)
        driver = pipeline.driver()
        driver.commit(0)
        slow = SlowOutput.of(many_batches(pipeline))
        with sending_in_the_background(driver, slow, 1) as failures:
            with ottla.client.connect(own.address) as client:
                eventually(lambda: len(values(client, "out", isolation="read_uncommitted")) >= 6 + 5)
            own.kill()
            slow.may_go_on.set()
            own.start()
        assert failures == []
        with ottla.client.connect(own.address) as client:
            assert values(client, "out").count(b"slow") == 11
            assert {one.offset for one in client.committed("g").values()} == set(pipeline.range(1).end.values())
        pipeline.close()
        own.check_log()
    finally:
        own.kill()


# Checkpoints and offsets that do not fit


def test_checkpoint_deleted_and_the_query_starts_at_the_committed_offsets(pipeline: Pipeline, client: Client) -> None:
    pipeline.driver().commit(0)
    pipeline.wait_for_markers(client)
    committed = {partition: one.offset for partition, one in client.committed(pipeline.group).items()}
    restarted = pipeline.driver()
    empty = restarted.relay.commit([], batch_id=0, query_id="new", batch_range=BatchRange(None, committed))
    assert empty.is_committed_now
    following = pipeline.range(1)
    assert following.start == committed
    output = task_output(pipeline.rows(1))
    assert restarted.relay.commit([output], batch_id=1, query_id="new", batch_range=following).is_committed_now
    pipeline.check(client, [0, 1])


def test_checkpoint_deleted_after_step_6_and_the_source_does_not_wait_for_the_transaction_s_timeout(
    pipeline: Pipeline, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.driver().commit(0)
    kill_driver(pipeline, 1, f"answered:{TXN_OFFSET_COMMIT}")
    monkeypatch.setattr(topics, "STABLE_S", 0.1)
    found = topics.committed_offsets(client, pipeline.group, pipeline.range(1).end)
    assert {partition: one.offset for partition, one in found.items()} == pipeline.range(1).start
    assert state(client, pipeline) == "Ongoing"
    restarted = pipeline.driver()
    assert restarted.relay.commit([], batch_id=0, query_id="new", batch_range=BatchRange(None, pipeline.range(0).end)).is_committed_now
    assert restarted.commit(1, "again", query_id="new").is_committed_now
    pipeline.check(client, [0, (1, "again")])


@pytest.mark.parametrize("case", ["old checkpoint restored", "group reset by hand", "group shared"])
def test_old_checkpoint_restored_or_group_reset_by_hand_or_shared_stops_and_names_both(
    pipeline: Pipeline, client: Client, case: str
) -> None:
    driver = pipeline.driver()
    for batch_id in range(3):
        driver.commit(batch_id)
    batch_id = 3
    if case == "old checkpoint restored":
        batch_id = 1
    elif case == "group reset by hand":
        client.commit(pipeline.group, {TopicPartition(pipeline.source, 0): 25})
    else:
        client.commit(pipeline.group, {TopicPartition(pipeline.source, 0): 40})
    with pytest.raises(OffsetConflictError, match=rf"batch {batch_id} .*{pipeline.group}.*Committed: .*start of the batch: .*; end: "):
        pipeline.driver().commit(batch_id, "wrong")
    assert values(client, pipeline.sink) == pipeline.expected([0, 1, 2])


def test_group_offsets_expired_stops_unless_the_checkpoint_is_trusted(pipeline: Pipeline, client: Client) -> None:
    pipeline.driver().commit(0)
    client.delete_group(pipeline.group)
    with pytest.raises(OffsetConflictError, match=r"no longer has an offset for in-.*trustCheckpoint=true"):
        pipeline.driver().commit(1)
    assert values(client, pipeline.sink) == pipeline.expected([0])
    assert pipeline.driver(trusts_checkpoint=True).commit(1).is_committed_now
    pipeline.check(client, [0, 1])


def test_nondeterministic_transform_has_only_one_execution_s_output_committed(pipeline: Pipeline, client: Client) -> None:
    kill_driver(pipeline, 0, f"answered:{PRODUCE}", "first run")
    kill_driver(pipeline, 0, f"sent:{TXN_OFFSET_COMMIT}", "second run")
    pipeline.driver().commit(0, "third run")
    assert not pipeline.driver().commit(0, "fourth run").is_committed_now
    pipeline.check(client, [(0, "third run")])
