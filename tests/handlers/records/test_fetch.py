"""Fetch: bounds of an answer, waiting, an isolation level that also holds after the wait (KAFKA-5376), and sessions that send only what
changed."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.config import BrokerConfig, load
from ottla.base.errors import ErrorCode
from ottla.handlers.context import Pending, RequestContext
from ottla.handlers.records import fetch
from ottla.handlers.records.fetch import handle
from ottla.replication.progress import FollowerFetch
from ottla.security.acl import AclOperation
from ottla.security.quotas.clients import ClientQuotas
from ottla.security.quotas.rates import Windows
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState
from ottla.wire.records import read_records
from tests.fakes.answers import answer_of
from tests.fakes.authorizer import StrictAuthorizer
from tests.handlers.records_world import TOPIC_ID, RecordsWorld, batch, request

BIG = b"x" * 1000


def body(
    offsets: dict[int, int], *, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20, partition_bytes: int = 1 << 20,
    isolation: int = 0, session: tuple[int, int] = (0, -1), topic: str = "t",
) -> FetchRequest:  # fmt: skip
    partitions = [FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=partition_bytes) for i, offset in offsets.items()]
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=isolation, session_id=session[0],
        session_epoch=session[1], topics=[FetchTopic(topic=topic, topic_id=TOPIC_ID, partitions=partitions)] if partitions else [],
    )  # fmt: skip


def session_that_ends(world: RecordsWorld, in_ms: int) -> RequestContext:
    context = request(12)
    context.connection.session_ends_ms = world.clock.monotonic_ms() + in_ms
    return context


@pytest.mark.parametrize(("left_ms", "waits_ms"), [(200, 200), (900, 500), (-5, 0)])
def test_a_wait_ends_with_the_session_of_its_client(left_ms: int, waits_ms: int) -> None:
    world = RecordsWorld()
    pending = handle(world.broker, session_that_ends(world, left_ms), body({0: 0}, wait_ms=500))
    world.timers.advance(max(waits_ms - 1, 0))
    assert isinstance(pending, Pending) and pending.is_done == (waits_ms == 0)
    world.timers.advance(1)
    assert pending.is_done and len(results(pending.response)) == 1


def results(answer: object) -> list[PartitionData]:
    assert isinstance(answer, FetchResponse)
    return [partition for topic in answer.responses for partition in topic.partitions]


def values(result: PartitionData) -> list[bytes | None]:
    data = result.records.read() if hasattr(result.records, "read") else bytes(result.records or b"")
    found = []
    while len(data) > 61:
        size = 12 + int.from_bytes(data[8:12], "big")
        if size > len(data):
            break
        found += [record.value for record in read_records(data[:size])]
        data = data[size:]
    return found


def append(world: RecordsWorld, index: int, *payload: bytes) -> None:
    world.partitions[index].require_leading().append(batch(*payload), acks=1, now_ms=world.clock.wall_ms())


def test_records_below_the_high_watermark() -> None:
    world = RecordsWorld()
    append(world, 0, b"a", b"b")
    append(world, 0, b"c")
    (result,) = results(handle(world.broker, request(12), body({0: 0})))
    assert values(result) == [b"a", b"b", b"c"] and result.high_watermark == 3 and result.aborted_transactions is None
    (tail,) = results(handle(world.broker, request(12), body({0: 2})))
    assert values(tail) == [b"c"]


def test_an_answer_at_the_end_is_empty_not_null() -> None:
    world = RecordsWorld()
    (result,) = results(handle(world.broker, request(12), body({0: 0})))
    assert result.error_code == 0 and result.records == b""


@pytest.mark.parametrize(
    ("version", "index", "offset", "topic", "code"),
    [
        (12, 0, 5, "t", ErrorCode.OFFSET_OUT_OF_RANGE),
        (12, 0, -2, "t", ErrorCode.OFFSET_OUT_OF_RANGE),
        (12, 9, 0, "t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12, 0, 0, "u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_error_is_answered_at_once(version: int, index: int, offset: int, topic: str, code: ErrorCode) -> None:
    world = RecordsWorld()
    (result,) = results(handle(world.broker, request(version), body({index: offset}, wait_ms=500, topic=topic)))
    assert result.error_code == code
    assert result.aborted_transactions == ([] if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None), "as in Kafka"


def test_max_bytes_bounds_the_answer_but_one_batch_always_comes() -> None:
    world = RecordsWorld()
    for index in (0, 1):
        append(world, index, BIG)
        append(world, index, BIG)
    first, second = results(handle(world.broker, request(12), body({0: 0, 1: 0}, max_bytes=100)))
    assert values(first) == [BIG] and values(second) == []
    first, second = results(handle(world.broker, request(12), body({0: 0, 1: 0}, partition_bytes=1200)))
    assert values(first) == [BIG] and values(second) == [BIG]


def test_a_fetch_waits_and_is_answered_by_the_next_append() -> None:
    world = RecordsWorld()
    pending = handle(world.broker, request(12), body({0: 0, 1: 0}, wait_ms=500))
    assert isinstance(pending, Pending)
    append(world, 1, b"late")
    world.timers.run_due()
    assert pending.is_done and [values(result) for result in results(pending.response)] == [[], [b"late"]]
    append(world, 1, b"later")
    world.timers.advance(600)
    assert not world.waiters.deadlines.waits(), "a fetch that was answered waits no more"


def test_min_bytes_and_max_wait() -> None:
    world = RecordsWorld()
    pending = handle(world.broker, request(12), body({0: 0}, wait_ms=500, min_bytes=1500))
    assert isinstance(pending, Pending)
    append(world, 0, BIG)
    world.timers.run_due()
    assert not pending.is_done
    world.timers.advance(501)
    assert pending.is_done and values(results(pending.response)[0]) == [BIG]


def test_kafka_5376_isolation_is_carried_through_the_wait() -> None:
    world = RecordsWorld()
    pending = handle(world.broker, request(12), body({0: 0}, wait_ms=500, isolation=1))
    assert isinstance(pending, Pending)
    open_batch = batch(b"dirty", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition = world.partitions[0]
    guard = partition.require_leading().begin_verification(7, 0, 0)
    partition.require_leading().append(open_batch, acks=1, now_ms=world.clock.wall_ms(), guard=guard)
    world.timers.run_due()
    assert not pending.is_done, "open transactions are not for readers of committed data"
    partition.require_leading().write_marker(7, 0, 0, False, world.clock.wall_ms())
    world.timers.run_due()
    assert pending.is_done
    (result,) = results(pending.response)
    assert result.last_stable_offset == 2
    assert [(a.producer_id, a.first_offset) for a in result.aborted_transactions or []] == [(7, 0)]


def abort_some(world: RecordsWorld, index: int, count: int) -> None:
    """Writes and aborts one transaction for each of `count` producers, one after the other."""
    leader = world.partitions[index].require_leading()
    for producer_id in range(count):
        records = batch(b"dirty", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        guard = leader.begin_verification(producer_id, 0, 0)
        leader.append(records, acks=1, now_ms=world.clock.wall_ms(), guard=guard)
        leader.write_marker(producer_id, 0, 0, False, world.clock.wall_ms())


@pytest.mark.parametrize("is_in_steps", [False, True])
def test_aborted_transactions_bound_the_answer_over_all_partitions(monkeypatch: pytest.MonkeyPatch, is_in_steps: bool) -> None:
    monkeypatch.setattr(fetch, "ABORTED_MAX", 5)
    if is_in_steps:
        monkeypatch.setattr(fetch, "SESSION_PARTITIONS_MAX", 1)
        monkeypatch.setattr(fetch, "ITEMS_PER_STEP", 1)
    world = RecordsWorld()
    for index in (0, 1):
        abort_some(world, index, 8)
    asked = body({0: 0, 1: 0}, isolation=1)
    answer = answer_of(handle(world.broker, request(12), asked))
    assert [len(result.aborted_transactions or ()) for result in results(answer)] == [8, 0]
    assert [bool(result.records) for result in results(answer)] == [True, False]


def test_a_session_repeats_nothing() -> None:
    world = RecordsWorld()
    append(world, 0, b"a")
    first = handle(world.broker, request(12), body({0: 0, 1: 0}, session=(0, 0)))
    assert isinstance(first, FetchResponse) and first.session_id != 0
    assert len(results(first)) == 2
    second = handle(world.broker, request(12), body({0: 1}, session=(first.session_id, 1)))
    assert isinstance(second, FetchResponse) and results(second) == []
    append(world, 1, b"b")
    third = handle(world.broker, request(12), body({}, session=(first.session_id, 2)))
    assert [(result.partition_index, values(result)) for result in results(third)] == [(1, [b"b"])]


def test_a_followers_progress_is_taken_once_for_each_of_its_requests() -> None:
    """A waiting fetch is tried again at each change, but the request still reports the same progress of the follower."""
    world = RecordsWorld(partitions=1)
    partition = world.partitions[0]
    partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=(0, 1), isr=(0, 1), now_ms=0)
    asked = body({0: 0}, wait_ms=500, min_bytes=1000)
    asked.replica_state = ReplicaState(replica_id=1, replica_epoch=7)
    asked.topics[0].partitions[0].log_start_offset = 0
    as_follower = request(15)
    as_follower.connection.is_inter_broker = True
    fetched_ms = world.clock.monotonic_ms()
    pending = handle(world.broker, as_follower, asked)
    assert isinstance(pending, Pending)
    progress = partition.require_leading().followers[1]
    assert (progress.log_end_offset, progress.broker_epoch, progress.log_start_offset) == (0, 7, 0)
    for _ in range(2):
        world.timers.advance(100)
        append(world, 0, b"v")
        world.timers.run_due()
    assert not pending.is_done
    assert (progress.last_fetch_ms, progress.last_caught_up_ms, progress.last_fetch_leader_end) == (fetched_ms, fetched_ms, 0)
    append(world, 0, BIG)
    world.timers.run_due()
    assert [values(result) for result in results(pending.response)] == [[b"v", b"v", BIG]]
    assert progress.last_fetch_ms == fetched_ms and partition.high_watermark == 0


def test_a5_a_client_that_speaks_as_a_replica_is_refused() -> None:
    world = RecordsWorld()
    asked = body({0: 0})
    asked.replica_id = 1
    answer = handle(world.broker, request(12), asked)
    assert isinstance(answer, FetchResponse) and answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    asked = body({0: 0}, topic="")
    asked.replica_state = ReplicaState(replica_id=1)
    answer = handle(world.broker, request(16), asked)
    assert isinstance(answer, FetchResponse) and answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_topic_ids_since_version_13() -> None:
    world = RecordsWorld()
    append(world, 0, b"a")
    answer = handle(world.broker, request(13), body({0: 0}, topic=""))
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].topic_id == TOPIC_ID and values(results(answer)[0]) == [b"a"]


# Rights


def test_a_consumer_needs_the_right_to_read() -> None:
    world = RecordsWorld()
    append(world, 0, b"secret")
    world.broker.authorizer = StrictAuthorizer(AclOperation.READ)
    for version in (12, 13):
        (refused,) = results(handle(world.broker, request(version), body({0: 0}, wait_ms=500)))
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not refused.records and refused.high_watermark == -1
    (unknown,) = results(handle(world.broker, request(12), body({0: 0}, topic="not-there")))
    assert unknown.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "whether there is such a topic is not shown"


def test_the_right_to_read_is_asked_again_when_a_reader_is_woken() -> None:
    world = RecordsWorld()
    world.broker.authorizer = StrictAuthorizer()
    pending = handle(world.broker, request(12), body({0: 0}, wait_ms=500))
    assert isinstance(pending, Pending)
    world.broker.authorizer.denied.add("t")
    append(world, 0, b"secret")
    world.timers.run_due()
    assert pending.is_done and results(pending.response)[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_right_to_read_is_asked_at_each_step_of_a_session() -> None:
    world = RecordsWorld()
    append(world, 0, b"public")
    world.broker.authorizer = StrictAuthorizer()
    first = handle(world.broker, request(12), body({0: 0}, session=(0, 0)))
    assert isinstance(first, FetchResponse) and values(results(first)[0]) == [b"public"]
    world.broker.authorizer.denied.add("t")
    append(world, 0, b"secret")
    (refused,) = results(handle(world.broker, request(12), body({}, session=(first.session_id, 1))))
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not refused.records


def test_a_replica_needs_the_right_of_a_broker_and_no_other() -> None:
    world = RecordsWorld()
    append(world, 0, b"a")
    from_replica = body({0: 0})
    from_replica.replica_id = 0
    world.broker.authorizer = StrictAuthorizer(AclOperation.CLUSTER_ACTION)
    answer = handle(world.broker, request(12), from_replica)
    assert isinstance(answer, FetchResponse) and answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not answer.responses
    world.broker.authorizer = StrictAuthorizer(AclOperation.READ)
    handle(world.broker, request(12), from_replica)
    assert {asked[0] for asked in world.broker.authorizer.asked} == {AclOperation.CLUSTER_ACTION}


def run(steps: Generator[None, None, FetchResponse | Pending]) -> FetchResponse | Pending:
    while True:
        try:
            next(steps)
        except StopIteration as over:
            answer: FetchResponse | Pending = over.value
            return answer


# Reading from the closest replica (KIP-392)

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = {0: "a", 1: "b", 2: "b", 3: "c"}


@pytest.fixture
def racks() -> RecordsWorld:
    """Partition 0 has five records. Broker 0 in rack a leads it; brokers 1 and 2 in rack b are in sync, broker 3 in rack c is not."""
    world = RecordsWorld()
    world.broker.config = load(assignments=[f"replica.selector.class={RACK_AWARE}"])[0]
    world.broker.metadata.brokers = {number: BrokerMetadata(broker_id=number, endpoints={}, rack=rack) for number, rack in RACKS.items()}
    partition = world.partitions[0]
    partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=(0, 1, 2, 3), isr=(0, 1, 2), now_ms=0)
    for value in (b"1", b"2", b"3", b"4", b"5"):
        append(world, 0, value)
    for replica_id, end in ((1, 4), (2, 5), (3, 5)):
        partition.note_follower(FollowerFetch(replica_id, 1, end, 0, 0))
    return world


def preferred(world: RecordsWorld, offset: int, rack: str, version: int = 12) -> tuple[int, int]:
    """Returns the broker that the answer names, and the number of bytes of records in the answer."""
    asked = body({0: offset}, wait_ms=500)
    asked.rack_id = rack
    (result,) = results(handle(world.broker, request(version), asked))
    return result.preferred_read_replica, len(result.records or b"")


def test_kip_392_a_reader_is_sent_to_the_replica_of_its_rack_that_is_furthest(racks: RecordsWorld) -> None:
    assert preferred(racks, 0, "b") == (2, 0)
    racks.partitions[0].require_leading().followers[2].log_start_offset = 3
    assert preferred(racks, 0, "b") == (1, 0), "2 has the offset no more"
    assert preferred(racks, 3, "b") == (2, 0)


@pytest.mark.parametrize("rack", ["a", "c", "elsewhere", ""])
def test_kip_392_the_leader_serves_its_own_rack_and_those_without_a_replica_in_sync(racks: RecordsWorld, rack: str) -> None:
    named, size = preferred(racks, 0, rack)
    assert named == -1 and size > 0


def test_kip_392_without_the_selector_no_reader_is_sent_away(racks: RecordsWorld) -> None:
    racks.broker.config = BrokerConfig()
    assert preferred(racks, 0, "b")[0] == -1


def test_kip_392_a_follower_answers_up_to_the_watermark_that_it_knows(racks: RecordsWorld) -> None:
    partition = racks.partitions[0]
    watermark = partition.high_watermark
    assert watermark == 4
    partition.become_follower(leader_id=1, leader_epoch=2, partition_epoch=2, replicas=(0, 1, 2, 3), isr=(0, 1, 2))
    (result,) = results(handle(racks.broker, request(12), body({0: 0})))
    assert (result.error_code, result.high_watermark) == (0, watermark)
    (old,) = results(handle(racks.broker, request(10), body({0: 0})))
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "before version 11 readers know of leaders only"
    (beyond,) = results(handle(racks.broker, request(12), body({0: 6})))
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "the reader goes back to the leader"
    fenced = body({0: 0})
    fenced.topics[0].partitions[0].current_leader_epoch = 1
    (result,) = results(handle(racks.broker, request(12), fenced))
    assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
    partition.become_follower(leader_id=-1, leader_epoch=3, partition_epoch=3, replicas=(0, 1, 2, 3), isr=(0, 1, 2))
    (result,) = results(handle(racks.broker, request(12), body({0: 0})))
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "no leader, no promise"


# Quotas


def limited(world: RecordsWorld, rate: float) -> ClientQuotas:
    """Gives the client a quota of bytes a second, measured over eleven seconds."""
    quotas = world.broker.quotas = ClientQuotas(world.clock.monotonic_ms, Windows(11, 1000), Windows(11, 1000))
    quotas.update({(("client-id", "test"),): {"consumer_byte_rate": rate}})
    return quotas


def throttled(answer: object) -> int:
    """Returns the throttle time of an answer, which must have no partitions."""
    assert isinstance(answer, FetchResponse)
    assert answer.responses == [] and answer.error_code == 0
    return answer.throttle_time_ms


def exceeded(world: RecordsWorld) -> ClientQuotas:
    """Gives the client a quota that it has used up for long."""
    quotas = limited(world, 1)
    quotas.charge_fetch("User:ANONYMOUS", "test", 5000, is_sent=True)
    return quotas


def test_a_consumer_over_its_quota_gets_an_empty_answer_and_its_records_later() -> None:
    world = RecordsWorld()
    append(world, 0, BIG)
    limited(world, 100)
    first = handle(world.broker, request(12), body({0: 0}))
    assert isinstance(first, FetchResponse) and first.throttle_time_ms == 0 and len(results(first)) == 1
    throttle_ms = throttled(handle(world.broker, request(12), body({0: 0})))
    assert 0 < throttle_ms < 2000
    assert world.partitions[0].traffic.bytes_out < 2000, "what is not sent is not counted"
    world.clock.advance(throttle_ms)
    (later,) = results(handle(world.broker, request(12), body({0: 0})))
    assert values(later) == [BIG]


def test_a_batch_that_is_larger_than_all_windows_is_sent_and_owed() -> None:
    world = RecordsWorld()
    append(world, 0, BIG)
    limited(world, 1)
    (result,) = results(handle(world.broker, request(12), body({0: 0})))
    assert values(result) == [BIG]
    assert 900_000 < throttled(handle(world.broker, request(12), body({0: 0}))) < 1_200_000


def test_a_fetch_is_no_larger_than_the_windows() -> None:
    world = RecordsWorld()
    for _ in range(10):
        append(world, 0, BIG)
    limited(world, 250)
    (result,) = results(handle(world.broker, request(12), body({0: 0}, min_bytes=10_000)))
    assert len(values(result)) == 2, "2,500 bytes, and no wait for the 10,000 that would never come"


def test_a_session_goes_on_after_an_empty_answer() -> None:
    world = RecordsWorld()
    append(world, 0, BIG)
    first = handle(world.broker, request(12), body({0: 0}, session=(0, 0)))
    assert isinstance(first, FetchResponse)
    quotas = exceeded(world)
    assert throttled(handle(world.broker, request(12), body({}, session=(first.session_id, 1)))) > 0
    quotas.update({})
    second = handle(world.broker, request(12), body({}, session=(first.session_id, 2)))
    assert isinstance(second, FetchResponse) and second.session_id == first.session_id
    (result,) = results(second)
    assert values(result) == [BIG]


def test_a_throttled_fetch_opens_no_session() -> None:
    world = RecordsWorld()
    append(world, 0, BIG)
    exceeded(world)
    answer = handle(world.broker, request(12), body({0: 0}, session=(0, 0)))
    assert isinstance(answer, FetchResponse)
    assert throttled(answer) > 0 and answer.session_id == 0
    assert len(world.broker.fetch_sessions) == 0


def test_a_fetch_that_waited_is_throttled_when_it_is_answered() -> None:
    world = RecordsWorld()
    exceeded(world)
    pending = handle(world.broker, request(12), body({0: 0}, wait_ms=500))
    assert isinstance(pending, Pending)
    append(world, 0, BIG)
    world.timers.run_due()
    assert throttled(pending.response) > 0


def test_other_clients_and_empty_answers_are_not_throttled() -> None:
    world = RecordsWorld()
    append(world, 0, BIG)
    quotas = exceeded(world)
    answer = handle(world.broker, request(12), body({1: 0}))
    assert isinstance(answer, FetchResponse) and answer.throttle_time_ms == 0
    quotas.update({(("client-id", "another"),): {"consumer_byte_rate": 1}})
    (result,) = results(handle(world.broker, request(12), body({0: 0})))
    assert values(result) == [BIG]
