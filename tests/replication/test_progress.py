"""A follower's progress, as its fetches show it."""

from __future__ import annotations

from ottla.replication.progress import FollowerFetch, FollowerProgress


def fetch(replica: FollowerProgress, offset: int, end: int, now_ms: int) -> int:
    replica.on_fetch(FollowerFetch(2, 9, offset, 0, now_ms), end)
    return replica.last_caught_up_ms


def test_a_member_of_the_isr_has_the_whole_lag_time_with_a_new_leader() -> None:
    assert FollowerProgress(2, now_ms=77, is_in_sync=True).last_caught_up_ms == 77
    assert FollowerProgress(2, now_ms=77, is_in_sync=False).last_caught_up_ms < -(1 << 60)


def test_at_the_leaders_end_it_has_caught_up_now() -> None:
    assert fetch(FollowerProgress(2, now_ms=0, is_in_sync=True), 10, 10, 5) == 5


def test_always_one_fetch_behind_a_busy_leader_is_caught_up_as_of_the_last_fetch() -> None:
    replica = FollowerProgress(2, now_ms=0, is_in_sync=True)
    fetch(replica, 0, 10, 100)
    assert fetch(replica, 10, 20, 200) == 100
    assert fetch(replica, 20, 30, 300) == 200


def test_one_that_falls_behind_is_not() -> None:
    replica = FollowerProgress(2, now_ms=0, is_in_sync=True)
    fetch(replica, 0, 10, 100)
    assert fetch(replica, 9, 20, 200) == 0
    assert (replica.log_end_offset, replica.broker_epoch) == (9, 9)
