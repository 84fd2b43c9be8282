"""Staged output on a real broker is attached once, whatever fails, and is made again if it was dropped (the rows of docs/spark.md). Tasks
are simulated by the writers that Spark's tasks use; drivers are relays, or processes that are killed with -9.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.client
from ottla.client import Client, KafkaError, TopicPartition
from ottla.spark import staging
from ottla.spark.errors import FencedDriverError, OptionError, SpoolError
from ottla.spark.options import ClusterConnection
from ottla.spark.staging import StagedWriter, TaskAttempt
from ottla.spark.verify import verify
from ottla.testing.broker import Broker
from ottla.testing.handle import BrokerHandle
from tests.clients.broker_process import BrokerProcess
from tests.spark.encoded import encode, values
from tests.spark.kept_connections import close_clients
from tests.spark.pipeline import Pipeline, wait_for_topic
from tests.spark.relay_by_hand import batch_of
from tests.spark.test_failure_matrix import eventually, kill_driver, state

ATTACH = 20001
END_TXN, TXN_OFFSET_COMMIT = 26, 28


@pytest.fixture(autouse=True)
def fresh_clients() -> Iterator[None]:
    yield
    close_clients()


def fill_source(client: Client, pipeline: Pipeline, batches: int) -> None:
    """Writes the records that these batches claim to have read."""
    for number, some in enumerate((10, 1)):
        records = batch_of(*(b"%d" % row for row in range(some * batches)), is_transactional=False)
        client.produce_batches({TopicPartition(pipeline.source, number): [records]})


def test_staged_output_becomes_visible_with_the_offsets_and_the_log_proves_it(pipeline: Pipeline, client: Client) -> None:
    fill_source(client, pipeline, 3)
    driver = pipeline.driver()
    outputs = pipeline.staged(0)
    assert values(client, pipeline.sink, isolation="read_uncommitted") == [], "staged bytes are in no log"
    assert driver.send(outputs, 0).rows == 6
    assert driver.commit(1).is_committed_now, "the next batch may go another way"
    assert driver.send(pipeline.staged(2), 2).is_committed_now
    pipeline.check(client, [0, 1, 2])
    proof = verify(client, pipeline.group, [pipeline.sink])
    assert (proof.faults, proof.batches, proof.rows) == ((), 3, 18)


def test_losers_and_zombies_among_the_tasks_leave_chunks_that_no_manifest_names(pipeline: Pipeline, client: Client) -> None:
    token, connection = secrets.token_bytes(16), ClusterConnection(bootstrap=pipeline.bootstrap)
    partition = TopicPartition(pipeline.sink, 0)
    rows = pipeline.rows(0)

    def write(attempt: int, execution: str, target: TopicPartition) -> StagedWriter:
        writer = StagedWriter(TaskAttempt(0, attempt), token, connection, is_required=True)
        for row in pipeline.rows(0, execution)[target]:
            writer.append(target, encode(row), 1)
        return writer

    with write(1, "loser", partition) as loser, write(2, "zombie", partition) as zombie:
        loser.finish()
        winners = []
        for number, target in enumerate(rows):
            with write(3 + number, "", target) as winner:
                winners.append(winner.finish())
        driver = pipeline.driver()
        assert driver.send(winners, 0).is_committed_now
        zombie.finish()
    assert driver.send(pipeline.staged(1), 1).is_committed_now
    pipeline.check(client, [0, 1])


def test_a_broker_that_is_killed_between_upload_and_attach_costs_a_rerun_and_no_record(tmp_path: Path, may_use_v2: bool) -> None:
    own = BrokerProcess(tmp_path / "broker", ["offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1"]).start()
    try:
        with ottla.client.connect(own.address) as client:
            for topic in ("in", "out"):
                client.create_topic(topic, partitions=2)
                wait_for_topic(client, topic)
        pipeline = Pipeline(own.address, "in", "out", "g", may_use_v2)
        outputs = pipeline.staged(0, "lost")
        own.crash()
        with pytest.raises(SpoolError, match=r"UNKNOWN_STAGE: .* a restart of the query runs it again"):
            pipeline.driver().send(outputs, 0)
        close_clients()
        with ottla.client.connect(own.address) as client:
            pipeline.check(client, [])
            assert pipeline.driver().send(pipeline.staged(0), 0).is_committed_now
            pipeline.check(client, [0])
        pipeline.close()
    finally:
        own.stop()


@pytest.mark.parametrize("key", [ATTACH, TXN_OFFSET_COMMIT])
def test_a_driver_that_is_killed_after_the_attach_leaves_an_open_transaction_that_the_next_aborts(
    pipeline: Pipeline, client: Client, key: int
) -> None:
    kill_driver(pipeline, 0, f"answered:{key}", "", "staged")
    assert state(client, pipeline) == "Ongoing"
    assert len(values(client, pipeline.sink, isolation="read_uncommitted")) >= 3
    assert values(client, pipeline.sink) == []
    assert pipeline.driver().send(pipeline.staged(0, "again"), 0).is_committed_now
    pipeline.check(client, [(0, "again")])


def test_a_driver_that_is_killed_before_the_answer_to_its_commit_is_followed_by_one_that_skips(pipeline: Pipeline, client: Client) -> None:
    kill_driver(pipeline, 0, f"sent:{END_TXN}", "", "staged")
    eventually(lambda: state(client, pipeline) != "Ongoing")
    assert not pipeline.driver().send(pipeline.staged(0, "again"), 0).is_committed_now
    pipeline.check(client, [0])


@pytest.mark.parametrize("is_carried_out", [True, False], ids=["answer-lost", "request-lost"])
@pytest.mark.parametrize("api", ["StageRecords", "AttachRecords"])
def test_a_lost_answer_is_made_up_for_by_the_same_task_or_driver(
    pipeline: Pipeline, client: Client, broker: BrokerHandle, api: str, is_carried_out: bool
) -> None:
    driver = pipeline.driver()
    driver.commit(0)
    if is_carried_out:
        broker.lose_answer(api, times=2)
    else:
        broker.fail_next(api, None, times=2)
    assert driver.send(pipeline.staged(1), 1).is_committed_now
    broker._faults().reset()
    assert driver.send(pipeline.staged(2), 2).is_committed_now
    pipeline.check(client, [0, 1, 2])
    assert len(values(client, pipeline.sink, isolation="read_uncommitted")) == 18, "nothing was appended twice and aborted"


def test_a_driver_that_has_to_begin_again_attaches_the_same_chunks_in_its_next_epoch(
    pipeline: Pipeline, client: Client, broker: BrokerHandle
) -> None:
    """A driver that has to start again attaches the same chunks in its next epoch, because an aborted transaction does not drop staged
    chunks. The connection breaks more often than a request is repeated.
    """
    driver = pipeline.driver()
    outputs = pipeline.staged(0)
    broker.fail_next("TxnOffsetCommit", None, times=4)
    assert driver.send(outputs, 0).tries > 1
    pipeline.check(client, [0])
    with pytest.raises(SpoolError, match="UNKNOWN_STAGE"):
        driver.send(outputs, 1)
    assert driver.commit(1).is_committed_now
    pipeline.check(client, [0, 1])


def test_a_leader_that_refuses_for_a_moment_gets_the_same_attach_again(pipeline: Pipeline, client: Client, broker: BrokerHandle) -> None:
    broker.fail_next("StageRecords", "NOT_LEADER_OR_FOLLOWER", times=2)
    outputs = pipeline.staged(0)
    broker.fail_next("AttachRecords", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert pipeline.driver().send(outputs, 0).tries == 1
    pipeline.check(client, [0])


def test_a_zombie_driver_cannot_attach(pipeline: Pipeline, client: Client) -> None:
    zombie, driver = pipeline.driver(), pipeline.driver()
    zombie.send(pipeline.staged(0), 0)
    driver.send(pipeline.staged(1), 1)
    with pytest.raises(FencedDriverError):
        zombie.send(pipeline.staged(1, "zombie"), 1)
    late = client.transaction(f"eos/{pipeline.group}", may_use_v2=pipeline.may_use_v2)
    late.initialize()
    late.begin()
    late.add_partitions([TopicPartition(pipeline.sink, number) for number in range(2)])
    driver = pipeline.driver()
    driver.send(pipeline.staged(2), 2)
    outputs = pipeline.staged(3, "late")
    for output in outputs:
        assert output.staged is not None
        with pytest.raises(KafkaError):
            late.attach(output.staged.token, {part.partition: part.chunks for part in output.staged.parts}, timeout_s=1)
    pipeline.check(client, [0, 1, 2])


def test_what_finds_no_room_on_the_broker_travels_in_the_message(may_use_v2: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "CHUNK_BATCHES_MAX", 1)
    settings = {"ottla.stage.bytes.max": str(64 * 1024)}  # each chunk uses at least 16 KiB of the quota
    with Broker(settings=settings, topics=["in:2", "out:2"]) as own, ottla.client.connect(own.direct_server) as client:
        pipeline = Pipeline(own.direct_server, "in", "out", "g", may_use_v2)
        fill_source(client, pipeline, 1)
        token, connection = secrets.token_bytes(16), ClusterConnection(bootstrap=own.direct_server)
        outputs = []
        for number, (partition, rows) in enumerate(pipeline.rows(0).items()):
            with StagedWriter(TaskAttempt(number, 1 + number), token, connection, is_required=True) as writer:
                for row in rows:
                    writer.append(partition, encode(row), 1)
                outputs.append(writer.finish())
        assert outputs[0].message_bytes == 0 and 0 < outputs[1].message_bytes < outputs[1].size_bytes
        assert pipeline.driver().send(outputs, 0).rows == 6
        pipeline.check(client, [0])
        assert verify(client, "g", ["out"]).faults == ()
        pipeline.close()
        close_clients()


def test_a_broker_without_the_extension_gets_everything_by_way_of_the_driver(may_use_v2: bool) -> None:
    with Broker(settings={"ottla.advertise.level": "4.0"}, topics=["in:2", "out:2"]) as own:
        pipeline = Pipeline(own.direct_server, "in", "out", "g", may_use_v2)
        with pytest.raises(OptionError, match="taskOutput=staged: these brokers stage no records"):
            pipeline.staged(0)
        connection = ClusterConnection(bootstrap=own.direct_server)
        with StagedWriter(TaskAttempt(0, 1), bytes(16), connection) as writer:
            for partition, rows in pipeline.rows(0).items():
                for row in rows:
                    writer.append(partition, encode(row), 1)
            output = writer.finish()
        assert output.staged is None
        assert pipeline.driver().send([output], 0).is_committed_now
        with ottla.client.connect(own.direct_server) as client:
            pipeline.check(client, [0])
        pipeline.close()
        close_clients()
