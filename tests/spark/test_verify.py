"""`verify` accepts a pipeline that ran exactly once, and finds each fault that is planted in its commits or its sink."""

from __future__ import annotations

import threading

import pytest

from ottla.client import LATEST, Client, Committed, TopicPartition, UnknownTopicError
from ottla.spark.verify import Verification, verify
from ottla.testing.broker import Broker

from .relay_by_hand import HandMadePipeline, batch_of


@pytest.fixture
def pipeline(client: Client, broker: Broker) -> HandMadePipeline:
    return HandMadePipeline(client, broker)


def check(pipeline: HandMadePipeline, **options: object) -> Verification:
    return verify(pipeline.client, pipeline.group, [pipeline.sink], **options)  # type: ignore[arg-type]


def kinds(found: Verification) -> list[str]:
    return [fault.kind for fault in found.faults]


def test_a_run_without_faults_is_proved(pipeline: HandMadePipeline) -> None:
    for _ in range(3):
        pipeline.run()
    found = check(pipeline)
    assert found.is_proved and not found.faults and not found.notes
    assert (found.batches, found.rows) == (3, 30)
    assert found.first_batch == (pipeline.query_id, 0) and found.last_batch == (pipeline.query_id, 2)
    assert [tuple(one) for one in found.source] == [(pipeline.source.topic, 0, 0, 30, 3, 30, 70)]
    assert [(one.partition, one.rows, one.other_rows) for one in found.sink] == [(0, 15, 0), (1, 15, 0)]


def test_an_aborted_batch_and_one_without_output_are_no_faults(pipeline: HandMadePipeline) -> None:
    pipeline.run()
    transaction = pipeline.client.transaction(f"eos/{pipeline.group}")
    transaction.initialize()
    transaction.begin()
    transaction.produce({TopicPartition(pipeline.sink, 0): [batch_of(b"never seen")]})
    transaction.commit_offsets(pipeline.group, {pipeline.source: Committed(50)})
    transaction.abort()
    pipeline.run(end=pipeline.position)
    pipeline.run()
    found = check(pipeline)
    assert found.is_proved
    assert (found.batches, found.rows) == (3, 20)


def test_a_lost_checkpoint_gives_a_new_query_that_goes_on(pipeline: HandMadePipeline) -> None:
    pipeline.run()
    first, pipeline.query_id, pipeline.batch_id = pipeline.query_id, "another", 0
    pipeline.run()
    found = check(pipeline)
    assert found.is_proved
    assert [note.partition(":")[0] for note in found.notes] == [f"query another took over after batch 0 of query {first}"]
    assert "If the earlier query kept state (windows, joins, totals), the output from that state was never written" in found.notes[0]


def test_a_history_without_its_beginning_says_where_the_proof_begins(pipeline: HandMadePipeline) -> None:
    pipeline.batch_id, pipeline.position = 7, 40
    pipeline.run()
    found = check(pipeline)
    assert found.is_proved and found.first_batch == (pipeline.query_id, 7)
    assert found.notes[0].startswith(f"the proof begins with batch 7 of query {pipeline.query_id}")


