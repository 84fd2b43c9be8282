"""The handle of a broker: records in and out, clients of each library, reset."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from ottla.client.core.group_admin import list_groups
from ottla.client.errors import KafkaError
from ottla.testing import foreign_clients
from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster
from ottla.testing.handle import BrokerHandle


def test_a_record_comes_back_whole(broker: Broker, topic: str) -> None:
    broker.add_record(topic, "value", key="key", headers={"h": "1", "none": None}, timestamp=1234567890123)
    broker.add_record(topic, None, key=b"gone")
    first, second = broker.records(topic)
    assert (first.topic, first.partition, first.offset, first.timestamp) == (topic, 0, 0, 1234567890123)
    assert (first.key, first.value, first.headers) == (b"key", b"value", (("h", b"1"), ("none", None)))
    assert (second.key, second.value) == (b"gone", None)


def test_records_of_all_partitions_come_in_order(broker: Broker) -> None:
    name = broker.create_topic("three-partitions", 3)
    for number in range(9):
        broker.add_record(name, str(number), partition=number % 3)
    found = broker.records(name)
    assert [(record.partition, record.offset) for record in found] == [(index, offset) for index in range(3) for offset in range(3)]


@pytest.mark.parametrize("value", [{"id": 1}, 5, ["a"]])
def test_a_value_that_is_no_text_is_refused(broker: Broker, topic: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}; encode it first"):
        broker.add_record(topic, value)
    with pytest.raises(TypeError, match="encode it first"):
        broker.add_record(topic, "v", headers={"h": value})
    assert broker.records(topic) == []


def test_a_partition_that_is_not_there_is_refused(broker: Broker, topic: str) -> None:
    with pytest.raises(KafkaError, match="has 1 partition, so no partition 7"):
        broker.add_record(topic, "v", partition=7)


def test_an_empty_topic_has_no_records(broker: Broker, topic: str) -> None:
    assert broker.records(topic) == []
    assert topic in broker.topics()


def test_what_was_produced_is_asserted(broker: Broker, topic: str) -> None:
    broker.add_record(topic, "before")
    with broker.assert_produces(topic, 2) as found:
        broker.add_record(topic, "one")
        broker.add_record(topic, "two")
    assert [record.value for record in found] == [b"one", b"two"]


def test_what_was_not_produced_fails(broker: Broker, topic: str) -> None:
    with pytest.raises(AssertionError, match=f"1 of 2 records written to '{topic}'"), broker.assert_produces(topic, 2, timeout=0.05):
        broker.add_record(topic, "one")


def test_the_message_shows_what_did_arrive(broker: Broker, topic: str) -> None:
    with pytest.raises(AssertionError) as failure, broker.assert_produces(topic, 8, timeout=0.05):
        for number in range(7):
            broker.add_record(topic, f"value {number}" + "!" * 100, key="k" if number else None)
    lines = str(failure.value).splitlines()
    assert lines[0] == f"7 of 8 records written to '{topic}' within 0.05 s"
    assert lines[1] == f"  partition 0 offset 0: key None, value {b'value 0' + b'!' * 53!r}... (107 bytes)"
    assert lines[2].startswith("  partition 0 offset 1: key b'k', value b'value 1!!!")
    assert lines[6:] == ["  and 2 more"]


def test_a_value_in_place_of_a_count_is_a_usage_error(broker: Broker, topic: str) -> None:
    explained = r"^count is a number of records, not b'apples'; compare the records that the block yields$"
    with pytest.raises(TypeError, match=explained), broker.assert_produces(topic, b"apples"):  # type: ignore[arg-type]
        raise AssertionError("the block is not run")



def test_exactly_so_many_records(broker: Broker, topic: str) -> None:
    with broker.assert_produces(topic, 1, exact=True) as found:
        broker.add_record(topic, "one")
    assert [record.value for record in found] == [b"one"]
    with pytest.raises(AssertionError, match=r"2 records written to '.*', not 1\n.*offset 1: key None, value b'two'\n.*b'three'"):  # noqa: SIM117
        with broker.assert_produces(topic, 1, exact=True):
            broker.add_record(topic, "two")
            broker.add_record(topic, "three")


def test_that_nothing_was_produced(broker: Broker, topic: str) -> None:
    with broker.assert_produces(topic, 0, exact=True), broker.assert_produces("no-such-topic", 0, exact=True):
        pass
    with pytest.raises(AssertionError, match=r"1 record written to '.*', not 0"), broker.assert_produces(topic, 0, exact=True):
        broker.add_record(topic, "one")


def test_a_record_that_is_written_after_the_block_is_one_too_many(broker: Broker, topic: str) -> None:
    """A client sends in the background: what it still has when the block ends arrives some milliseconds later."""
    late = threading.Timer(0.05, broker.add_record, (topic, "late"))
    with pytest.raises(AssertionError, match=r"1 record written to '.*', not 0"), broker.assert_produces(topic, 0, exact=True):
        late.start()
    late.join()


def test_repr_has_the_address() -> None:
    with Broker() as own:
        assert repr(own) == f"<Broker at {own.direct_server}>"
    assert repr(own) == "<Broker, not running>"
    assert repr(BrokerHandle("kafka:9092")) == "<BrokerHandle at kafka:9092>"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num.partitons", "unknown setting 'num.partitons'; did you mean 'num.partitions'\\?"),
        ("num_partitions", "did you mean 'num.partitions'"),
        ("gibberish", "unknown setting 'gibberish'$"),
    ],
)
def test_an_unknown_setting_is_refused(name: str, message: str) -> None:
    for make in (Broker, Cluster):
        with pytest.raises(ValueError, match=message):
            make(settings={name: 1})


def test_settings_that_only_kafka_knows_are_accepted() -> None:
    assert Broker(settings={"num.network.threads": 8, "listener.name.plaintext.x": "y"})


def test_a_topic_may_come_with_its_first_record(broker: Broker) -> None:
    with broker.assert_produces("made-on-the-way") as found:
        broker.add_record("made-on-the-way", "x")
    assert len(found) == 1


def test_an_error_in_the_block_is_the_one_that_is_raised(broker: Broker, topic: str) -> None:
    with pytest.raises(KeyError), broker.assert_produces(topic):
        raise KeyError("the test's own")


def test_reset_deletes_topics_and_groups() -> None:
    with Broker(topics=["a", "b:2"]) as own:
        own.add_record("a", "x")
        with closing(own.consumer("a", client="confluent-kafka", group_id="readers")) as consumer:
            assert consumer.poll(60).value() == b"x"
            consumer.commit(asynchronous=False)
        own.fail_next("Produce", 1)
        own.reset()
        assert own.topics() == []
        assert list_groups(own._client()) == []
        with own.assert_produces("a") as found:
            producer = own.producer(client="confluent-kafka")
            producer.produce("a", b"again")
            assert producer.flush(60) == 0
        assert found[0].offset == 0


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")  # kafka-python reads its schemas that way
@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python"])
def test_synchronous_clients_of_both_libraries(broker: Broker, topic: str, library: str) -> None:
    producer = broker.producer(client=library, linger_ms=0)
    if library == "confluent-kafka":
        producer.produce(topic, b"hello")
        assert producer.flush(60) == 0
    else:
        with closing(producer):
            producer.send(topic, b"hello").get(60)
    assert [record.value for record in broker.records(topic)] == [b"hello"]


def test_an_admin_client(broker: Broker, topic: str) -> None:
    assert topic in broker.admin(client="confluent-kafka").list_topics(timeout=60).topics


def test_asynchronous_clients(broker: Broker, topic: str) -> None:
    async def talk() -> bytes:
        async with broker.aio_producer(linger_ms=0) as producer:
            await producer.send_and_wait(topic, b"hello")
        async with broker.aio_consumer(topic) as consumer:
            record = await asyncio.wait_for(consumer.getone(), 60)
            return bytes(record.value)

    assert asyncio.run(talk()) == b"hello"


def test_a_client_retries_what_failed_once(broker: Broker, topic: str) -> None:
    producer = broker.producer(client="confluent-kafka", retry_backoff_ms=10)
    broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    producer.produce(topic, b"stubborn")
    assert producer.flush(60) == 0
    assert [record.value for record in broker.records(topic)] == [b"stubborn"]


def test_settings_are_written_as_each_library_wants_them(broker: Broker) -> None:
    assert broker.config(group_id="g")["group.id"] == "g"
    assert broker.config()["bootstrap.servers"] == broker.get_bootstrap_server() == broker.bootstrap_server


def test_without_a_client_the_error_names_what_to_install(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(foreign_clients.importlib, "import_module", missing)
    with pytest.raises(foreign_clients.NoClientInstalled, match=r"pip install aiokafka$"):
        broker.aio_producer()
    with pytest.raises(foreign_clients.NoClientInstalled, match="pip install kafka-python"):
        broker.consumer(client="kafka-python")
    with pytest.raises(ValueError, match="is not one of"):
        broker.admin(client="other")


@pytest.fixture
def without_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Kafka library but our own can be imported."""
    found = foreign_clients.importlib.import_module

    def load(name: str) -> object:
        if name in ("confluent_kafka", "kafka", "aiokafka"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found(name)

    monkeypatch.setattr(foreign_clients.importlib, "import_module", load)


def test_without_another_client_our_own_writes_and_reads(without_others: None, broker: Broker, topic: str) -> None:
    producer = broker.producer(linger_s=0.001)
    producer.produce(topic, "text", key="k", headers={"trace": "1"})
    producer.produce(topic, b"bytes", b"k", headers=[("trace", b"2")])
    producer.flush()
    (first, second) = broker.records(topic)
    assert (first.key, first.value, first.headers, second.value) == (b"k", b"text", (("trace", b"1"),), b"bytes")
    consumer = broker.consumer(topic)
    read: list[bytes | None] = []
    while len(read) < 2:
        read += [record.value for fetched in consumer.poll(20) for record in fetched.records()]
    assert read == [b"text", b"bytes"] and consumer.group_id.startswith("ottla-")
    consumer.close()
    assert topic in broker.admin().topics()
    broker.producer().produce("made-by-our-own-producer", "x")
    assert "made-by-our-own-producer" in broker.topics()
    with pytest.raises(ValueError, match=r"ottla\.client's Producer has no option 'retry_backoff_ms'; it has: acks, .*pip install"):
        broker.producer(retry_backoff_ms=10)


def test_our_own_client_can_be_chosen_and_logs_in(topic: str) -> None:
    with Broker(users={"alice": "secret"}) as own:
        with own.producer(client="ottla.client", user="alice") as producer:
            producer.produce("orders", "x")
        assert [record.value for record in own.records("orders")] == [b"x"]


def test_a_handle_uses_a_broker_that_others_started(broker: Broker, topic: str) -> None:
    handle = BrokerHandle(broker.direct_server)
    assert topic in handle.topics()
    assert handle.bootstrap_server not in (broker.bootstrap_server, broker.direct_server)
    handle.close()
    assert topic in broker.topics()


def test_threads_may_use_a_broker_at_the_same_time(broker: Broker, topic: str) -> None:
    def write(number: int) -> None:
        for place in range(10):
            broker.add_record(topic, f"{number}-{place}")
            assert f"{number}-{place}".encode() in [record.value for record in broker.records(topic)]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(broker.records(topic)) == 40


def test_a_forked_process_has_its_own_connections(broker: Broker, topic: str) -> None:
    """As the workers of Django's parallel test runner. What the parent has open stays usable."""
    broker.add_record(topic, "before")
    child = multiprocessing.get_context("fork").Process(target=broker.add_record, args=(topic, "child"))
    child.start()
    broker.add_record(topic, "parent")
    child.join(60)
    assert child.exitcode == 0
    assert sorted(record.value or b"" for record in broker.records(topic)) == [b"before", b"child", b"parent"]
