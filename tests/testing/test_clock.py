"""A test moves a broker's time: what expires or is due in the span has happened when `advance` returns."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from ottla.client.addresses import parse_addresses
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.errors import ClientError
from ottla.testing.broker import Broker
from ottla.testing.clock import span_ms
from ottla.testing.cluster import Cluster
from ottla.testing.sharing import SharedBroker
from ottla.wire.messages import (
    alter_client_quotas,
    create_delegation_token,
    describe_delegation_token,
    describe_groups,
    find_coordinator,
    join_group,
    offset_commit,
    offset_fetch,
    produce,
)
from ottla.wire.records import Record, encode_batch
from tests.clients.broker_process import eventually
from tests.clients.wire_client import WireClient

LONG_MS = 2**31 - 1
SETTINGS = {"log.cleaner.backoff.ms": "1000", "quota.window.num": "11"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[WireClient]:
    """A connection to the broker, which coordinates all groups."""
    with WireClient(int(broker.direct_server.rpartition(":")[2])) as client:
        find = find_coordinator.FindCoordinatorRequest(key="any", key_type=0)
        eventually(lambda: client.ask(find, 2).error_code == 0)
        yield client


def test_the_clock_has_the_brokers_time(broker: Broker) -> None:
    before = broker.clock.now()
    assert abs(before - datetime.now(UTC)) < timedelta(days=400)  # other tests move it
    assert timedelta(days=1) <= broker.clock.advance("1 day") - before < timedelta(days=1, minutes=5)


def test_records_end_by_their_topics_retention(broker: Broker) -> None:
    topic = broker.create_topic("short", **{"retention.ms": "3600000"})
    broker.add_record(topic, "old", timestamp=int(broker.clock.now().timestamp() * 1000))
    broker.clock.advance("50 minutes")
    assert len(broker.records(topic)) == 1
    broker.clock.advance("2 days")
    assert broker.records(topic) == []


def test_a_compacted_topic_is_compacted_when_its_records_are_old_enough(broker: Broker) -> None:
    configs = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "60000"}
    topic = broker.create_topic("compacted", **configs)
    for number in range(5):
        broker.add_record(topic, f"v{number}", key="k", timestamp=int(broker.clock.now().timestamp() * 1000))
    broker.clock.advance("10 minutes")
    broker.add_record(topic, "last", key="k", timestamp=int(broker.clock.now().timestamp() * 1000))  # begins a segment
    broker.clock.advance("10 minutes")
    assert len(broker.records(topic)) == 6
    broker.clock.advance("2 hours")
    eventually(lambda: [record.value for record in broker.records(topic)] == [b"v4", b"last"])


def test_offsets_of_an_empty_group_expire(broker: Broker, wire: WireClient) -> None:
    topic = broker.create_topic("read")

    def committed() -> int:
        asked = offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        answer = wire.ask(offset_fetch.OffsetFetchRequest(group_id="reader", topics=[asked]), 5)
        return int(answer.topics[0].partitions[0].committed_offset)

    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    body = offset_commit.OffsetCommitRequest(
        group_id="reader", topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[part])]
    )
    wire.ask(body, 6)
    broker.clock.advance("6 days")
    assert committed() == 7
    broker.clock.advance("2 days")
    eventually(lambda: committed() == -1)


def test_a_member_without_heartbeats_is_removed(broker: Broker, wire: WireClient) -> None:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_group.JoinGroupRequest(
        group_id="silent", session_timeout_ms=45_000, rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=[protocol]
    )
    eventually(lambda: wire.ask(request, 3).error_code == 0)

    def members() -> int:
        return len(wire.ask(describe_groups.DescribeGroupsRequest(groups=["silent"]), 4).groups[0].members)

    broker.clock.advance("40 s")
    assert members() == 1
    broker.clock.advance("10 s")
    eventually(lambda: members() == 0)


def test_an_open_transaction_is_aborted_at_its_time_limit(broker: Broker) -> None:
    topic = broker.create_topic("paid")
    producer = Producer(broker.config(**{"transactional.id": "payer", "transaction.timeout.ms": 60_000}))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    producer.flush(30)
    broker.clock.advance("2 minutes")
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    broker.add_record(topic, "after")
    assert [record.value for record in broker.records(topic)] == [b"after"]  # and is not held back


def limit(wire: WireClient, rate: float | None) -> None:
    """Limits what this client may produce in a second; None removes the limit."""
    entity = [alter_client_quotas.EntityData(entity_type="client-id", entity_name="wire")]
    op = alter_client_quotas.OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
    answer = wire.ask(alter_client_quotas.AlterClientQuotasRequest(entries=[alter_client_quotas.EntryData(entity=entity, ops=[op])]), 1)
    assert answer.entries[0].error_code == 0


def test_a_quotas_debt_is_paid(broker: Broker, wire: WireClient) -> None:
    topic = broker.create_topic("limited")
    limit(wire, 1_000.0)
    batch = bytes(encode_batch([Record(0, 1_700_000_000_000, None, b"x" * 50_000)]))
    part = produce.PartitionProduceData(index=0, records=batch)
    request = produce.ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[produce.TopicProduceData(name=topic, partition_data=[part])]
    )
    try:
        assert wire.ask(request, 9).throttle_time_ms > 0
        broker.clock.advance("10 minutes")  # the connection is read from again
        limit(wire, 100_000_000.0)
        assert wire.ask(request, 9).throttle_time_ms == 0
    finally:
        broker.clock.advance("10 minutes")
        limit(wire, None)


def test_nothing_ends_while_the_clock_stands_still(broker: Broker) -> None:
    """A consumer whose session lasts a second is still a member after two, without a heartbeat."""
    topic = broker.create_topic("still")
    with broker.clock.frozen() as clock:
        before = clock.now()
        with closing(Consumer(broker.config(**{"group.id": "still", "auto.offset.reset": "earliest"}))) as consumer:
            consumer.subscribe([topic])
            broker.add_record(topic, "seen")
            eventually(lambda: (message := consumer.poll(0.2)) is not None and message.value() == b"seen")  # long polls do not stand still
        time.sleep(0.05)
        assert clock.now() == before
        assert clock.advance("1 s") - before == timedelta(seconds=1)


def test_a_frozen_clock_runs_again_after_the_test(broker: Broker) -> None:
    broker.clock.freeze()
    broker.end_faults()  # as the plugin does
    before = broker.clock.now()
    assert eventually(lambda: broker.clock.now() > before)


def test_a_broker_of_several_workers_keeps_its_time(tmp_path: Path) -> None:
    shared = SharedBroker("127.0.0.1:9", 1, tmp_path)
    with pytest.raises(RuntimeError, match="move the time of the test's own"):
        shared.clock.advance("1 day")


def test_advancing_until_something_is_so(broker: Broker) -> None:
    topic = broker.create_topic("until", **{"retention.ms": "3600000"})
    broker.add_record(topic, "old", timestamp=int(broker.clock.now().timestamp() * 1000))
    before = broker.clock.now()
    after = broker.clock.until(lambda: broker.records(topic) == [], step="1 day", limit="5 days")
    assert timedelta(hours=1) < after - before < timedelta(days=5, minutes=5)
    with pytest.raises(AssertionError, match="not true within 2 minutes"):
        broker.clock.until(lambda: False, limit="2 minutes")


def test_a_broker_that_is_started_again_keeps_its_time(broker: Broker) -> None:
    with Broker() as own:
        moved = own.clock.advance("30 days")
        own.process.kill()
        own.process.start()
        assert timedelta() <= own.clock.now() - moved < timedelta(minutes=5)


def test_tokens_and_logins_end() -> None:
    settings = {"connections.max.reauth.ms": 3_600_000, "delegation.token.secret.key": "k" * 32}
    with Broker(users={"alice": "secret"}, settings=settings) as broker:

        def logged_in() -> BlockingConnection:
            assert broker.logins is not None
            return BlockingConnection(parse_addresses(broker.direct_server)[0], security=broker.logins.security()).open()

        def tokens(connection: BlockingConnection) -> list[str]:
            answer = connection.request(describe_delegation_token.DescribeDelegationTokenRequest(owners=None))
            assert answer.error_code == 0
            return [token.token_id for token in answer.tokens]

        with closing(logged_in()) as connection:
            made = connection.request(create_delegation_token.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=7_200_000))
            broker.clock.advance("30 minutes")
            assert tokens(connection) == [made.token_id]
            broker.clock.advance("3 hours")  # tokens are looked at once an hour
            with pytest.raises(ClientError):  # its login is over
                tokens(connection)
        with closing(logged_in()) as connection:
            eventually(lambda: tokens(connection) == [])


def test_the_clock_of_a_cluster_is_moved_on_all_brokers(need_zookeeper: None) -> None:
    with Cluster(2) as cluster:
        topic = cluster.create_topic("short", partitions=2, **{"retention.ms": "3600000"})
        for partition in range(2):
            cluster.add_record(topic, "old", partition=partition)
        cluster.clock.advance("2 days")
        eventually(lambda: cluster.records(topic) == [])
        cluster.add_record(topic, "new", timestamp=int(cluster.clock.now().timestamp() * 1000))
        assert [record.value for record in cluster.records(topic)] == [b"new"]


@pytest.mark.parametrize(
    ("span", "expected_ms"),
    [
        ("7 days", 604_800_000), ("1h 30m", 5_400_000), ("500 ms", 500), ("2 weeks, 1 hour", 1_213_200_000), (1.5, 1_500), ("1.5s", 1_500),
        (timedelta(hours=1), 3_600_000),
    ],
)  # fmt: skip
def test_spans(span: str | float | timedelta, expected_ms: int) -> None:
    assert span_ms(span) == expected_ms


@pytest.mark.parametrize("span", ["", "7", "7 dogs", "days", "1h x"])
def test_what_is_no_span_is_refused_in_one_line(span: str) -> None:
    with pytest.raises(ValueError, match="is not a span of time such as"):
        span_ms(span)


@pytest.mark.parametrize("span", ["-1 day", -5, timedelta(days=-1)])
def test_time_does_not_go_back(broker: Broker, span: str | float | timedelta) -> None:
    with pytest.raises(ValueError, match="time only moves forward"):
        broker.clock.advance(span)


def test_a_broker_that_has_ended_has_no_clock() -> None:
    with Broker() as broker:
        control = broker.process.time
        os.kill(broker.process.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="because the broker has ended"):
            eventually(lambda: control.ask({}) is None)
    with pytest.raises(RuntimeError, match="because no broker is running"):
        broker.clock.advance("1 day")


def test_a_paused_broker_does_not_answer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as own:
        monkeypatch.setattr("ottla.testing.clock.ANSWER_SECONDS_MAX", 0.2)
        own.process.time._socket.settimeout(0.2)  # type: ignore[union-attr]
        with own.pause(), pytest.raises(RuntimeError, match=r"within 0 s; is the broker paused\?"):
            own.clock.now()