FAULTS = {
    "a range that is committed twice": ([{}, {}, {"start": 15}], "overlap", "batch 2 of query {query} committed offsets 15 to 19 twice"),
    "a gap between two ranges": ([{}, {"start": 12}], "gap", "offsets 10 to 11 are in no batch"),
    "a batch number that comes again": ([{}, {"batch_id": 0}], "repeated", "batch 0 of query {query} is committed twice"),
    "a batch number that is left out": ([{}, {"batch_id": 2}], "skipped", "batch 2 of query {query} is committed after batch 0"),
    "an output that is missing in one partition": ([{}, {"partitions": 1}], "missing", "wrote 10 rows, and the sink has 5 of them"),
    "an output that is doubled within its transaction": ([{}, {"written": 2}], "surplus", "wrote 10 rows, and the sink has 20"),
    "an output without offsets, as of a sink that writes its batch again": ([{}, {"is_committed": False}, {}], "uncommitted", "10 rows of"),
}
"""The runs of a pipeline, and the kind and message of the fault in them."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(pipeline: HandMadePipeline, name: str) -> None:
    runs, kind, message = FAULTS[name]
    for run in runs:
        pipeline.run(**run)  # type: ignore[arg-type]
    found = check(pipeline)
    assert kinds(found) == [kind]
    assert message.format(query=pipeline.query_id) in found.faults[0].message


def test_other_rows_than_were_written(pipeline: HandMadePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.run()
    metadata, _ = pipeline._output(10, 20, 1)
    _, others = pipeline._output(30, 40, 1)
    monkeypatch.setattr(pipeline, "_output", lambda *_: (metadata, others))
    pipeline.run()
    assert kinds(check(pipeline)) == ["altered"]


def test_a_foreign_writer_is_a_fault_unless_the_sink_is_shared(pipeline: HandMadePipeline) -> None:
    pipeline.run()
    pipeline.client.produce_batches({TopicPartition(pipeline.sink, 1): [batch_of(b"from elsewhere", is_transactional=False)]})
    found = check(pipeline)
    assert kinds(found) == ["foreign"]
    assert found.faults[0].message == f"{pipeline.sink}-1 holds records of writers outside of transactions (1)"
    shared = check(pipeline, may_share_sink=True)
    assert shared.is_proved and shared.notes == (found.faults[0].message,)
    assert [one.other_rows for one in shared.sink] == [0, 1]


def test_a_foreign_transaction_in_the_sink(pipeline: HandMadePipeline) -> None:
    pipeline.run()
    with pipeline.client.transaction("somebody-else") as transaction:
        transaction.produce({TopicPartition(pipeline.sink, 0): [batch_of(b"from elsewhere")]})
    assert kinds(check(pipeline)) == ["foreign"]


def test_offsets_that_were_moved_by_hand(pipeline: HandMadePipeline) -> None:
    pipeline.run()
    pipeline.client.commit(pipeline.group, {pipeline.source: 50})
    found = check(pipeline)
    assert kinds(found) == ["moved"]
    assert "moved the committed offset from 10 to 50" in found.faults[0].message


def test_a_sink_whose_oldest_records_are_gone_is_judged_from_where_it_is_whole(pipeline: HandMadePipeline) -> None:
    for _ in range(3):
        pipeline.run()
    pipeline.client.delete_records({TopicPartition(pipeline.sink, 0): 6})
    found = check(pipeline)
    assert found.is_proved
    assert found.notes == ("the oldest output (batches: 1) is no longer complete in the sink: retention has removed records",)


def test_a_sink_whose_records_are_all_gone_proves_nothing(pipeline: HandMadePipeline) -> None:
    for _ in range(3):
        pipeline.run()
    sinks = [TopicPartition(pipeline.sink, number) for number in range(2)]
    ends = pipeline.client.list_offsets(dict.fromkeys(sinks, LATEST))
    pipeline.client.delete_records({one: ends[one].offset for one in sinks})
    found = check(pipeline)
    assert not found.is_proved and kinds(found) == ["removed"]
    message = "the sink has the complete output of none of the 3 batches that wrote any: its records are removed, so nothing can be proved"
    assert found.faults[0].message == message
    pipeline.run()
    assert check(pipeline).is_proved


def test_a_record_that_is_deleted_within_a_batch_is_missed(pipeline: HandMadePipeline) -> None:
    """`verify` notices a record that was deleted within a batch: the log keeps the whole batch, but readers do not get the record."""
    for _ in range(2):
        pipeline.run()
    pipeline.client.delete_records({TopicPartition(pipeline.sink, 0): 1})
    found = check(pipeline)
    assert [(one.partition, one.start, one.rows) for one in found.sink] == [(0, 1, 9), (1, 0, 10)]
    assert found.is_proved
    assert found.notes == ("the oldest output (batches: 1) is no longer complete in the sink: retention has removed records",)


def test_a_sink_of_which_one_partition_is_trimmed(pipeline: HandMadePipeline) -> None:
    """If one partition of the sink is trimmed, batches that wrote nothing to it are still complete, and other batches are not."""
    pipeline.run()
    pipeline.run(end=pipeline.position + 1)
    pipeline.run()
    pipeline.run()
    pipeline.client.delete_records({TopicPartition(pipeline.sink, 1): 12})
    found = check(pipeline)
    assert found.is_proved
    assert found.notes == ("the oldest output (batches: 2) is no longer complete in the sink: retention has removed records",)
    pipeline.run(partitions=1)
    assert kinds(check(pipeline)) == ["missing"]


def test_output_whose_commits_are_compacted_away_with_its_producer_id(pipeline: HandMadePipeline) -> None:
    """Output whose commits and producer id were removed by compaction is accepted. With version 2 of the protocol a producer id is used for
    16,384 batches, and later batches have another one.
    """
    sinks = [TopicPartition(pipeline.sink, number) for number in range(2)]
    with pipeline.client.transaction("what the id of the pipeline was") as transaction:
        transaction.produce({one: [batch_of(b"old", b"rows")] for one in sinks})
    pipeline.batch_id, pipeline.position = 16_384, 40
    pipeline.run()
    found = check(pipeline)
    assert found.is_proved
    assert [note.partition(" (")[0] for note in found.notes] == [
        f"the proof begins with batch 16384 of query {pipeline.query_id}: the commits before it are no longer in the group's log",
        "not judged: 4 rows of producers",
    ]
    with pipeline.client.transaction("somebody-else") as transaction:
        transaction.produce({sinks[1]: [batch_of(b"from elsewhere")]})
    assert kinds(check(pipeline)) == ["foreign"]


def test_rows_that_the_broker_packed_anew_are_counted(pipeline: HandMadePipeline) -> None:
    pipeline.client.alter_topic_configs(pipeline.sink, {"compression.type": "zstd"})
    pipeline.run()
    found = check(pipeline)
    assert found.is_proved
    assert found.notes == ("a sink topic has a compression.type of its own: rows were counted, their bytes not compared",)
    pipeline.run(partitions=1)
    assert kinds(check(pipeline)) == ["missing"]


def test_a_source_that_ends_before_what_was_committed(pipeline: HandMadePipeline) -> None:
    pipeline.run(end=10)
    pipeline.run(end=200)
    assert kinds(check(pipeline)) == ["beyond"]


def test_a_group_without_a_pipeline_proves_nothing(pipeline: HandMadePipeline) -> None:
    pipeline.client.commit(pipeline.group, {pipeline.source: 5})
    found = check(pipeline)
    assert not found.is_proved and kinds(found) == ["absent"]


def test_a_sink_that_does_not_exist(pipeline: HandMadePipeline) -> None:
    with pytest.raises(UnknownTopicError):
        verify(pipeline.client, pipeline.group, ["no-such-topic"])


def test_a_batch_that_is_open_is_left_out(pipeline: HandMadePipeline) -> None:
    pipeline.run()
    transaction = pipeline.client.transaction(f"eos/{pipeline.group}")
    transaction.initialize()
    transaction.begin()
    transaction.produce({TopicPartition(pipeline.sink, 0): [batch_of(b"not yet")]})
    assert check(pipeline).is_proved
    transaction.abort()


def test_it_may_run_beside_the_pipeline(pipeline: HandMadePipeline, broker: Broker) -> None:
    pipeline.run()
    stop = threading.Event()

    def run_on() -> None:
        while not stop.is_set():
            pipeline.run(end=pipeline.position + 1)

    thread = threading.Thread(target=run_on)
    thread.start()
    try:
        import ottla.client

        with ottla.client.connect(broker.get_bootstrap_server()) as beside:
            for _ in range(5):
                found = verify(beside, pipeline.group, [pipeline.sink])
                assert not [fault for fault in found.faults if fault.kind != "beyond"]
    finally:
        stop.set()
        thread.join()
    assert pipeline.batch_id > 1
