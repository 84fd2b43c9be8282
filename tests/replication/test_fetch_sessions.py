"""Fetch sessions (KIP-227): the partitions that a fetcher has named are remembered, requests with a wrong epoch are refused, and the number
of sessions is limited."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.identifiers import TOPIC_NAME_CHARACTERS_MAX
from ottla.replication.fetch_sessions import (
    EPOCH_MAX,
    PARTITIONS_MAX,
    SESSION_PARTITIONS_MAX,
    FetchSessions,
    next_epoch,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.fakes.randomness import SeededRandom


class Peer(NamedTuple):
    """The connection of a client."""

    principal: str
    host: str = "10.0.0.1"
    port: int = 1000

    @property
    def identity(self) -> str:
        return f"{self.host}:{self.port}"


ALICE, MALLORY = Peer("User:alice"), Peer("User:mallory", "10.0.0.2")


def body(session_id: int, epoch: int, named: dict[str, dict[int, int]], forgotten: dict[str, list[int]] | None = None) -> FetchRequest:
    """`named`: topic -> partition -> fetch offset."""
    topics = [
        FetchTopic(topic=topic, partitions=[FetchPartition(partition=index, fetch_offset=offset) for index, offset in partitions.items()])
        for topic, partitions in named.items()
    ]
    gone = [ForgottenTopic(topic=topic, partitions=partitions) for topic, partitions in (forgotten or {}).items()]
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)


def sessions(limit: int = 10, partitions_max: int = PARTITIONS_MAX) -> FetchSessions:
    return FetchSessions(SeededRandom(1), limit, partitions_max)


def test_a_fetch_without_a_session_leaves_nothing_behind() -> None:
    cache = sessions()
    plan = cache.plan(body(0, -1, {"t": {0: 5}}), has_topic_ids=False, client=ALICE)
    assert plan.session is None and not plan.is_incremental and [w.index for w in plan.wanted] == [0]
    assert len(cache) == 0


def test_an_incremental_request_names_only_what_changed() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5, 1: 6}, "u": {0: 7}}), has_topic_ids=False, client=ALICE).session
    assert session is not None and session.epoch == 1
    plan = cache.plan(body(session.session_id, 1, {"t": {1: 9}, "v": {3: 1}}, {"u": [0]}), has_topic_ids=False, client=ALICE)
    assert plan.is_incremental
    assert [(w.topic, w.index, w.partition.fetch_offset) for w in plan.wanted] == [("t", 0, 5), ("t", 1, 9), ("v", 3, 1)]


def test_no_session_keeps_a_name_that_no_topic_can_have() -> None:
    """Formerly 400 sessions with 200 names of 20 kB each took 1.6 GB."""
    cache, longest = sessions(), "t" * TOPIC_NAME_CHARACTERS_MAX
    plan = cache.plan(body(0, 0, {"u": {0: 1}, longest + "t": {0: 1}}), has_topic_ids=False, client=ALICE)
    assert plan.session is None and len(plan.wanted) == 2 and len(cache) == 0
    session = cache.plan(body(0, 0, {longest: {0: 1}}), has_topic_ids=False, client=ALICE).session
    assert session is not None
    more = cache.plan(body(session.session_id, 1, {longest + "t": {0: 1}}), has_topic_ids=False, client=ALICE)
    assert more.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and len(cache) == 0


def test_epochs_and_ids_fence() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5}}), has_topic_ids=False, client=ALICE).session
    assert session is not None
    assert cache.plan(body(session.session_id, 2, {}), has_topic_ids=False, client=ALICE).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = cache.plan(body(session.session_id + 1, 1, {}), has_topic_ids=False, client=ALICE)
    assert unknown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.plan(body(session.session_id, 1, {}), has_topic_ids=True, client=ALICE).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, client=ALICE).error == ErrorCode.NONE


def test_a_final_epoch_closes_the_session() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5}}), has_topic_ids=False, client=ALICE).session
    assert session is not None
    cache.plan(body(session.session_id, -1, {"t": {0: 5}}), has_topic_ids=False, client=ALICE)
    assert cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, client=ALICE).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_session_evicts_the_least_recently_used() -> None:
    cache = sessions(limit=2)
    made = [cache.plan(body(0, 0, {"t": {0: 0}}), has_topic_ids=False, client=ALICE).session for _ in range(2)]
    first, second = (session.session_id for session in made if session is not None)
    cache.plan(body(first, 1, {}), has_topic_ids=False, client=ALICE)
    cache.plan(body(0, 0, {"t": {0: 0}}), has_topic_ids=False, client=ALICE)
    assert len(cache) == 2
    assert cache.plan(body(second, 1, {}), has_topic_ids=False, client=ALICE).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.plan(body(first, 2, {}), has_topic_ids=False, client=ALICE).error == ErrorCode.NONE


def test_partitions_that_gave_data_move_behind_the_others() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 0, 1: 0, 2: 0}}), has_topic_ids=False, client=ALICE).session
    assert session is not None
    session.move_to_end(("t", 0))
    assert [w.index for w in cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, client=ALICE).wanted] == [1, 2, 0]


def test_an_epoch_wraps_past_zero() -> None:
    assert next_epoch(EPOCH_MAX) == 1


def test_a_partition_both_added_and_removed_is_removed() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5, 1: 6}}), has_topic_ids=False, client=ALICE).session
    assert session is not None
    plan = cache.plan(body(session.session_id, 1, {"t": {0: 9}}, {"t": [0]}), has_topic_ids=False, client=ALICE)
    assert [(w.topic, w.index) for w in plan.wanted] == [("t", 1)]


def test_a_session_begins_empty_and_ends_when_it_is_empty_again() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {}), has_topic_ids=False, client=ALICE).session
    assert session is not None
    assert cache.plan(body(session.session_id, 1, {"t": {0: 5}}), has_topic_ids=False, client=ALICE).session is session
    last = cache.plan(body(session.session_id, 2, {}, {"t": [0]}), has_topic_ids=False, client=ALICE)
    assert (last.session, last.error, last.wanted, len(cache)) == (None, ErrorCode.NONE, [], 0)


def test_a_session_belongs_to_the_principal_that_opened_it() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 5}}), has_topic_ids=False, client=ALICE).session
    assert session is not None
    stolen = cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, client=MALLORY)
    assert stolen.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not stolen.wanted
    for ending in (0, -1):
        cache.plan(body(session.session_id, ending, {"t": {0: 5}}), has_topic_ids=False, client=MALLORY)
    assert cache.plan(body(session.session_id, 1, {}), has_topic_ids=False, client=ALICE).error == ErrorCode.NONE


def test_the_partitions_of_a_session_and_of_all_are_bounded() -> None:
    """Formerly a fetch with 10 MB of names kept 98 MiB, and a client could open a thousand such sessions."""
    cache = sessions(1000)
    wide = {"t": dict.fromkeys(range(SESSION_PARTITIONS_MAX + 1), 0)}
    plan = cache.plan(body(0, 0, wide), has_topic_ids=False, client=ALICE)
    assert plan.session is None and len(plan.wanted) == SESSION_PARTITIONS_MAX + 1 and len(cache) == 0
    full = {"t": dict.fromkeys(range(SESSION_PARTITIONS_MAX), 0)}
    first = cache.plan(body(0, 0, full), has_topic_ids=False, client=ALICE).session
    assert first is not None
    for _ in range(PARTITIONS_MAX // SESSION_PARTITIONS_MAX):
        assert cache.plan(body(0, 0, full), has_topic_ids=False, client=ALICE).session is not None
    assert len(cache) == PARTITIONS_MAX // SESSION_PARTITIONS_MAX
    assert cache.plan(body(first.session_id, 1, {}), has_topic_ids=False, client=ALICE).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_grows_too_wide_ends() -> None:
    cache = sessions()
    session = cache.plan(body(0, 0, {"t": {0: 0}}), has_topic_ids=False, client=ALICE).session
    assert session is not None
    more = {"u": dict.fromkeys(range(SESSION_PARTITIONS_MAX), 0)}
    plan = cache.plan(body(session.session_id, 1, more), has_topic_ids=False, client=ALICE)
    assert plan.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND and len(cache) == 0


def test_a_partition_named_twice_is_fetched_once_as_its_last_mention_says() -> None:
    cache = sessions()
    request = body(0, -1, {"t": {0: 5}})
    request.topics += body(0, -1, {"u": {0: 1}, "t": {0: 7}}).topics
    plan = cache.plan(request, has_topic_ids=False, client=ALICE)
    assert [(wanted.topic, wanted.partition.fetch_offset) for wanted in plan.wanted] == [("t", 7), ("u", 1)]


# Addresses


def opened(cache: FetchSessions, client: Peer, width: int = 1) -> int:
    """Opens a session with `width` partitions. Returns its id."""
    session = cache.plan(body(0, 0, {"t": dict.fromkeys(range(width), 0)}), has_topic_ids=False, client=client).session
    assert session is not None
    return session.session_id


def lives(cache: FetchSessions, session_id: int) -> bool:
    """Returns whether the session exists. A request with a wrong epoch does not mark the session as used."""
    return cache.plan(body(session_id, 99, {}), has_topic_ids=False, client=ALICE).error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_one_address_does_not_evict_the_sessions_of_others() -> None:
    cache = sessions(limit=10)
    honest = [opened(cache, ALICE._replace(port=number)) for number in range(3)]
    for number in range(100):
        opened(cache, Peer("User:mallory", "10.0.0.2", number))
    assert len(cache) == 10 and all(lives(cache, session_id) for session_id in honest)


def test_a_new_address_gets_a_place_among_those_of_one_that_took_all() -> None:
    cache = sessions(limit=10)
    for number in range(20):
        opened(cache, Peer("User:mallory", "10.0.0.2", number))
    honest = [opened(cache, ALICE._replace(port=number)) for number in range(5)]
    for number in range(20, 40):
        opened(cache, Peer("User:mallory", "10.0.0.2", number))
    assert len(cache) == 10 and all(lives(cache, session_id) for session_id in honest)
    sixth = opened(cache, ALICE._replace(port=5))
    assert lives(cache, sixth) and not lives(cache, honest[0]), "both addresses hold half: each replaces its own"


def test_a_connection_that_opens_many_loses_before_the_others_of_its_address() -> None:
    cache = sessions(limit=10)
    honest = [opened(cache, ALICE._replace(port=number)) for number in range(5)]
    for _ in range(100):
        opened(cache, ALICE._replace(port=99))
    assert len(cache) == 10 and all(lives(cache, session_id) for session_id in honest)


def test_a_session_wider_than_all_may_be_is_none() -> None:
    """A broker with little memory has a low limit of partitions."""
    cache = sessions(10, 100)
    session_id = opened(cache, ALICE, 100)
    assert cache.plan(body(0, 0, {"t": dict.fromkeys(range(101), 0)}), has_topic_ids=False, client=ALICE).session is None
    assert lives(cache, session_id)
    more = cache.plan(body(session_id, 1, {"u": {0: 0}}), has_topic_ids=False, client=ALICE)
    assert (more.error, len(cache)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_wide_sessions_of_one_address_do_not_evict_those_of_others() -> None:
    cache = sessions(1000, 1000)
    honest = [opened(cache, ALICE._replace(port=number), 10) for number in range(3)]
    for number in range(100):
        opened(cache, Peer("User:mallory", "10.0.0.2", number), 50)
    assert all(lives(cache, session_id) for session_id in honest)


def test_as_many_addresses_as_places_evict_the_least_recently_used() -> None:
    cache = sessions(limit=3)
    made = [opened(cache, ALICE._replace(host=f"10.0.1.{number}")) for number in range(3)]
    cache.plan(body(made[0], 1, {}), has_topic_ids=False, client=ALICE)
    opened(cache, ALICE._replace(host="10.0.1.9"))
    assert [lives(cache, session_id) for session_id in made] == [True, False, True]
