"""The requests of a fetcher to one leader for all partitions that follow it: sessions, changed partitions only, answers in any order,
pauses after errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.replication.fetcher import Fetcher, FollowerFetchLimits, SentFetch
from ottla.replication.partition import Partition
from ottla.replication.reads import EARLIEST_LOCAL, LATEST
from ottla.storage.log import Log
from ottla.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.records import Record, encode_batch
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings

TOPIC_ID = bytes(range(16))
LEADER, OWN, EPOCH = 1, 2, 5
BACKOFF_MS = 1_000


def partition(index: int, broker_id: int = OWN, topic_id: bytes = TOPIC_ID) -> Partition:
    key = TopicPartition("t", index)
    log = Log.open(MemDisk("/data"), f"/data/{key}", key, log_settings(), now_ms=0, was_clean=False, topic_id=topic_id)
    return Partition(log, broker_id=broker_id, request_flush=lambda _partition: None)


def follower(index: int, epoch: int = EPOCH) -> Partition:
    made = partition(index)
    follow(made, epoch)
    return made


def follow(replica: Partition, epoch: int) -> None:
    replica.become_follower(leader_id=LEADER, leader_epoch=epoch, partition_epoch=epoch, replicas=[1, 2], isr=[1, 2])


def records(*values: str, base: int = 0, epoch: int = EPOCH) -> bytes:
    """Returns one batch as it is in the leader's log."""
    data = encode_batch([Record(0, 0, None, value.encode()) for value in values])
    data[:8], data[12:16] = base.to_bytes(8, "big"), epoch.to_bytes(4, "big")
    return bytes(data)


def data(index: int, *, high_watermark: int = 0, batches: bytes = b"", **fields: Any) -> PartitionData:
    return PartitionData(
        partition_index=index, high_watermark=high_watermark, log_start_offset=0, records=batches, aborted_transactions=None, **fields
    )


def answer(*partitions: PartitionData, session_id: int = 77) -> FetchResponse:
    return FetchResponse(session_id=session_id, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))])


def refusal(index: int, code: ErrorCode) -> FetchResponse:
    return answer(data(index, error_code=code))


