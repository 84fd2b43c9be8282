"""Fetch sessions (KIP-227): what a fetcher named once is remembered, epochs fence, and the number of sessions is bounded."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.replication.fetch_sessions import EPOCH_MAX, PARTITIONS_MAX, SESSION_PARTITIONS_MAX, FetchSessions, next_epoch
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.fakes.randomness import SeededRandom

ALICE, MALLORY = "User:alice", "User:mallory"


def body(session_id: int, epoch: int, named: dict[str, dict[int, int]], forgotten: dict[str, list[int]] | None = None) -> FetchRequest:
    """`named`: topic -> partition -> fetch offset."""
    topics = [
        FetchTopic(topic=topic, partitions=[FetchPartition(partition=index, fetch_offset=offset) for index, offset in partitions.items()])
        for topic, partitions in named.items()
    ]
    gone = [ForgottenTopic(topic=topic, partitions=partitions) for topic, partitions in (forgotten or {}).items()]
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)


def sessions(limit: int = 10) -> FetchSessions:
    return FetchSessions(SeededRandom(1), limit)


def test_a_fetch_without_a_session_leaves_nothing_behind() -> None:
    cache = sessions()
    plan = cache.plan(body(0, -1, {"t": {0: 5}}), has_topic_ids=False, principal=ALICE)
    assert plan.session is None and not plan.is_incremental and [w.index for w in plan.wanted] == [0]
    assert len(cache) == 0


def test_an_incremental_request_names_only_what_changed() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5, 1: 6}, "u": {0: 7}}), has_topic_ids=False, principal=ALICE).session
    assert session is not None and session.epoch == 1
    plan = cache.plan(body(session.session_id, 1, {"t": {1: 9}, "v": {3: 1}}, {"u": [0]}), has_topic_ids=False, principal=ALICE)
    assert plan.is_incremental
    assert [(w.topic, w.index, w.partition.fetch_offset) for w in plan.wanted] == [("t", 0, 5), ("t", 1, 9), ("v", 3, 1)]


def test_epochs_and_ids_fence() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5}}), has_topic_ids=False, principal=ALICE).session
    assert session is not None
    assert cache.plan(body(session.session_id, 2, {}), has_topic_ids=False, principal=ALICE).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = cache.plan(body(session.session_id + 1, 1, {}), has_topic_ids=False, principal=ALICE)
    assert unknown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.plan(body(session.session_id, 1, {}), has_topic_ids=True, principal=ALICE).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, principal=ALICE).error == ErrorCode.NONE


def test_a_final_epoch_closes_the_session() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5}}), has_topic_ids=False, principal=ALICE).session
    assert session is not None
    cache.plan(body(session.session_id, -1, {"t": {0: 5}}), has_topic_ids=False, principal=ALICE)
    assert cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, principal=ALICE).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_session_evicts_the_least_recently_used() -> None:
    cache = sessions(limit=2)
    made = [cache.plan(body(0, 0, {"t": {0: 0}}), has_topic_ids=False, principal=ALICE).session for _ in range(2)]
    first, second = (session.session_id for session in made if session is not None)
    cache.plan(body(first, 1, {}), has_topic_ids=False, principal=ALICE)
    cache.plan(body(0, 0, {"t": {0: 0}}), has_topic_ids=False, principal=ALICE)
    assert len(cache) == 2
    assert cache.plan(body(second, 1, {}), has_topic_ids=False, principal=ALICE).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.plan(body(first, 2, {}), has_topic_ids=False, principal=ALICE).error == ErrorCode.NONE


def test_partitions_that_gave_data_move_behind_the_others() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 0, 1: 0, 2: 0}}), has_topic_ids=False, principal=ALICE).session
    assert session is not None
    session.move_to_end(("t", 0))
    assert [w.index for w in cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, principal=ALICE).wanted] == [1, 2, 0]


def test_an_epoch_wraps_past_zero() -> None:
    assert next_epoch(EPOCH_MAX) == 1


def test_a_partition_both_added_and_removed_is_removed() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5, 1: 6}}), has_topic_ids=False, principal=ALICE).session
    assert session is not None
    plan = cache.plan(body(session.session_id, 1, {"t": {0: 9}}, {"t": [0]}), has_topic_ids=False, principal=ALICE)
    assert [(w.topic, w.index) for w in plan.wanted] == [("t", 1)]


def test_a_session_begins_empty_and_ends_when_it_is_empty_again() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {}), has_topic_ids=False, principal=ALICE).session
    assert session is not None
    assert cache.plan(body(session.session_id, 1, {"t": {0: 5}}), has_topic_ids=False, principal=ALICE).session is session
    last = cache.plan(body(session.session_id, 2, {}, {"t": [0]}), has_topic_ids=False, principal=ALICE)
    assert (last.session, last.error, last.wanted, len(cache)) == (None, ErrorCode.NONE, [], 0)


def test_a_session_belongs_to_the_principal_that_opened_it() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5}}), has_topic_ids=False, principal=ALICE).session
    assert session is not None
    stolen = cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, principal=MALLORY)
    assert stolen.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not stolen.wanted
    for ending in (0, -1):
        cache.plan(body(session.session_id, ending, {"t": {0: 5}}), has_topic_ids=False, principal=MALLORY)
    assert cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, principal=ALICE).error == ErrorCode.NONE


def test_the_partitions_of_a_session_and_of_all_are_bounded() -> None:
    """A fetch of 10 MB of names kept 98 MiB for each of a thousand sessions."""
    cache = sessions(1000)
    wide = {"t": dict.fromkeys(range(SESSION_PARTITIONS_MAX + 1), 0)}
    plan = cache.plan(body(0, 0, wide), has_topic_ids=False, principal=ALICE)
    assert plan.session is None and len(plan.wanted) == SESSION_PARTITIONS_MAX + 1 and len(cache) == 0
    full = {"t": dict.fromkeys(range(SESSION_PARTITIONS_MAX), 0)}
    first = cache.plan(body(0, 0, full), has_topic_ids=False, principal=ALICE).session
    assert first is not None
    for _ in range(PARTITIONS_MAX // SESSION_PARTITIONS_MAX):
        assert cache.plan(body(0, 0, full), has_topic_ids=False, principal=ALICE).session is not None
    assert len(cache) == PARTITIONS_MAX // SESSION_PARTITIONS_MAX
    assert cache.plan(body(first.session_id, 1, {}), has_topic_ids=False, principal=ALICE).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_grows_too_wide_ends() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 0}}), has_topic_ids=False, principal=ALICE).session
    assert session is not None
    more = {"u": dict.fromkeys(range(SESSION_PARTITIONS_MAX), 0)}
    plan = cache.plan(body(session.session_id, 1, more), has_topic_ids=False, principal=ALICE)
    assert plan.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND and len(cache) == 0


def test_a_partition_named_twice_is_fetched_once_as_its_last_mention_says() -> None:
    cache = sessions()
    request = body(0, -1, {"t": {0: 5}})
    request.topics += body(0, -1, {"u": {0: 1}, "t": {0: 7}}).topics
    plan = cache.plan(request, has_topic_ids=False, principal=ALICE)
    assert [(wanted.topic, wanted.partition.fetch_offset) for wanted in plan.wanted] == [("t", 7), ("u", 1)]
