"""Which replicas may join the ISR, which must leave it, and for which the high watermark waits until the controller has answered (I13,
KIP-497, KIP-903)."""

from __future__ import annotations

import pytest

from ottla.replication.isr import IsrPhase, IsrState, lagging, may_join
from ottla.replication.progress import FollowerProgress

COMMITTED = IsrState(members=(1, 2))


def replica(end: int, *, broker_epoch: int = 50, caught_up_ms: int = 0) -> FollowerProgress:
    made = FollowerProgress(3, now_ms=0, is_in_sync=False)
    made.log_end_offset, made.durable_end, made.broker_epoch, made.last_caught_up_ms = end, end, broker_epoch, caught_up_ms
    return made


def replica_with(end: int, *, durable_end: int) -> FollowerProgress:
    made = replica(end)
    made.durable_end = durable_end
    return made


def test_a_replica_joins_with_what_is_on_its_disk() -> None:
    """If acknowledgements wait for the disk, only synced records are considered. Otherwise a power failure could leave the replica in the
    in-sync set without acknowledged records."""
    follower = replica_with(10, durable_end=9)
    assert not may_join(follower, high_watermark=10, epoch_start_offset=5, known_broker_epoch=50)
    follower.durable_end = 10
    assert may_join(follower, high_watermark=10, epoch_start_offset=5, known_broker_epoch=50)
    assert not may_join(replica_with(20, durable_end=10), high_watermark=10, epoch_start_offset=15, known_broker_epoch=50)


def test_kip_497_a_joining_replica_counts_before_the_answer() -> None:
    state = COMMITTED.expand(3)
    assert (state.phase, state.members, state.maximal, state.proposed) == (IsrPhase.PENDING_EXPAND, (1, 2), (1, 2, 3), (1, 2, 3))


def test_kip_497_a_leaving_replica_counts_until_the_answer() -> None:
    state = COMMITTED.shrink([2])
    assert (state.phase, state.maximal, state.proposed) == (IsrPhase.PENDING_SHRINK, (1, 2), (1,))


@pytest.mark.parametrize("state", [COMMITTED.expand(3), COMMITTED.shrink([2])])
def test_changes_do_not_overlap(state: IsrState) -> None:
    with pytest.raises(AssertionError):
        state.expand(4)
    with pytest.raises(AssertionError):
        state.shrink([1])


def test_only_members_leave_and_only_others_join() -> None:
    with pytest.raises(AssertionError):
        COMMITTED.expand(2)
    with pytest.raises(AssertionError):
        COMMITTED.shrink([3])


@pytest.mark.parametrize(
    ("end", "known", "expected"),
    [
        (10, 50, True),
        (9, 50, False),  # below the high watermark
        (10, 51, False),  # KIP-903: the broker has restarted since that fetch
        (10, None, False),  # the controller knows no such broker
    ],
)
def test_i13_conditions_to_join(end: int, known: int | None, expected: bool) -> None:
    assert may_join(replica(end), high_watermark=10, epoch_start_offset=5, known_broker_epoch=known) is expected


def test_i13_the_start_of_the_leaders_epoch_must_be_reached() -> None:
    assert not may_join(replica(10), high_watermark=10, epoch_start_offset=11, known_broker_epoch=50)


def test_kip_903_a_fetch_without_broker_epoch_does_not_qualify() -> None:
    for known in (-1, 50, None):
        assert not may_join(replica(10, broker_epoch=-1), high_watermark=10, epoch_start_offset=5, known_broker_epoch=known)


def test_a_member_lags_by_time_not_by_distance() -> None:
    replicas = {2: replica(1, caught_up_ms=500), 3: replica(9, caught_up_ms=0), 4: replica(10, caught_up_ms=0)}
    assert lagging([1, 2, 3, 4], replicas, 10, now_ms=1_001, lag_max_ms=1_000) == (3,)
    assert lagging([1, 2, 3, 4], replicas, 10, now_ms=1_000, lag_max_ms=1_000) == ()
