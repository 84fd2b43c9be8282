"""Mirrors between two brokers: bytes, groups, settings, refusals, and the way to a writable topic and back."""

from __future__ import annotations

import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import ottla.client
from ottla.base.types import TopicPartition
from ottla.client import Client, ErrorCode, KafkaError
from ottla.client.core import mirroring
from ottla.client.core.conversation import AskAll
from ottla.client.core.group_admin import Committed
from ottla.cloning.mirror import exact_target
from ottla.cloning.mirror import mirror as engine
from ottla.cloning.mirror.mirror import Mirror, MirrorRequest
from ottla.cloning.mirror.state import MetricsServer
from ottla.cloning.mirror.survey import survey
from ottla.cloning.plan import CloneError
from ottla.testing.broker import Broker
from tests.cloning.conftest import ends, stored, write
from tests.cloning.test_clone import happens


@pytest.fixture(scope="module")
def target() -> Iterator[Broker]:
    with Broker(settings={"log.segment.delete.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture(scope="module")
def there(target: Broker) -> Iterator[Client]:
    with ottla.client.connect(target.direct_server, with_extensions=True) as client:
        yield client


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(engine, "GROUPS_SECONDS", 0.1)
    monkeypatch.setattr(engine, "TOPICS_SECONDS", 0.1)


class Running:
    """A mirror in a thread, its states, and how it ended."""

    def __init__(self, source: str, target: str, request: MirrorRequest) -> None:
        self.states: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self._is_over = threading.Event()
        self._addresses, self._request = (source, target), request
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with mirror_of(*self._addresses, self._request, self.states.append) as mirror:
                mirror.run(self._is_over.is_set)
        except (ottla.client.ClientError, CloneError) as error:
            self.error = error

    @property
    def state(self) -> dict[str, Any]:
        return self.states[-1] if self.states else {"lag": None, "topics": [], "notes": [], "error": None}

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()


@contextmanager
def mirror_of(source: str, target: str, request: MirrorRequest, report: Callable[[Any], object] = lambda _: None) -> Iterator[Mirror]:
    with ExitStack() as stack:
        clients = [stack.enter_context(ottla.client.connect(one, with_extensions=True)) for one in (source, source, target)]
        yield Mirror(*clients, request, report)


@contextmanager
def running(source: Broker, target: Broker, topic: str, **options: Any) -> Iterator[Running]:
    run = Running(source.direct_server, target.direct_server, MirrorRequest(topics=[topic], settings={}, **options))
    try:
        yield run
    finally:
        run.stop()


def graduate(source: Broker, target: Broker, topic: str, **options: Any) -> dict[str, Any]:
    with mirror_of(source.direct_server, target.direct_server, MirrorRequest(topics=[topic], settings={}, **options)) as mirror:
        return mirror.graduate(lambda: False)


def has(there: Client, topic: str, end: int, partition: int = 0) -> bool:
    try:
        key = TopicPartition(topic, partition)
        return there.list_offsets({key: ottla.client.LATEST}, isolation="read_uncommitted")[key].offset == end
    except KafkaError:
        return False


def transact(client: Client, topic: str, *values: bytes, is_commit: bool = True) -> None:
    producer = client.producer(transactional_id=f"{topic}-{uuid.uuid4().hex[:6]}")
    producer.begin()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()
    (producer.commit if is_commit else producer.abort)()
    producer.close()


def test_a_mirror_has_the_sources_bytes(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    """Codecs, headers, a committed and an aborted transaction, gaps of none; what is written meanwhile; settings and groups follow."""
    client.create_topic(topic, partitions=2, configs={"retention.ms": "-1"})
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        write(client, topic, 5, first=5 * number, codec=codec)
    transact(client, topic, b"committed")
    transact(client, topic, b"aborted", is_commit=False)
    client.commit(f"g-{topic}", {TopicPartition(topic, 0): Committed(7, 0, "seven")})
    with running(source, target, topic) as run:
        assert happens(lambda: has(there, topic, 29))
        write(client, topic, 10, first=25)
        assert happens(lambda: has(there, topic, 39))
        client.alter_topic_configs(topic, {"retention.ms": "86400000"})
        client.add_partitions(topic, 3)
        with client.producer() as producer:
            producer.produce(topic, b"new", partition=2)
        assert happens(lambda: has(there, topic, 1, partition=2))
        assert happens(lambda: there.committed(f"g-{topic}") == {TopicPartition(topic, 0): Committed(7, 0, "seven")})
        assert happens(lambda: there.topic_configs(topic)["retention.ms"] == "86400000")
        client.commit(f"g-{topic}", {TopicPartition(topic, 0): Committed(39, 0, "")})
        assert happens(lambda: there.committed(f"g-{topic}")[TopicPartition(topic, 0)].offset == 39)
        assert happens(lambda: run.state["lag"] == 0)
    assert run.error is None
    for partition in range(3):
        assert stored(target.data_dir, topic, partition) == stored(source.data_dir, topic, partition)


def test_only_the_mirror_writes_until_graduation(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    client.create_topic(topic)
    write(client, topic, 10)
    with running(source, target, topic) as run:
        assert happens(lambda: has(there, topic, 10))
        with pytest.raises(KafkaError, match="mirrored from another cluster and read-only") as refused, there.producer() as producer:
            producer.produce(topic, b"mine", partition=0)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        transaction = there.transaction(f"t-{topic}", may_use_v2=False)
        transaction.initialize()
        transaction.begin()
        with pytest.raises(KafkaError) as refused:
            transaction.add_partitions([TopicPartition(topic, 0)])
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        client.commit(f"g-{topic}", {TopicPartition(topic, 0): Committed(3, 0, "")})
        state = graduate(source, target, topic)
        assert [one["state"] for one in state["topics"]] == ["graduated"]
        there.commit(f"g-{topic}", {TopicPartition(topic, 0): Committed(7, 0, "")})
        client.commit(f"g-{topic}", {TopicPartition(topic, 0): Committed(4, 0, "")})
        write(there, topic, 5, first=10)
        assert happens(lambda: run.has_ended), "the running mirror notices"
        assert [one["state"] for one in run.state["topics"]] == ["graduated"]
    assert there.committed(f"g-{topic}")[TopicPartition(topic, 0)].offset == 7, "the group's own progress stays"
    assert ends(there, topic) == 15
    assert [record.value for record in target.records(topic)] == [b"%d" % number for number in range(15)]


def test_the_way_back(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    """The old topic becomes the mirror of the new one, continues where it ended, and is graduated."""
    client.create_topic(topic)
    write(client, topic, 10)
    graduate(source, target, topic)
    write(there, topic, 5, first=10)
    with pytest.raises(CloneError, match="already, which is no mirror"):
        graduate(target, source, topic)
    graduate(target, source, topic, may_take_over=True)
    assert stored(source.data_dir, topic) == stored(target.data_dir, topic)
    write(client, topic, 5, first=15)
    assert [record.value for record in source.records(topic)] == [b"%d" % number for number in range(20)]


def test_a_mirror_starts_again_after_a_part_of_its_topics_was_graduated(
    source: Broker, target: Broker, client: Client, there: Client, topic: str
) -> None:
    """As after a kill during the graduation of several topics. A graduated topic that lacks records of the source is refused."""
    other = f"{topic}-other"
    for name in (topic, other):
        client.create_topic(name)
        write(client, name, 10)
    graduate(source, target, topic)
    write(there, topic, 5, first=100)
    request = MirrorRequest(topics=[topic, other], settings={})
    run = Running(source.direct_server, target.direct_server, request)
    try:
        assert happens(lambda: has(there, other, 10))
        assert [one["state"] for one in run.state["topics"]] == ["graduated", "mirroring"]
    finally:
        run.stop()
    for _ in range(2):
        with mirror_of(source.direct_server, target.direct_server, request) as mirror:
            assert [one["state"] for one in mirror.graduate(lambda: False)["topics"]] == ["graduated", "graduated"]
    assert ends(there, topic) == 15
    write(client, topic, 10, first=10)
    with mirror_of(source.direct_server, target.direct_server, request) as mirror, pytest.raises(CloneError, match="which is no mirror"):
        mirror.run(lambda: False)


def test_a_source_with_records_of_its_own_is_no_mirror(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    """Both have written after the graduation, so going back would lose records."""
    client.create_topic(topic)
    write(client, topic, 10)
    graduate(source, target, topic)
    write(there, topic, 5, first=100)
    write(client, topic, 3, first=200)
    with pytest.raises(CloneError, match=f"{topic}-0 has another record at offset 12 at the target than at the source"):
        graduate(target, source, topic, may_take_over=True)
    write(client, topic, 10, first=300)
    with pytest.raises(CloneError, match=f"{topic}-0 ends at offset 23 at the target and at 15 at the source"):
        graduate(target, source, topic, may_take_over=True)


def test_a_target_that_has_the_topic(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    client.create_topic(topic)
    there.create_topic(topic)
    with running(source, target, topic) as run:
        assert happens(lambda: run.has_ended)
    assert "delete it, or continue it by --continue-existing" in str(run.error)


def test_a_source_that_deletes_records(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    """Before the mirror has them, and after."""
    client.create_topic(topic)
    write(client, topic, 20)
    client.delete_records({TopicPartition(topic, 0): 12})
    with running(source, target, topic) as run:
        assert happens(lambda: has(there, topic, 20))
        first = {TopicPartition(topic, 0): ottla.client.EARLIEST}
        assert there.list_offsets(first)[TopicPartition(topic, 0)].offset == 12
        client.delete_records({TopicPartition(topic, 0): 17})
        write(client, topic, 1, first=20)
        assert happens(lambda: there.list_offsets(first)[TopicPartition(topic, 0)].offset == 17)
        client.delete_records({TopicPartition(topic, 0): -1})
    write(client, topic, 5, first=21)
    client.delete_records({TopicPartition(topic, 0): -1})
    write(client, topic, 2, first=26)
    with running(source, target, topic) as run:
        assert happens(lambda: has(there, topic, 28))
    assert run.error is None
    assert [record.value for record in target.records(topic)] == [b"26", b"27"]


def test_a_source_that_is_compacted(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    """Before a mirror runs and while it runs. Batches with gaps keep their offsets, and no newest value of a key is lost."""
    client.create_topic(topic, configs={"cleanup.policy": "compact", "segment.ms": "1"})

    def write_and_compact(first: int) -> None:
        for start in range(first, first + 200, 50):
            write(client, topic, 50, first=start, timestamp=10 * start)  # a segment each
        assert happens(lambda: len(source.records(topic)) < 100)

    write_and_compact(0)
    with running(source, target, topic):
        assert happens(lambda: has(there, topic, 200))
        assert len(target.records(topic)) < 100, "only the records that are left are copied"
        write_and_compact(200)
        assert happens(lambda: has(there, topic, 400))
    with running(source, target, topic) as run:
        write_and_compact(400)
        assert happens(lambda: has(there, topic, 600))
    assert run.error is None
    copied = {record.offset: (record.key, record.value) for record in target.records(topic)}
    left = {record.offset: (record.key, record.value) for record in source.records(topic)}
    assert left.items() <= copied.items() and {key for key, _ in left.values()} == {b"key-%d" % number for number in range(7)}


def test_a_topic_that_is_deleted_at_the_source_fails_alone(
    source: Broker, target: Broker, client: Client, there: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cloning.mirror.topics.UNKNOWN_SECONDS_MAX", 0.5)
    other = f"{topic}-other"
    for name in (topic, other):
        client.create_topic(name)
        write(client, name, 10)
    run = Running(source.direct_server, target.direct_server, MirrorRequest(topics=[topic, other], settings={}))
    try:
        assert happens(lambda: has(there, topic, 10) and has(there, other, 10))
        client.delete_topic(topic)
        assert happens(lambda: [one["state"] for one in run.state["topics"]] == ["failed", "mirroring"])
        assert run.state["topics"][0]["error"] == f"topic {topic!r} was deleted at the source; the target keeps its records"
        write(client, other, 5, first=10)
        assert happens(lambda: has(there, other, 15))
    finally:
        run.stop()
    assert run.error is None and ends(there, topic) == 10


def test_a_topic_that_was_created_again(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    client.create_topic(topic)
    write(client, topic, 10)
    with running(source, target, topic) as run:
        assert happens(lambda: has(there, topic, 10))
    client.delete_topic(topic)
    client.create_topic(topic)
    with running(source, target, topic) as run:
        assert happens(lambda: run.has_ended)
    assert "mirrors another topic" in str(run.error)


def test_two_mirrors_at_once_copy_each_record_once(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    client.create_topic(topic)
    with running(source, target, topic) as first, running(source, target, topic) as second:
        for number in range(20):
            write(client, topic, 50, first=50 * number)
        assert happens(lambda: has(there, topic, 1000))
        assert happens(lambda: first.state["lag"] == second.state["lag"] == 0)
    assert stored(target.data_dir, topic) == stored(source.data_dir, topic)


def test_a_source_whose_leader_epoch_rises(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    """The target's leader epoch stays above it, so consumers that commit with the source's epoch are served."""
    client.create_topic(topic)
    write(client, topic, 10)
    with running(source, target, topic):
        assert happens(lambda: has(there, topic, 10))
        client.alter_topic_configs(topic, {"ottla.leader.epoch.min": "41"})
        assert happens(lambda: client.describe_topic(topic).partitions[0].leader_epoch == 41)
        write(client, topic, 5, first=10)
        assert happens(lambda: has(there, topic, 15))
    assert there.describe_topic(topic).partitions[0].leader_epoch == 42
    assert stored(target.data_dir, topic) == stored(source.data_dir, topic)


def test_a_leader_epoch_of_the_source_without_a_record(
    source: Broker, target: Broker, client: Client, there: Client, topic: str
) -> None:
    """Consumers know it from the metadata and commit with it, so they would take the target's metadata for old."""
    client.create_topic(topic)
    write(client, topic, 10)
    client.commit(f"g-{topic}", {TopicPartition(topic, 0): Committed(10, 41, "")})
    with running(source, target, topic):
        assert happens(lambda: has(there, topic, 10))
        client.alter_topic_configs(topic, {"ottla.leader.epoch.min": "41"})
        assert happens(lambda: client.describe_topic(topic).partitions[0].leader_epoch == 41)
        assert happens(lambda: there.describe_topic(topic).partitions[0].leader_epoch == 42)
        client.alter_topic_configs(topic, {"ottla.leader.epoch.min": "50"})
    graduate(source, target, topic)
    assert there.describe_topic(topic).partitions[0].leader_epoch == 51
    assert there.committed(f"g-{topic}") == {TopicPartition(topic, 0): Committed(10, 41, "")}
    write(there, topic, 5, first=10)
    assert [record.value for record in target.records(topic)] == [b"%d" % number for number in range(15)]


def test_requests_in_flight_are_appended_in_order(
    source: Broker, target: Broker, client: Client, there: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request for each batch, all sent before the first answer; one in the middle is refused, because its leader epoch is too new."""
    for module in (exact_target, mirroring):
        monkeypatch.setattr(module, "REQUEST_BYTES_MAX", 1)
    sent: list[int] = []
    monkeypatch.setattr(mirroring, "AskAll", lambda asks: sent.append(len(asks)) or AskAll(asks))
    client.create_topic(topic, partitions=2)
    write(client, topic, 200)
    with client.producer() as producer:
        producer.produce(topic, b"another partition", partition=1)
    with running(source, target, topic):
        assert happens(lambda: has(there, topic, 200) and has(there, topic, 1, partition=1))
    client.alter_topic_configs(topic, {"ottla.leader.epoch.min": "7"})
    assert happens(lambda: client.describe_topic(topic).partitions[0].leader_epoch == 7)
    write(client, topic, 100, first=200)
    with running(source, target, topic):
        assert happens(lambda: has(there, topic, 300))
    assert max(sent) >= 40
    for partition in range(2):
        assert stored(target.data_dir, topic, partition) == stored(source.data_dir, topic, partition)


def test_an_open_transaction_is_not_graduated(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    client.create_topic(topic)
    producer = client.producer(transactional_id=topic)
    producer.begin()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    with pytest.raises(CloneError, match="has an open transaction of the source at its end"):
        graduate(source, target, topic)
    producer.commit()
    producer.close()
    graduate(source, target, topic)
    assert [record.value for record in target.records(topic)] == [b"open"]


def test_a_group_with_members_at_the_target(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    """Its members commit there. When they have left, its offsets follow again."""
    client.create_topic(topic)
    write(client, topic, 10)
    group = f"g-{topic}"
    client.commit(group, {TopicPartition(topic, 0): Committed(3, 0, "")})
    with running(source, target, topic) as run:
        assert happens(lambda: has(there, topic, 10))
        assert happens(lambda: bool(there.committed(group)))
        with there.consumer(group, topics=[topic]) as consumer:
            assert happens(lambda: bool(consumer.poll(0.5)))
            client.commit(group, {TopicPartition(topic, 0): Committed(8, 0, "")})
            assert happens(lambda: consumer.poll(0.01) is not None and "has members at the target" in str(run.state["notes"]))
        assert happens(lambda: there.committed(group)[TopicPartition(topic, 0)].offset == 8)


def test_status_and_metrics(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    client.create_topic(topic)
    write(client, topic, 10)
    assert survey(client, there, [topic])["topics"][0]["error"] == f"the target has no topic {topic!r}"
    server = MetricsServer("127.0.0.1", 0)
    try:
        with running(source, target, topic) as run:
            assert happens(lambda: run.state["lag"] == 0)
            server.show(run.state)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    finally:
        server.close()
    assert f'ottla_mirror_lag_offsets{{topic="{topic}",partition="0"}} 0' in lines and "ottla_mirror_up 1" in lines
    write(client, topic, 5, first=10)
    found = survey(client, there, [topic])
    assert (found["lag"], found["topics"][0]["state"]) == (5, "mirroring")
    assert found["topics"][0]["partitions"] == [{"partition": 0, "source_end": 15, "end": 10, "lag": 5, "error": None, "rate": 0}]
    graduate(source, target, topic)
    assert survey(client, there, [topic])["topics"][0]["state"] == "graduated"


def test_times_of_a_source_with_log_append_time(source: Broker, target: Broker, client: Client, there: Client, topic: str) -> None:
    """A mirror into Kafka produces the records, so the target must not stamp them again, also after the settings were followed."""
    client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
    write(client, topic, 10)
    with ExitStack() as stack:
        clients = [stack.enter_context(ottla.client.connect(one.direct_server)) for one in (source, source, target)]
        states: list[Any] = []
        mirror = Mirror(*clients, MirrorRequest(topics=[topic], settings={}), states.append)

        def is_over() -> bool:
            if states and states[-1]["lag"] == 0 and ends(there, topic) == 10:
                client.alter_topic_configs(topic, {"retention.ms": "86400000"})
                write(client, topic, 10, first=10)
            return ends(there, topic) == 20 and there.topic_configs(topic)["retention.ms"] == "86400000"

        mirror.run(is_over)
    assert [record.timestamp for record in target.records(topic)] == [record.timestamp for record in source.records(topic)]
    assert there.topic_configs(topic)["message.timestamp.type"] == "CreateTime"


def test_an_internal_topic_is_no_mirror(there: Client) -> None:
    there.commit("some-group", {})
    assert happens(lambda: "__consumer_offsets" in there.topics() or there.commit("some-group", {}) is None)
    with pytest.raises(KafkaError) as refused:
        there.alter_topic_configs("__consumer_offsets", {"ottla.mirror.source": "a:b"})
    assert refused.value.code in (ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
