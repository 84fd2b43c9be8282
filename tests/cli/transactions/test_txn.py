"""`ottla txn` against a broker process: what it shows, how it ends transactions, and its exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.cli.main import main
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.producer_identity import ProducerIdentity
from ottla.client.core.transaction_admin import finish_prepared
from ottla.testing import Broker
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

numbers = count(1)


@pytest.fixture(scope="module")
def txn_broker() -> Iterator[Broker]:
    with Broker(settings={"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(txn_broker: Broker) -> Iterator[Cluster]:
    with Cluster(txn_broker.get_bootstrap_server(), client_id="shop") as cluster:
        yield cluster


class Ottla:
    """The program, called in this process."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._address = address
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str]:
        """Exit code and what it printed."""
        code = main(["txn", *words, "-b", self._address])
        printed = self._capsys.readouterr()
        return code, printed.out + printed.err

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json")[1])


@pytest.fixture
def ottla(txn_broker: Broker, capsys: pytest.CaptureFixture[str]) -> Ottla:
    return Ottla(txn_broker.get_bootstrap_server(), capsys)


class Writer:
    """A transactional producer that leaves its transaction open."""

    def __init__(self, cluster: Cluster, name: str, *, is_two_phase: bool = False) -> None:
        self.cluster = cluster
        self.name = name
        self.identity = ProducerIdentity(cluster.core, transactional_id=name)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, enable2_pc=is_two_phase)
        answer = cluster.run(self.identity._ask(request, lambda found: found.error_code))
        self.identity.producer_id, self.identity.epoch, self.identity.is_lost = answer.producer_id, answer.producer_epoch, False
        self.identity.begin()

    @property
    def producer(self) -> tuple[int, int]:
        return self.identity.producer_id, self.identity.epoch

    def write(self, partition: TopicPartition, values: list[bytes], *, is_added: bool = True) -> None:
        """Without `is_added` the coordinator does not know of the partition."""
        if is_added:
            self.cluster.run(self.identity.add_partitions([partition]))
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, value) for value in values],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.identity.take_sequences(partition, len(values)),
            is_transactional=True,
        )
        data = [PartitionProduceData(index=partition.partition, records=batch)]
        topic = TopicProduceData(name=partition.topic, partition_data=data)
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5_000, topic_data=[topic])
        answer = self.cluster.ask_broker(self.cluster.leader(partition), request)
        assert [one.error_code for one in answer.responses[0].partition_responses] == [0]


@pytest.fixture
def place(txn_broker: Broker) -> TopicPartition:
    topic = f"orders-{next(numbers)}"
    txn_broker.create_topic(topic, partitions=2)
    return TopicPartition(topic, 0)


@pytest.fixture
def writer(cluster: Cluster, place: TopicPartition) -> Iterator[Writer]:
    """Three records are open in the first partition; transactions that a test leaves open are aborted."""
    writer = Writer(cluster, f"shop-{next(numbers)}")
    writer.write(place, [b"1", b"2", b"3"])
    yield writer
    cluster.run(ProducerIdentity(cluster.core, transactional_id=writer.name).initialize())


@pytest.fixture
def prepared(cluster: Cluster, place: TopicPartition) -> Writer:
    """A transaction of two-phase commit with two records."""
    writer = Writer(cluster, f"bank-{next(numbers)}", is_two_phase=True)
    writer.write(place, [b"1", b"2"])
    return writer


def held_back(ottla: Ottla, topic: str) -> bool:
    found = ottla.json("why", topic)
    assert isinstance(found["held_back"], bool)
    return bool(found["held_back"])


def test_list_knows_every_filter(ottla: Ottla, writer: Writer) -> None:
    def names(*words: str) -> list[str]:
        return [row["transactional_id"] for row in ottla.json("list", *words)["transactions"]]

    assert writer.name in names()
    assert writer.name in names("--state", "Ongoing,Empty")
    assert writer.name not in names("--state", "CompleteCommit")
    assert names("--producer-id", str(writer.identity.producer_id)) == [writer.name]
    assert names("--transactional-id-pattern", f"{writer.name[:2]}.*{writer.name[3:]}", "--duration-filter", "0") == [writer.name]
    assert names("--duration-filter", "600000") == []