def bound(index: int, offset: int, code: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(partition_index=index, offset=offset, error_code=code)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


@pytest.fixture
def fetcher() -> Fetcher:
    limits = FollowerFetchLimits(bytes_max=1 << 20, response_bytes_max=10 << 20, bytes_min=1, wait_ms_max=500, backoff_ms=BACKOFF_MS)
    return Fetcher(LEADER, broker_id=OWN, broker_epoch=lambda: 42, limits=lambda: limits)


def fetch_of(sent: SentFetch | None) -> FetchRequest:
    assert sent is not None and isinstance(sent.body, FetchRequest)
    return sent.body


def named(sent: SentFetch | None) -> dict[int, tuple[int, int]]:
    """Returns the partitions in the request: the fetch offset, and the epoch of the last record."""
    parts = [one for topic in fetch_of(sent).topics for one in topic.partitions]
    return {one.partition: (one.fetch_offset, one.last_fetched_epoch) for one in parts}


def opened(fetcher: Fetcher, *replicas: Partition) -> SentFetch:
    """Opens a session with these replicas. Returns its first incremental request, which is in flight."""
    for replica in replicas:
        fetcher.follow(replica)
    full = fetcher.next_request(0)
    assert full is not None
    fetcher.on_answer(full, answer(*(data(one.topic_partition.partition) for one in replicas)), 0)
    sent = fetcher.next_request(0)
    assert sent is not None
    return sent


def test_the_first_request_names_everything_and_does_not_wait(fetcher: Fetcher) -> None:
    fetcher.follow(follower(0))
    fetcher.follow(follower(3))
    sent = fetcher.next_request(0)
    body = fetch_of(sent)
    assert named(sent) == {0: (0, -1), 3: (0, -1)}
    assert (body.session_id, body.session_epoch, body.max_wait_ms, body.max_bytes) == (0, 0, 0, 10 << 20)
    assert (body.replica_state.replica_id, body.replica_state.replica_epoch) == (OWN, 42)
    assert [one.current_leader_epoch for one in body.topics[0].partitions] == [EPOCH, EPOCH]
    assert fetcher.next_request(0) is None, "the session is not there yet"


def test_later_requests_name_what_has_changed_only(fetcher: Fetcher) -> None:
    first, second = follower(0), follower(1)
    sent = opened(fetcher, first, second)
    assert (fetch_of(sent).session_id, fetch_of(sent).session_epoch, fetch_of(sent).max_wait_ms) == (77, 1, 500)
    assert named(sent) == {}
    fetcher.on_answer(sent, answer(data(1, high_watermark=1, batches=records("a", "b"))), 0)
    assert (second.log.log_end_offset, second.high_watermark) == (2, 1)
    sent = fetcher.next_request(0)
    assert named(sent) == {1: (2, EPOCH)} and fetch_of(sent).session_epoch == 2
    assert sent is not None
    fetcher.on_answer(sent, answer(data(1, high_watermark=2)), 0)
    assert second.high_watermark == 2
    assert named(fetcher.next_request(0)) == {}, "a moved watermark is no reason to name the partition"


def test_a_partition_that_begins_to_follow_is_named_behind_the_request_that_waits(fetcher: Fetcher) -> None:
    waiting = opened(fetcher, follower(0))
    assert fetcher.next_request(0) is None
    fetcher.follow(follower(1))
    behind = fetcher.next_request(0)
    assert named(behind) == {1: (0, -1)} and fetch_of(behind).session_epoch == 2
    fetcher.follow(follower(2))
    assert fetcher.next_request(0) is None, "two are under way"
    fetcher.on_answer(waiting, answer(), 0)
    assert named(fetcher.next_request(0)) == {2: (0, -1)}


def test_i18_an_answer_of_an_earlier_term_changes_nothing(fetcher: Fetcher) -> None:
    replica = follower(0)
    waiting = opened(fetcher, replica)
    follow(replica, EPOCH + 1)
    fetcher.follow(replica)
    behind = fetcher.next_request(0)
    assert behind is not None
    fetcher.on_answer(waiting, answer(data(0, batches=records("old"))), 0)
    assert replica.log.log_end_offset == 0
    fetcher.on_answer(behind, answer(data(0, batches=records("new", epoch=EPOCH + 1))), 0)
    assert replica.log.log_end_offset == 1


def test_records_that_are_sent_twice_are_appended_once(fetcher: Fetcher) -> None:
    replica = follower(0)
    waiting = opened(fetcher, replica)
    replica.set_flush_on_ack(True)
    behind = fetcher.next_request(0)
    assert behind is not None
    fetcher.on_answer(waiting, answer(data(0, batches=records("a"))), 0)
    fetcher.on_answer(behind, answer(data(0, batches=records("a"))), 0)
    assert replica.log.log_end_offset == 1
    assert named(fetcher.next_request(0)) == {0: (1, EPOCH)}


def test_what_is_durable_is_reported_and_nothing_is_asked_for_with_it(fetcher: Fetcher) -> None:
    replica = follower(0)
    sent = opened(fetcher, replica)
    replica.set_flush_on_ack(True)
    fetcher.on_answer(sent, answer(data(0, batches=records("a", "b"))), 0)
    reports = []
    for step in (lambda: None, lambda: replica.on_flushed(2)):
        step()
        sent = fetcher.next_request(0) or sent
        [one] = [one for topic in fetch_of(sent).topics for one in topic.partitions]
        reports.append((one.fetch_offset, one.durable_end, one.partition_max_bytes))
    assert reports == [(2, 0, 1 << 20), (2, 2, 0)], "the second behind the first, which waits"


def test_a_follower_that_does_not_wait_for_its_disk_reports_nothing(fetcher: Fetcher) -> None:
    replica = follower(0)
    sent = opened(fetcher, replica)
    fetcher.on_answer(sent, answer(data(0, batches=records("a"))), 0)
    sent = fetcher.next_request(0) or sent
    assert [one.durable_end for topic in fetch_of(sent).topics for one in topic.partitions] == [-1]
    replica.on_flushed(1)
    assert fetcher.next_request(0) is None


def test_a_diverging_epoch_cuts_and_asks_again(fetcher: Fetcher) -> None:
    replica = follower(0)
    sent = opened(fetcher, replica)
    fetcher.on_answer(sent, answer(data(0, batches=records("a", epoch=3) + records("b", base=1, epoch=4))), 0)
    sent = fetcher.next_request(0) or sent
    assert named(sent) == {0: (2, 4)}
    fetcher.on_answer(sent, answer(data(0, diverging_epoch=EpochEndOffset(epoch=3, end_offset=1))), 0)
    assert replica.log.log_end_offset == 1
    assert named(fetcher.next_request(0)) == {0: (1, 3)}


def test_out_of_range_asks_for_start_and_end_and_begins_again(fetcher: Fetcher) -> None:
    replica = follower(0)
    sent = opened(fetcher, replica)
    fetcher.on_answer(sent, refusal(0, ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    for timestamp, offset in ((EARLIEST_LOCAL, 10), (LATEST, 30)):
        asked = fetcher.next_request(0)
        assert asked is not None and isinstance(asked.body, ListOffsetsRequest)
        assert asked.body.replica_id == OWN
        assert [one.timestamp for topic in asked.body.topics for one in topic.partitions] == [timestamp]
        assert fetcher.next_request(0) is None
        fetcher.on_answer(asked, bound(0, offset), 0)
    assert (replica.log.log_start_offset, replica.log.log_end_offset) == (10, 10)
    assert named(fetcher.next_request(0)) == {0: (10, -1)}


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_leader_that_does_not_know_yet_is_asked_again_soon_and_then_less_often(fetcher: Fetcher, code: ErrorCode) -> None:
    sent: SentFetch | None = opened(fetcher, follower(0), follower(1))
    now_ms = 0
    for rest_ms in (10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS):
        assert sent is not None
        fetcher.on_answer(sent, refusal(0, code), now_ms)
        sent = fetcher.next_request(now_ms)
        assert named(sent) == {}, "the other one is fetched on"
        assert [topic.partitions for topic in fetch_of(sent).forgotten_topics_data] == [[0]]
        assert fetcher.wake_at_ms(now_ms) == now_ms + rest_ms
        assert fetcher.next_request(now_ms + rest_ms - 1) is None
        now_ms += rest_ms
        assert sent is not None
        fetcher.on_answer(sent, answer(), now_ms)
        sent = fetcher.next_request(now_ms)
        assert named(sent) == {0: (0, -1)}


def test_other_errors_rest_for_the_whole_pause(fetcher: Fetcher) -> None:
    sent = opened(fetcher, follower(0))
    fetcher.on_answer(sent, refusal(0, ErrorCode.KAFKA_STORAGE_ERROR), 0)
    assert fetcher.wake_at_ms(0) == BACKOFF_MS


def test_a_fenced_partition_is_asked_for_no_more_until_its_next_term(fetcher: Fetcher) -> None:
    replica = follower(0)
    sent = opened(fetcher, replica, follower(1))
    fetcher.on_answer(sent, refusal(0, ErrorCode.FENCED_LEADER_EPOCH), 0)
    sent = fetcher.next_request(0) or sent
    assert named(sent) == {} and fetcher.wake_at_ms(0) is None
    follow(replica, EPOCH + 1)
    fetcher.follow(replica)
    assert named(fetcher.next_request(0)) == {0: (0, -1)}


@pytest.mark.parametrize(
    "batches", [b"\x00" * 200, records("a")[:-1], records("a")[:40] + b"?" + records("a")[41:]], ids=("zeros", "cut", "bent")
)
def test_bytes_that_are_no_batches_change_nothing_and_rest(fetcher: Fetcher, batches: bytes) -> None:
    """Bytes from a peer never cause an assertion to fail, and never take the replica offline."""
    replica = follower(0)
    sent = opened(fetcher, replica)
    fetcher.on_answer(sent, answer(data(0, batches=batches)), 0)
    assert replica.log.log_end_offset == 0 and replica.is_online
    assert fetcher.wake_at_ms(0) == BACKOFF_MS


@pytest.mark.parametrize("fields", [{"high_watermark": -5}, {"high_watermark": 1 << 60}, {"error_code": 12_345}])
def test_impossible_fields_break_nothing(fetcher: Fetcher, fields: dict[str, int]) -> None:
    replica = follower(0)
    sent = opened(fetcher, replica)
    fetcher.on_answer(sent, answer(data(0, **fields), data(9)), 0)  # type: ignore[arg-type]
    assert (replica.high_watermark, replica.log.log_end_offset) == (0, 0)


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_lost_session_is_opened_anew_at_once(fetcher: Fetcher, code: ErrorCode) -> None:
    sent = opened(fetcher, follower(0), follower(1))
    fetcher.on_answer(sent, FetchResponse(error_code=code), 0)
    full = fetcher.next_request(0)
    assert named(full) == {0: (0, -1), 1: (0, -1)} and fetch_of(full).session_epoch == 0
    assert full is not None
    fetcher.on_answer(full, FetchResponse(error_code=code), 0)
    assert fetcher.next_request(0) is None and fetcher.wake_at_ms(0) == 20, "not again and again without a pause"


def test_a_lost_connection_rests_longer_each_time_and_names_everything(fetcher: Fetcher) -> None:
    sent: SentFetch | None = opened(fetcher, follower(0), follower(1))
    fetcher.follow(follower(2))
    behind = fetcher.next_request(0)
    assert sent is not None and behind is not None
    fetcher.on_failure(sent, ErrorCode.NETWORK_EXCEPTION, 0)
    fetcher.on_failure(behind, ErrorCode.NETWORK_EXCEPTION, 0)
    now_ms = 0
    for rest_ms in (10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS):
        assert fetcher.next_request(now_ms) is None and fetcher.wake_at_ms(now_ms) == now_ms + rest_ms
        now_ms += rest_ms
        sent = fetcher.next_request(now_ms)
        assert set(named(sent)) == {0, 1, 2} and fetch_of(sent).session_epoch == 0
        assert sent is not None
        fetcher.on_failure(sent, ErrorCode.NETWORK_EXCEPTION, now_ms)


def test_a_partition_that_stops_is_forgotten_and_the_last_one_ends_the_session(fetcher: Fetcher) -> None:
    sent = opened(fetcher, follower(0), follower(1))
    fetcher.stop((TOPIC_ID, 1))
    behind = fetcher.next_request(0)
    assert [topic.partitions for topic in fetch_of(behind).forgotten_topics_data] == [[1]]
    fetcher.stop((TOPIC_ID, 0))
    assert behind is not None
    fetcher.on_answer(sent, answer(data(1, batches=records("late"))), 0)
    fetcher.on_answer(behind, answer(), 0)
    last = fetcher.next_request(0)
    assert (fetch_of(last).session_id, fetch_of(last).session_epoch) == (77, -1)
    assert last is not None and not fetcher.is_idle
    fetcher.on_answer(last, FetchResponse(), 0)
    assert fetcher.is_idle and fetcher.next_request(0) is None


def test_a_replica_that_goes_offline_is_dropped(fetcher: Fetcher) -> None:
    replica = follower(0)
    sent = opened(fetcher, replica, follower(1))
    replica.go_offline("its disk failed")
    fetcher.on_answer(sent, answer(data(0, batches=records("a"))), 0)
    sent = fetcher.next_request(0) or sent
    assert [topic.partitions for topic in fetch_of(sent).forgotten_topics_data] == [[0]]
    assert replica.log.log_end_offset == 0


@pytest.fixture(params=range(3))
def codes(request: pytest.FixtureRequest) -> Iterator[ErrorCode]:
    yield (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)[request.param]


def test_a_refused_request_is_repeated_after_a_rest(fetcher: Fetcher, codes: ErrorCode) -> None:
    sent = opened(fetcher, follower(0))
    fetcher.on_answer(sent, FetchResponse(error_code=codes), 0)
    assert fetcher.next_request(0) is None
    assert named(fetcher.next_request(10)) == {0: (0, -1)}


def test_the_lag_is_what_the_leader_has_committed_and_this_log_has_not(fetcher: Fetcher) -> None:
    sent = opened(fetcher, follower(0), follower(1))
    fetcher.on_answer(sent, answer(data(1, high_watermark=9, batches=records("a", "b"))), 0)
    assert fetcher.lag_max == 7 and fetcher.bytes_in == len(records("a", "b"))
