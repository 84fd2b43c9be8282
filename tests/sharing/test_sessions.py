"""Share sessions: a session is opened with epoch 0, continues with the next epoch in each request, and ends by its member's request or with
its connection."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.context import ConnectionInfo
from ottla.sharing.sessions import EPOCH_MAX, PARTITIONS_MAX, SESSION_PARTITIONS_MAX, ShareSession, ShareSessions, is_member_id
from tests.handlers.share_world import ShareWorld, connection

TOPIC = b"t" * 16


def sessions(sessions_max: int = 10) -> ShareSessions:
    return ShareSessions(ShareWorld().shares, sessions_max)


def test_epochs_count_up_and_begin_again() -> None:
    known = sessions()
    session = known.open("g", "a", connection())
    assert session is not None and known.find("g", "a") is session
    assert known.step("g", "a", 1) == (session, ErrorCode.NONE)
    assert known.step("g", "a", 1) == (None, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session.epoch = EPOCH_MAX
    assert known.step("g", "a", EPOCH_MAX) == (session, ErrorCode.NONE)
    assert known.step("g", "a", 1) == (session, ErrorCode.NONE)
    assert known.step("g", "b", 1) == (None, ErrorCode.SHARE_SESSION_NOT_FOUND)


def test_a_session_belongs_to_the_principal_that_opened_it() -> None:
    known = sessions()
    mine = connection()
    mine.principal = "User:a"
    known.open("g", "a", mine)
    assert known.belongs_to_other("g", "a", "User:b") and not known.belongs_to_other("g", "a", "User:a")
    assert not known.belongs_to_other("g", "b", "User:b") and not known.belongs_to_other("h", "a", "User:b")
    mine.closed()
    assert not known.belongs_to_other("g", "a", "User:b")


def test_a_new_one_takes_the_place_of_an_earlier_one() -> None:
    known = sessions()
    first_connection = connection()
    first = known.open("g", "a", first_connection)
    second = known.open("g", "a", connection())
    assert known.find("g", "a") is second is not first
    assert len(known) == 1
    first_connection.closed()
    assert known.find("g", "a") is second


def test_the_number_of_sessions_is_limited() -> None:
    known = sessions(2)
    assert known.open("g", "a", connection()) and known.open("h", "a", connection())
    assert known.open("g", "b", connection()) is None
    assert known.open("g", "a", connection()) is not None


def test_a_session_ends_with_its_connection() -> None:
    known = sessions()
    shared = connection()
    for member in ("a", "b"):
        known.open("g", member, shared)
    other = known.open("g", "c", connection())
    shared.closed()
    assert (len(known), known.find("g", "c")) == (1, other)
    shared.closed()
    assert len(known) == 1


def test_a_session_ended_twice_ends_once() -> None:
    known = sessions()
    session = known.open("g", "a", connection())
    assert session is not None
    known.end(session)
    known.end(session)
    assert (len(known), known.find("g", "a")) == (0, None)


def test_partitions_are_named_once_and_forgotten_once() -> None:
    session = ShareSession("g", "a", connection())
    session.update([(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)], ())
    assert session.in_turn(0) == [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)]
    assert session.in_turn(4) == [(TOPIC, 1), (TOPIC, 2), (TOPIC, 0)]
    session.update((), [(TOPIC, 1), (TOPIC, 9)])
    assert session.in_turn(1) == [(TOPIC, 2), (TOPIC, 0)]


@pytest.mark.parametrize(("text", "is_one"), [("a", True), ("x" * 36, True), ("x" * 37, False), ("", False), (None, False)])
def test_member_ids(text: str | None, is_one: bool) -> None:
    assert is_member_id(text) is is_one


def test_the_partitions_of_a_session_are_bounded() -> None:
    known = sessions()
    session = known.open("g", "a", connection())
    assert session is not None
    places = [(TOPIC, index) for index in range(SESSION_PARTITIONS_MAX)]
    assert known.update(session, places, [])
    assert known.update(session, [(TOPIC, -1)], places[:1])
    assert not known.update(session, places, [])
    assert known.find("g", "a") is None and len(known) == 0


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    known = sessions(1000)
    places = [(TOPIC, index) for index in range(SESSION_PARTITIONS_MAX)]
    opened = [known.open("g", f"m{number}", connection()) for number in range(PARTITIONS_MAX // SESSION_PARTITIONS_MAX + 1)]
    grown = [known.update(session, places, []) for session in opened if session is not None]
    assert grown == [True] * (len(opened) - 1) + [False]
    first = opened[0]
    assert first is not None
    known.end(first)
    again = known.open("g", "again", connection())
    assert again is not None and known.update(again, places, []), "what a session had is free again"


def test_i46_few_partitions_where_there_is_little_memory() -> None:
    known = ShareSessions(ShareWorld().shares, 1000, 150)
    places = [(TOPIC, index) for index in range(100)]
    first, second, third = (known.open(group, "a", connection()) for group in ("g", "h", "i"))
    assert first is not None and second is not None and third is not None
    assert known.update(first, places, [])
    assert not known.update(second, places, []), "refused"
    known.end(first)
    assert known.update(third, places, []), "what a session had is given back"


# Addresses


def at(host: str, port: int) -> ConnectionInfo:
    return ConnectionInfo(identity=f"{host}:{port}", host=host, listener="PLAINTEXT")


def test_a_new_address_gets_a_place_among_those_of_one_that_took_all() -> None:
    known = sessions(4)
    for number in range(5):
        known.open("taken", f"m{number}", at("10.0.0.2", number))
    mine = known.open("g", "a", at("10.0.0.1", 1))
    assert mine is not None and known.find("taken", "m0") is None, "the least recently used one"
    assert known.open("g", "b", at("10.0.0.1", 2)) is not None
    assert known.open("g", "c", at("10.0.0.1", 3)) is None, "both hold half"
    assert known.open("taken", "again", at("10.0.0.2", 9)) is None and len(known) == 4


def test_a_connection_that_opened_all_loses_one_to_another_of_its_address() -> None:
    known = sessions(4)
    greedy = at("10.0.0.1", 1)
    for number in range(5):
        known.open("taken", f"m{number}", greedy)
    known.step("taken", "m0", 1)
    assert known.open("g", "a", at("10.0.0.1", 2)) is not None
    assert known.find("taken", "m1") is None and known.find("taken", "m0") is not None
    assert known.open("taken", "more", greedy) is None


def test_wide_sessions_of_one_address_end_for_those_of_another() -> None:
    known = sessions(1000)
    places = [(TOPIC, index) for index in range(SESSION_PARTITIONS_MAX)]
    for number in range(PARTITIONS_MAX // SESSION_PARTITIONS_MAX):
        wide = known.open("taken", f"m{number}", at("10.0.0.2", number))
        assert wide is not None and known.update(wide, places, [])
    mine = known.open("g", "a", at("10.0.0.1", 1))
    assert mine is not None and known.update(mine, places[:100], [])
    assert known.find("taken", "m0") is None and known.find("taken", "m1") is not None


def test_no_session_where_none_may_be() -> None:
    assert sessions(0).open("g", "a", at("10.0.0.1", 1)) is None