def test_list_as_a_table(ottla: Ottla, writer: Writer) -> None:
    code, shown = ottla("list", "--producer-id", str(writer.identity.producer_id))
    heading, row = shown.splitlines()
    assert (code, heading.split()) == (0, ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"])
    assert row.split() == [writer.name, "0", str(writer.identity.producer_id), "Ongoing"]


def test_describe(ottla: Ottla, writer: Writer, place: TopicPartition) -> None:
    (found,) = ottla.json("describe", writer.name)["transactions"]
    assert (found["producer_id"], found["producer_epoch"]) == writer.producer
    assert (found["state"], found["timeout_ms"], found["partitions"]) == ("Ongoing", 60_000, [str(place)])
    assert 0 <= found["duration_ms"] < 60_000
    assert (found["client_id"], found["client_host"]) == ("shop", "127.0.0.1")


def test_an_unknown_id(ottla: Ottla) -> None:
    code, shown = ottla("describe", "missing")
    assert code == 1 and "TRANSACTIONAL_ID_NOT_FOUND" in shown


@pytest.mark.parametrize("verb", ["describe-producers", "producers"])
def test_producers(ottla: Ottla, writer: Writer, place: TopicPartition, verb: str) -> None:
    (found,) = ottla.json(verb, "--topic", place.topic, "--partition", "0")["producers"]
    assert (found["producer_id"], found["producer_epoch"]) == writer.producer
    assert (found["last_sequence"], found["start_offset"], found["last_timestamp"]) == (2, 0, 1_700_000_000_000)


def test_a_topic_by_position(ottla: Ottla, writer: Writer, place: TopicPartition) -> None:
    (found,) = ottla.json("producers", place.topic, "--partition", "0")["producers"]
    assert (found["producer_id"], found["producer_epoch"]) == writer.producer
    assert ottla("find-hanging", place.topic)[0] == 0
    code, shown = ottla("producers", place.topic, "--topic", "other", "--partition", "0")
    assert code == 2 and "two topics are named" in shown


def test_why_names_the_transaction_and_how_to_end_it(ottla: Ottla, writer: Writer, place: TopicPartition) -> None:
    code, shown = ottla("why", place.topic)
    assert code == 1
    assert re.fullmatch(
        rf"{place}: readers stop at 0, 3 behind the end, because of transaction '{writer.name}' "
        rf"\(producer {writer.identity.producer_id} epoch 0; client shop at 127\.0\.0\.1; open for \d+\.\d s; began at offset 0; "
        rf"last wrote 2023-11-14[^;]*; holds {place}; times out in \d+ s\)\. "
        rf"End it: ottla txn abort --transactional-id {writer.name}\n",
        shown,
    ), shown
    assert ottla("abort", "--transactional-id", writer.name, "--yes") == (0, f"Fenced {writer.name}; its open transaction is aborted.\n")
    assert ottla("why", place.topic) == (0, f"no open transaction blocks the readers of {place.topic}\n")
    assert ottla("abort", "--transactional-id", writer.name, "--yes") == (0, f"Fenced {writer.name}; it had no open transaction.\n")
    assert ottla.json("abort", "--transactional-id", writer.name, "--yes") == {"transactional_id": writer.name, "aborted": False}

def test_why_takes_the_topic_as_an_option(ottla: Ottla, place: TopicPartition) -> None:
    free = (0, f"no open transaction blocks the readers of {place.topic}\n")
    assert ottla("why", "--topic", place.topic) == ottla("why", place.topic) == free


def test_why_shows_the_next_transaction(ottla: Ottla, cluster: Cluster, writer: Writer, place: TopicPartition) -> None:
    second = Writer(cluster, f"{writer.name}-second")
    second.write(place, [b"4"])
    first, after = ottla.json("why", place.topic, "--partition", "0")["transactions"]
    assert (first["transactional_id"], first["is_first"], first["records_behind"]) == (writer.name, True, 4)
    assert (after["transactional_id"], after["is_first"], after["start_offset"]) == (second.name, False, 3)
    cluster.run(second.identity.end(is_commit=True))
    assert held_back(ottla, place.topic)


def test_why_of_a_topic_that_is_not_there(ottla: Ottla) -> None:
    assert ottla("why", "nowhere")[0] == 1
    assert ottla("why")[0] == 2


def test_a_transaction_that_no_coordinator_ends(ottla: Ottla, writer: Writer, place: TopicPartition) -> None:
    """A marker into the partition itself is the last resort; find-hanging shows where, by the timestamp of the last record."""
    assert ottla("find-hanging", "--topic", place.topic)[0] == 0
    assert ottla("abort", "--topic", place.topic, "--partition", "0", "--start-offset", "7", "--yes")[0] == 1
    assert ottla("abort", "--topic", place.topic, "--partition", "0", "--start-offset", "0", "--yes")[0] == 0
    assert not held_back(ottla, place.topic)


def test_hanging_transactions_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    """Open since 2023 in a partition that its coordinator does not know of."""
    with Broker(settings={"transaction.partition.verification.enable": "false"}) as careless:
        address = careless.get_bootstrap_server()
        careless.create_topic("hung")
        with Cluster(address, client_id="shop") as there:
            writer = Writer(there, "careless")
            writer.write(TopicPartition("hung", 0), [b"1"], is_added=False)
        ottla = Ottla(address, capsys)
        code, shown = ottla("find-hanging")
        assert code == 1 and shown.splitlines()[1].split()[:3] == ["hung", "0", str(writer.identity.producer_id)]
        assert ottla("abort", "--topic", "hung", "--partition", "0", "--start-offset", "0", "--yes")[0] == 0
        assert ottla("find-hanging")[0] == 0


@pytest.mark.parametrize(("words", "outcome"), [(["--commit"], "committed"), (["--abort"], "aborted")])
def test_a_prepared_transaction_is_finished(ottla: Ottla, prepared: Writer, place: TopicPartition, words: list[str], outcome: str) -> None:
    (listed,) = [row for row in ottla.json("prepared")["transactions"] if row["transactional_id"] == prepared.name]
    assert (listed["producer_id"], listed["producer_epoch"], listed["partitions"]) == (*prepared.producer, [str(place)])
    assert f"ottla txn finish {prepared.name} --commit" in ottla("why", place.topic)[1]
    code, shown = ottla("finish", prepared.name, *words, "--yes")
    assert code == 0 and f"is {outcome}" in shown
    assert prepared.name not in ottla("prepared")[1]
    assert not held_back(ottla, place.topic)
    (described,) = ottla.json("describe", prepared.name)["transactions"]
    assert described["state"] == {"committed": "CompleteCommit", "aborted": "CompleteAbort"}[outcome]


@pytest.mark.parametrize("is_right", [True, False])
def test_the_stored_state_decides(ottla: Ottla, prepared: Writer, is_right: bool) -> None:
    """As a client's own recovery does: commit if it is the transaction that was prepared, else abort."""
    producer_id, epoch = prepared.producer
    state = f"{producer_id}:{epoch if is_right else epoch + 1}"
    found = ottla.json("finish", prepared.name, "--prepared-state", state, "--yes")
    assert (found["outcome"], found["producer_epoch"]) == ("committed" if is_right else "aborted", epoch)


def test_the_previous_owner_is_fenced(ottla: Ottla, prepared: Writer, place: TopicPartition) -> None:
    assert ottla("finish", prepared.name, "--commit", "--yes")[0] == 0
    with pytest.raises(ApiError, match=r"FENCED|EPOCH"):
        prepared.cluster.run(prepared.identity.end(is_commit=False))
    assert ottla("finish", prepared.name, "--commit", "--yes")[0] == 1


def test_what_is_not_prepared_is_not_finished(ottla: Ottla, writer: Writer) -> None:
    assert ottla("finish", writer.name, "--commit", "--yes")[0] == 1
    assert ottla("finish", "missing", "--abort", "--yes")[0] == 1
    assert ottla("finish", writer.name, "--prepared-state", "seven", "--yes")[0] == 2
    assert ottla("finish", writer.name, "--yes")[0] == 2


def test_nothing_is_open(cluster: Cluster) -> None:
    """An ended transaction is reported before anything is decided."""
    name = f"idle-{next(numbers)}"
    Writer(cluster, name, is_two_phase=True)
    assert finish_prepared(cluster, name, lambda _producer_id, _epoch: True) is None


@pytest.mark.parametrize(
    "words",
    [
        ["describe"],
        ["abort"],
        ["abort", "--topic", "t"],
        ["abort", "--transactional-id", "a", "--topic", "t"],
        ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1"],
        ["producers", "--topic", "t"],
        ["find-hanging", "--partition", "1"],
    ],
    ids=" ".join,
)
def test_wrong_usage(ottla: Ottla, txn_broker: Broker, words: list[str]) -> None:
    if "t" in words:
        words = [txn_broker.create_topic(f"t-{next(numbers)}") if word == "t" else word for word in words]
    assert ottla(*words)[0] == 2
