"""The relay on a broker: batches of streams and of jobs, metadata, limits, and the state that it keeps between batches."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.client import Client, ErrorCode, OutcomeUnknownError, TopicPartition, Transaction, connect
from ottla.client.errors import refused
from ottla.spark import relay, sending
from ottla.spark.commit_metadata import CommitMetadata, parse_metadata
from ottla.spark.decision import BatchRange
from ottla.spark.errors import BrokerError, OffsetConflictError, OptionError, OutputError, SpoolError
from ottla.spark.output_digest import OutputDigest
from ottla.spark.relay import Relay, Target, commit_batch, write_batch
from ottla.spark.spool import Spool
from ottla.testing.broker import Broker
from tests.spark.encoded import encode, task_output, values
from tests.spark.pipeline import WAIT_S, Pipeline


def test_each_batch_is_committed_once_with_its_offsets(pipeline: Pipeline, client: Client) -> None:
    driver = pipeline.driver()
    first = driver.commit(0)
    assert (first.is_committed_now, first.rows, first.tries) == (True, 6, 1)
    assert not driver.commit(0, "again").is_committed_now
    assert driver.commit(1).is_committed_now
    pipeline.check(client, [0, 1])


def test_the_metadata_beside_the_offsets_names_the_batch_and_its_output(pipeline: Pipeline, client: Client) -> None:
    outcome = pipeline.driver().commit(0)
    digest = OutputDigest()
    for partition, rows in pipeline.rows(0).items():
        digest.add(partition, encode(*rows))
    found = {partition.partition: parse_metadata(one.metadata) for partition, one in client.committed(pipeline.group).items()}
    assert found == {number: CommitMetadata("q", 0, 0, outcome.rows, digest.text()) for number in range(2)}
    stored = OutputDigest()
    for number in range(2):
        for fetched in client.read(TopicPartition(pipeline.sink, number), 0, 1):
            for header, data in fetched.batches:
                assert (header.producer_id, header.producer_epoch) == (outcome.producer_id, outcome.epoch)
                stored.add(fetched.partition, data)
    assert stored.text() == digest.text()


def test_the_metadata_counts_the_runs_that_have_committed_a_batch(pipeline: Pipeline, client: Client) -> None:
    """A batch without a task has no run. It belongs to the last one, or to none before the first known run."""
    runs = {"": 0, "first": 0, "second": 1, "third": 2}
    for batch_id, (run, last) in enumerate([("", ""), *2 * [("first", "first")], ("second", "second"), ("", "second"), ("third", "third")]):
        relay = pipeline.driver().relay
        for _ in range(2):  # a batch that is sent again was committed by the same run
            relay.commit([task_output({})], batch_id=batch_id, query_id="q", batch_range=pipeline.range(batch_id), run=run)
        found = [parse_metadata(one.metadata) for one in client.committed(pipeline.group).values()]
        assert len(found) == 2 and {one and (one.run, one.restarts) for one in found} == {(last, runs[last])}


def test_a_batch_without_output_moves_the_offsets(pipeline: Pipeline, client: Client) -> None:
    outcome = pipeline.driver().relay.commit([task_output({})], batch_id=0, query_id="q", batch_range=pipeline.range(0))
    assert (outcome.is_committed_now, outcome.rows) == (True, 0)
    pipeline.wait_for_markers(client)
    assert {partition: one.offset for partition, one in client.committed(pipeline.group).items()} == pipeline.range(0).end


def test_batches_that_move_no_offset_are_decided_by_metadata(pipeline: Pipeline, client: Client) -> None:
    """Batches that move no offset are decided by the metadata. Windows that a watermark closes are in such batches without input."""
    pipeline.driver().commit(0)
    end = pipeline.range(0).end
    for batch_id in (1, 2):
        output = task_output({TopicPartition(pipeline.sink, 0): [b"window %d" % batch_id]})
        for expected in (True, False, False):
            outcome = pipeline.driver().relay.commit([output], batch_id=batch_id, query_id="q", batch_range=BatchRange(end, end))
            assert outcome.is_committed_now is expected
    assert [value for value in values(client, pipeline.sink) if b"window" in value] == [b"window 1", b"window 2"]


def test_every_batch_has_an_epoch_of_its_own(pipeline: Pipeline) -> None:
    driver = pipeline.driver()
    used = [(outcome.producer_id, outcome.epoch) for outcome in (driver.commit(0), driver.commit(1), driver.commit(2))]
    assert len(set(used)) == 3 and used == sorted(used)


def test_a_held_identity_is_named_only_for_the_next_batch_of_the_same_query(pipeline: Pipeline) -> None:
    """A kept producer identity is sent only for the next batch of the same query. Between two runs of a query in one process another driver
    may have been active.
    """
    driver, other = pipeline.driver(), pipeline.driver()
    driver.commit(0)
    other.commit(1)
    assert driver.commit(2).is_committed_now
    other.commit(3)
    assert driver.commit(4, query_id="another").is_committed_now


def test_output_beyond_the_bound_is_refused_before_anything_is_sent(pipeline: Pipeline, client: Client) -> None:
    driver = pipeline.driver(output_bytes_max=100)
    with pytest.raises(OutputError, match=r"^maxOutputBytes=100: .*; raise the option.* but not one that is planned in the checkpoint"):
        driver.commit(0)
    pipeline.check(client, [])
    assert driver.relay._client is None
    assert pipeline.driver(output_bytes_max=100_000).commit(0).is_committed_now, "what the message advises helps"


@pytest.mark.parametrize(
    ("size", "asked", "expected_ms"),
    [(1_000, 60_000, 60_000), (64 << 20, 5_000, 128_000), (64 << 20, 300_000, 300_000), (4 << 30, 5_000, relay.TIMEOUT_MS_MAX)],
)
def test_the_time_of_a_transaction_grows_with_the_batch(
    pipeline: Pipeline, client: Client, size: int, asked: int, expected_ms: int
) -> None:
    """The transaction timeout grows with the batch. With a fixed timeout a batch that takes longer to send would be aborted at every
    restart.
    """
    driver = pipeline.driver(transaction_timeout_ms=asked, output_bytes_max=8 << 30)
    outputs = [replace(output, size_bytes=size // 2) for output in driver.outputs(0)]
    assert driver.send(outputs, 0).is_committed_now
    assert client.describe_transaction(f"eos/{pipeline.group}").timeout_ms == expected_ms


def test_a_broker_that_allows_less_time_gets_what_it_allows(may_use_v2: bool) -> None:
    settings = {"transaction.max.timeout.ms": "60000"}
    with Broker(settings=settings, topics=["in:2", "out:2"]) as own, connect(own.direct_server) as client:
        pipeline = Pipeline(own.direct_server, "in", "out", "g", may_use_v2)
        for batch_id, asked, expected_ms in ((0, 5_000, 32_000), (1, 40_000, 40_000)):
            driver = pipeline.driver(transaction_timeout_ms=asked)
            driver.send([replace(output, size_bytes=16 << 20) for output in driver.outputs(batch_id)], batch_id)
            assert client.describe_transaction("eos/g").timeout_ms == expected_ms
        with pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT"):
            pipeline.driver(transaction_timeout_ms=61_000).commit(2)
        pipeline.close()


@pytest.mark.usefixtures("own_temporary_directory")
def test_output_that_is_damaged_aborts_the_transaction_at_once(
    pipeline: Pipeline, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SLICE_BYTES_MAX", 5 * len(encode(b"0")))
    spool = Spool.create(None)
    with spool.open("0-0") as writer:
        for number in range(12):
            writer.append(TopicPartition(pipeline.sink, 0), encode(b"%d" % number), 1)
        output = writer.finish()
    file = Path(output.path or "")
    file.write_bytes(file.read_bytes()[:-1])
    driver = pipeline.driver()
    with pytest.raises(SpoolError):
        driver.relay.commit([output], batch_id=0, query_id="q", batch_range=pipeline.range(0))
    assert len(values(client, pipeline.sink, isolation="read_uncommitted")) == 10
    assert client.describe_transaction(f"eos/{pipeline.group}").state in ("Empty", "CompleteAbort")
    assert driver.commit(0).is_committed_now
    pipeline.check(client, [0])


def test_a_group_with_live_members_is_refused(pipeline: Pipeline, client: Client) -> None:
    with client.consumer(pipeline.group, topics=[pipeline.source]) as consumer:
        while client.describe_group(pipeline.group).state != "Stable":
            consumer.poll(0.1)
        driver = pipeline.driver()
        for _ in range(2):  # a query that is started again in the same process uses the same relay
            with pytest.raises(OffsetConflictError, match=rf"^group: '{pipeline.group}' has live members \(1, on "):
                driver.commit(0)


def test_a_refusal_for_good_names_the_batch(pipeline: Pipeline, client: Client) -> None:
    output = task_output({TopicPartition(pipeline.sink, 0): [bytes(3_000_000)]})
    with pytest.raises(BrokerError, match=rf"batch 0 of group '{pipeline.group}' was not committed: MESSAGE_TOO_LARGE"):
        pipeline.driver().relay.commit([output], batch_id=0, query_id="q", batch_range=pipeline.range(0))
    pipeline.check(client, [])


def test_a_cluster_that_is_away_for_too_long_is_an_error() -> None:
    target = Target("127.0.0.1:1", group="g", retry_s=0.2)
    with pytest.raises(BrokerError, match=r"batch 0 of group 'g' was not committed: cannot reach 127\.0\.0\.1:1"):
        commit_batch(target, [], batch_id=0, query_id="q", batch_range=BatchRange({}, {}))


def test_a_batch_job_is_one_transaction(pipeline: Pipeline, client: Client, may_use_v2: bool) -> None:
    outputs = [task_output(pipeline.rows(number)) for number in range(2)]
    outcome = write_batch(pipeline.target(), outputs, may_use_v2=may_use_v2)
    assert (outcome.is_committed_now, outcome.rows) == (True, 12)
    deadline = time.monotonic() + WAIT_S
    while values(client, pipeline.sink) != pipeline.expected([0, 1]):
        assert time.monotonic() < deadline, "the output does not become visible"
    assert client.committed(pipeline.group) == {}
    assert write_batch(Target("127.0.0.1:1"), [task_output({})]).rows == 0


def test_a_batch_job_s_commit_of_unknown_outcome_is_repeated_and_never_begun_again(
    pipeline: Pipeline, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the outcome of a batch job's commit is unknown, EndTxn is repeated. No offsets show whether the commit was executed, so a second
    transaction might duplicate the output.
    """
    commit = Transaction.commit
    answers = [OutcomeUnknownError("no answer"), refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "moving"), None]

    def answer(transaction: Transaction) -> None:
        if transaction.is_open:
            commit(transaction)
        following = answers.pop(0)
        if following is not None:
            raise following

    monkeypatch.setattr(Transaction, "commit", answer)
    job = Relay(pipeline.target(), transactional_id=f"batch/{pipeline.group}", may_use_v2=pipeline.may_use_v2, pause=lambda _: None)
    outcome = job.write([task_output(pipeline.rows(0))])
    job.close()
    assert (answers, outcome.tries) == ([], 1)
    assert len(values(client, pipeline.sink, isolation="read_uncommitted")) == 6


