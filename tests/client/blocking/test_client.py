"""The public client on a broker: every operation, blocking and awaited, and the steps of an exactly-once pipeline."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

import ottla.client
from ottla.client import (
    EARLIEST,
    LATEST,
    AsyncClient,
    Client,
    Committed,
    ConnectError,
    FencedError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicPartition,
    UnknownTopicError,
    aio,
)
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.core.operation import ClientOperation
from ottla.testing.broker import Broker
from ottla.wire.records import Record, encode_batch


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_server


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with ottla.client.connect(address) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    client.create_topic(name, partitions=2)
    return name


def _batch(*values: bytes) -> bytearray:
    return encode_batch([Record(0, 1_000 + at, None, value, ()) for at, value in enumerate(values)])


def _values(client: Client, partition: TopicPartition, *, isolation: str = "read_committed") -> list[bytes | None]:
    end = client.list_offsets({partition: LATEST}, isolation=isolation)[partition].offset
    return [record.value for fetched in client.read(partition, 0, end, isolation=isolation) for record in fetched.records()]


def test_every_public_name_is_there_and_documented() -> None:
    assert set(ottla.client.__all__) == set(ottla.client._MODULES)
    for name in ottla.client.__all__:
        found = getattr(ottla.client, name)
        assert not inspect.isclass(found) or found.__doc__, name
    for cls in (Client, AsyncClient):
        for name, found in vars(cls).items():
            assert name.startswith("_") or name == "cluster" or inspect.getdoc(found), f"{cls.__name__}.{name}"


def test_the_asyncio_client_has_the_operations_of_the_blocking_one() -> None:
    blocking, awaited = (
        {name for name in dir(kind) if isinstance(inspect.getattr_static(kind, name), ClientOperation)} for kind in (Client, AsyncClient)
    )
    assert blocking == awaited and {"fetch", "topics"} <= blocking


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, ottla.client; print(sum(name.startswith('ottla') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2"]


def test_topics(client: Client, topic: str) -> None:
    assert topic in client.topics()
    described = client.describe_topic(topic)
    assert (described.name, len(described.topic_id), described.is_internal) == (topic, 16, False)
    assert [(one.partition, one.leader, one.leader_epoch) for one in described.partitions] == [(0, 0, 0), (1, 0, 0)]
    client.add_partitions(topic, 3)
    assert len(client.describe_topic(topic).partitions) == 3
    client.alter_topic_configs(topic, {"retention.ms": "1000"})
    assert client.topic_configs(topic)["retention.ms"] == "1000"
    assert [broker.broker_id for broker in client.brokers()] == [0]
    client.delete_topic(topic)
    with pytest.raises(UnknownTopicError, match=topic):
        client.describe_topic(topic)
    with pytest.raises(KafkaError, match=topic):
        client.delete_topic(topic)


def test_batches_in_and_batches_out(client: Client, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert client.produce_batches({first: [_batch(b"a", b"b"), _batch(b"c")], second: [_batch(b"d")]}) == {first: 0, second: 0}
    assert client.list_offsets({first: EARLIEST, second: LATEST}) == {first: (0, -1, 0), second: (1, -1, 0)}
    assert client.list_offsets({first: 1_001})[first].offset == 1
    found = {fetched.partition: fetched for fetched in client.fetch({first: 1, second: 0})}
    assert [record.value for record in found[first].records()] == [b"b", b"c"]
    assert (found[first].start, found[first].next_offset, found[first].high_watermark) == (1, 3, 3)
    header, data = found[second].batches[0]
    assert isinstance(data, memoryview) and header.record_count == 1
    assert client.fetch({first: 3}, max_wait_ms=1) == []
    with pytest.raises(OffsetOutOfRangeError, match="-0 from offset 99"):
        client.fetch({first: 99})
    assert client.delete_records({first: 2}) == {first: 2}
    with pytest.raises(OffsetOutOfRangeError):
        list(client.read(first, 0, 3))


def test_a_range_is_read_in_pieces(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    client.produce_batches({partition: [_batch(bytes([number]) * 100) for number in range(50)]})
    pieces = list(client.read(partition, 3, 40, partition_max_bytes=500))
    assert len(pieces) > 5
    assert [record.offset for fetched in pieces for record in fetched.records()][:37] == list(range(3, 40))
    assert pieces[-1].next_offset >= 40


def test_readers_use_one_connection_after_the_other(client: Client, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = TopicPartition(topic, 0)
    client.produce_batches({partition: [_batch(bytes([number]) * 100) for number in range(50)]})
    opened: list[BlockingConnection] = []
    open_one = BlockingConnection.open

    def note(self: BlockingConnection, timeout_s: float | None = None) -> BlockingConnection:
        opened.append(self)
        return open_one(self, timeout_s)

    monkeypatch.setattr(BlockingConnection, "open", note)
    first = [fetched for _ in range(3) for fetched in client.read(partition, 0, 50)]
    values = [record.value for fetched in first for record in fetched.records()]
    assert values == [bytes([number]) * 100 for number in range(50)] * 3, "later answers have not changed earlier ones"
    assert len(opened) == 1
    both = [client.read(partition, 0, 50, partition_max_bytes=500) for _ in range(2)]
    assert [next(one).start for one in both] == [0, 0]
    assert len(opened) == 2, "the second reads while the first one's Fetch is in flight"
    for one in both:
        one.close()  # type: ignore[attr-defined]
    assert not any(one.is_open for one in opened), "an answer would be left in them"
    assert len(list(client.read(partition, 0, 50))) == 1
    assert opened[2].is_open
    left = client.read(partition, 0, 50)
    assert next(left).start == 0
    client.close()
    assert list(left) == []
    assert not opened[2].is_open, "no code would close it"


def test_producers_and_consumers(client: Client, topic: str) -> None:
    with client.producer(linger_s=0) as producer:
        for number in range(10):
            producer.produce(topic, b"%d" % number)
    group = f"group-{topic}"
    seen: list[bytes | None] = []
    with client.consumer(group, topics=[topic]) as consumer:
        while len(seen) < 10:
            seen += [record.value for fetched in consumer.poll(1.0) for record in fetched.records()]
        consumer.commit()
        assert client.describe_group(group).state == "Stable"
    assert sorted(seen, key=str) == [b"%d" % number for number in range(10)]
    assert sum(one.offset for one in client.committed(group).values()) == 10
    assert group in [found.group_id for found in client.groups()]
    client.delete_group(group)
    assert client.committed(group) == {}


def test_offsets_carry_metadata(client: Client, topic: str) -> None:
    group, partition = f"group-{topic}", TopicPartition(topic, 0)
    client.commit(group, {partition: Committed(7, 0, '{"q":"x"}'), TopicPartition(topic, 1): 3})
    assert client.committed(group, [partition]) == {partition: Committed(7, 0, '{"q":"x"}')}
    assert client.committed(group)[TopicPartition(topic, 1)] == Committed(3, -1, "")


@pytest.mark.parametrize("may_use_v2", [False, True])
def test_the_relay_of_a_pipeline(client: Client, topic: str, may_use_v2: bool) -> None:
    """InitProducerId, committed offsets, encoded batches, offsets with metadata, EndTxn; a second driver fences the first."""
    group, source, sink = f"group-{topic}", TopicPartition(topic, 0), TopicPartition(topic, 1)
    transaction = client.transaction(f"eos/{group}", may_use_v2=may_use_v2)
    for number in range(3):
        transaction.initialize()
        start = client.committed(group, [source]).get(source, Committed(0)).offset
        assert start == number
        transaction.begin()
        transaction.produce({sink: [_batch(b"a%d" % number), _batch(b"b%d" % number)]})
        assert client.list_offsets({sink: LATEST})[sink].offset == 3 * number
        transaction.commit_offsets(group, {source: Committed(number + 1, metadata=f'{{"b":{number}}}')})
        transaction.commit()
    assert transaction.uses_v2 is may_use_v2
    assert _values(client, sink) == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
    assert client.committed(group)[source] == Committed(3, -1, '{"b":2}')
    transaction.begin()
    transaction.produce({sink: [_batch(b"lost")]})
    other = client.transaction(f"eos/{group}", may_use_v2=may_use_v2)
    other.initialize()
    with pytest.raises(FencedError):
        transaction.commit()
    with pytest.raises(FencedError):
        transaction.initialize(transaction.producer_id, transaction.epoch)
    assert _values(client, sink)[6:] == []
    with other:
        other.produce({sink: [_batch(b"kept")]})
    assert _values(client, sink)[6:] == [b"kept"]
    assert _values(client, sink, isolation="read_uncommitted")[6:] == [b"lost", b"kept"]
    assert [one.state for one in client.transactions() if one.transactional_id == f"eos/{group}"] == ["CompleteCommit"]


def test_an_exception_aborts_the_transaction(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with pytest.raises(ZeroDivisionError), client.transaction(f"tx-{topic}") as transaction:
        transaction.produce({partition: [_batch(b"a")]})
        raise ZeroDivisionError
    assert _values(client, partition) == []
    client.fence(f"tx-{topic}")
    assert client.describe_transaction(f"tx-{topic}").state == "Empty"


def test_a_cluster_that_is_not_there(tmp_path: object) -> None:
    with pytest.raises(ConnectError, match=r"cannot reach 127\.0\.0\.1:1"):
        ottla.client.connect("127.0.0.1:1")
    with pytest.raises(ValueError, match=r"security\.protocol=TLS"):
        ottla.client.connect("127.0.0.1:1", {"security.protocol": "TLS"})


def test_the_same_awaited(address: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)

    async def work() -> None:
        async with await aio.connect(address) as client:
            assert topic in await client.topics()
            assert client.cluster_id
            assert await client.produce_batches({partition: [_batch(b"a"), _batch(b"b")]}) == {partition: 0}
            waiting = asyncio.create_task(client.fetch({partition: 2}, max_wait_ms=20_000))
            (fetched,) = await client.fetch({partition: 0})
            assert [record.value for record in fetched.records()] == [b"a", b"b"]
            await asyncio.gather(*(client.describe_topic(topic) for _ in range(10)))
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(UnknownTopicError):
                await client.describe_topic("no-such-topic")

    asyncio.run(asyncio.wait_for(work(), 60))