def test_settings_that_make_no_sense_name_the_options() -> None:
    target = Target("127.0.0.1:1", (("security.protocol", "TLS"),), "g")
    with pytest.raises(OptionError, match=r"kafka\.security\.protocol.*TLS"):
        commit_batch(target, [], batch_id=0, query_id="q", batch_range=BatchRange({}, {}))


def test_the_relay_of_a_process_is_kept_and_a_forked_child_makes_its_own(pipeline: Pipeline, client: Client) -> None:
    def commit(batch_id: int) -> bool:
        output = task_output(pipeline.rows(batch_id))
        batch_range = pipeline.range(batch_id)
        return commit_batch(
            pipeline.target(), [output], batch_id=batch_id, query_id="q", batch_range=batch_range, may_use_v2=pipeline.may_use_v2
        ).is_committed_now

    assert commit(0)
    (kept,) = [one for key, one in relay._relays.items() if key[1] == pipeline.target()]
    connection = kept._client
    child = multiprocessing.get_context("fork").Process(target=commit, args=(1,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert commit(2)
    assert kept._client is connection
    pipeline.check(client, [0, 1, 2])


def test_a_process_keeps_a_bounded_number_of_relays(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        commit_batch(pipeline.target(retry_s=float(5 + number)), [], batch_id=0, query_id="q", batch_range=BatchRange({}, {}))
    monkeypatch.setattr(relay, "RELAYS_MAX", 2)
    for number in range(4):
        target = pipeline.target(retry_s=float(10 + number))
        commit_batch(target, [], batch_id=0, query_id="q", batch_range=BatchRange({}, {}))
    assert len(relay._relays) == 2


def test_a_relay_in_use_is_not_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "RELAYS_MAX", 1)
    with relay._relay(Target("127.0.0.1:1"), may_use_v2=True) as used:
        used._client = connection = cast(Client, SimpleNamespace(close=lambda: None))
        idle = relay._relay(Target("127.0.0.1:2"), may_use_v2=True)
        last = relay._relay(Target("127.0.0.1:3"), may_use_v2=True)
        assert used._client is connection and idle not in relay._relays.values()
    newest = relay._relay(Target("127.0.0.1:4"), may_use_v2=True)
    assert used._client is None and last is not newest
    assert list(relay._relays.values()) == [newest]
