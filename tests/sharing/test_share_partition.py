"""A share partition is loaded, delivers records under locks, acknowledges them when the change is durable, and is taken over by another
leader."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.sharing.acknowledgement import ACCEPT, RELEASE, RENEW, Acknowledgement
from ottla.sharing.acquisition import Acquired
from ottla.sharing.share_partition import CHECK_RETRY_MS, GroupTerms, SharePartition, member_error
from tests.fakes.persister import MemoryPersister
from tests.fakes.world import World

KEY = SharePartitionKey("g", bytes(range(16)), 0)
TERMS = GroupTerms(
    lock_duration_ms=1000, delivery_count_max=3, in_flight_max=20, offset_reset="latest", is_read_committed=False, may_renew=True
)
LOG = [(base, base + 9, True) for base in range(0, 100, 10)]


class SharePartitionWorld(World):
    def __init__(self, *, start: int = 0, batches: tuple[StateBatch, ...] = (), is_loaded: bool = True) -> None:
        self.persister = MemoryPersister()
        self.persister.states[KEY] = ShareState(4, 0, start, 0, batches)
        self.closed: list[SharePartition] = []
        self.woken = 0
        self.codes: list[ErrorCode] = []
        self.asked: list[str] = []
        self.share = SharePartition(
            KEY, 7, persister=self.persister, clock=self.clock, timers=self.timers, terms=lambda: TERMS,
            find_start=self._find_start, on_closed=self.closed.append,
        )  # fmt: skip
        self.share.notifier.add_watcher(self._wake)
        if is_loaded:
            self.share.load()

    def _find_start(self, reset: str) -> int:
        self.asked.append(reset)
        if reset == "latest":
            return 40
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "not yet")

    def _wake(self) -> None:
        self.woken += 1

    def acquire(self, member: str, records_max: int = 500) -> list[Acquired]:
        offset = self.share.fetch_offset(0)
        if offset is None:
            return []
        batches = [batch for batch in LOG if batch[1] >= offset]
        return self.share.acquire(member, offset, iter(batches), records_max, 500, False)

    def say(self, member: str, first: int, last: int, *types: int) -> ErrorCode | None:
        self.codes.clear()
        self.share.acknowledge(member, [Acknowledgement(first, last, types)], self.codes.append)
        return self.codes[0] if self.codes else None

    @property
    def state(self) -> ShareState:
        return self.persister.states[KEY]


def test_without_stored_state() -> None:
    world = SharePartitionWorld(start=-1)
    assert (world.share.is_loaded, world.share.flight.start, world.asked, world.woken) == (True, 40, ["latest"], 1)
    assert (world.state.leader_epoch, world.share.state_epoch) == (7, 4)


def test_stored_state_is_loaded() -> None:
    world = SharePartitionWorld(start=5, batches=(StateBatch(8, 9, 2, 1),))
    assert world.share.fetch_offset(0) == 5
    assert world.acquire("a") == [Acquired(5, 7, 1), Acquired(10, 29, 1)]


def test_requests_wait_for_the_stored_state() -> None:
    world = SharePartitionWorld(is_loaded=False)
    world.persister.is_held = True
    world.share.load()
    assert (world.share.is_loaded, world.share.fetch_offset(0), world.say("a", 0, 1, ACCEPT)) == (
        False,
        None,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    world.persister.release()
    assert (world.share.is_loaded, world.woken) == (True, 1)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_of_loading(code: ErrorCode, expected: ErrorCode) -> None:
    world = SharePartitionWorld(is_loaded=False)
    world.persister.fail_with = code
    world.share.load()
    assert (world.share.error, world.share.is_closed, world.closed, member_error(code)) == (expected, True, [world.share], expected)


def test_no_start_offset_is_found() -> None:
    world = SharePartitionWorld(start=-1, is_loaded=False)
    world.share.terms = lambda: TERMS._replace(offset_reset="by_duration:PT1H")
    world.share.load()
    assert (world.share.error, world.closed) == (ErrorCode.OFFSET_NOT_AVAILABLE, [world.share])


def test_an_acknowledgement_is_answered_when_it_is_durable() -> None:
    world = SharePartitionWorld()
    assert world.acquire("a") == [Acquired(0, 19, 1)]
    world.persister.is_held = True
    assert world.say("a", 0, 9, ACCEPT) is None
    assert world.share.flight.start == 0
    world.persister.release()
    assert world.codes == [ErrorCode.NONE]
    assert (world.share.flight.start, world.state.batches, world.state.delivery_complete_count) == (10, (StateBatch(0, 9, 2, 1),), 10)


def test_a_write_that_fails_takes_the_change_back() -> None:
    world = SharePartitionWorld()
    world.acquire("a")
    world.persister.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.say("a", 0, 9, ACCEPT) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.persister.fail_with = None
    assert world.say("a", 0, 9, RELEASE) is ErrorCode.NONE
    assert world.acquire("b") == [Acquired(0, 9, 2)]


def test_records_of_a_pending_write_cannot_be_acquired_or_acknowledged() -> None:
    world = SharePartitionWorld()
    world.acquire("a")
    world.persister.is_held = True
    world.say("a", 0, 9, RELEASE)
    assert world.acquire("b") == []
    assert world.say("a", 5, 5, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    world.timers.advance(5000)
    world.persister.release()
    assert world.acquire("b") == [Acquired(0, 19, 2)]


def test_locks_run_out_and_one_timer_serves_them_all() -> None:
    world = SharePartitionWorld()
    world.acquire("a", 10)
    world.timers.advance(600)
    world.acquire("b", 10)
    assert world.timers.pending() == 1
    before = world.woken
    world.timers.advance(400)
    assert (world.share.flight.available_count, world.woken) == (10, before + 1)
    assert world.state.batches == (StateBatch(0, 9, 0, 1),)
    world.timers.advance(600)
    assert (world.share.flight.available_count, world.timers.pending()) == (20, 0)


def test_after_the_last_delivery_a_lock_that_runs_out_archives() -> None:
    world = SharePartitionWorld(batches=(StateBatch(0, 0, 0, 2),))
    assert world.acquire("a") == [Acquired(0, 0, 3)]
    world.timers.advance(1000)
    assert world.share.flight.start == 1
    assert (world.state.start_offset, world.state.delivery_complete_count, world.state.batches) == (1, 0, ())


def test_a_renewed_lock_holds_on() -> None:
    world = SharePartitionWorld()
    world.acquire("a", 10)
    world.timers.advance(900)
    assert world.say("a", 0, 4, RENEW) is ErrorCode.NONE
    world.timers.advance(500)
    assert (world.share.flight.available_count, world.say("a", 0, 4, ACCEPT)) == (5, ErrorCode.NONE)


def test_a_write_that_fails_after_the_lock_has_expired_releases_the_records() -> None:
    world = SharePartitionWorld()
    world.acquire("a", 10)
    world.persister.is_held = True
    world.say("a", 0, 9, ACCEPT)
    world.timers.advance(2000)
    world.persister.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.persister.release()
    world.timers.advance(1)
    assert world.share.flight.available_count == 10


def test_waiting_members_are_notified_of_records_and_of_room() -> None:
    world = SharePartitionWorld()
    world.acquire("a")
    assert world.acquire("b") == []
    before = world.woken
    world.say("a", 0, 4, RELEASE)
    assert world.woken == before + 1
    world.acquire("b")
    world.say("b", 0, 4, ACCEPT)
    assert world.woken == before + 2
    world.say("a", 5, 6, ACCEPT)
    assert world.woken == before + 2


def test_records_of_a_member_that_leaves_become_available() -> None:
    world = SharePartitionWorld()
    world.acquire("a", 10)
    world.acquire("b", 10)
    world.share.release(frozenset(("a",)), world.codes.append)
    world.share.release(frozenset(("not-a-member",)), world.codes.append)
    assert (world.codes, world.share.flight.available_count) == ([ErrorCode.NONE] * 2, 10)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND])
def test_another_leader_has_taken_over(code: ErrorCode) -> None:
    world = SharePartitionWorld()
    world.acquire("a")
    world.persister.fail_with = code
    assert world.say("a", 0, 9, ACCEPT) is member_error(code)
    assert (world.closed, world.share.fetch_offset(0), world.timers.pending()) == ([world.share], None, 0)
    assert world.say("a", 10, 19, ACCEPT) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.share.release(frozenset(("a",)), world.codes.append)
    assert world.codes[-1] is ErrorCode.NONE


def test_a_lock_expires_after_another_leader_has_taken_over() -> None:
    world = SharePartitionWorld()
    world.acquire("a")
    world.persister.fail_with = ErrorCode.FENCED_LEADER_EPOCH
    world.timers.advance(1000)
    assert world.closed == [world.share]


def test_closed_while_it_loads() -> None:
    world = SharePartitionWorld(is_loaded=False)
    world.persister.is_held = True
    world.share.load()
    world.share.close()
    world.persister.release()
    assert (world.share.is_loaded, world.closed) == (False, [world.share])


def test_the_log_begins_later() -> None:
    world = SharePartitionWorld()
    world.acquire("a")
    assert world.share.fetch_offset(15) is not None
    assert (world.share.flight.start, world.say("a", 0, 17, ACCEPT), world.share.flight.start) == (15, ErrorCode.NONE, 18)


def test_removed_watchers_are_not_called() -> None:
    world = SharePartitionWorld()
    before = world.woken
    world.share.notifier.remove_watcher(world._wake)
    world.share.close()
    assert world.woken == before


def test_the_start_behind_archived_records_is_written_when_nothing_is_in_flight() -> None:
    """Otherwise a group that has read everything would seem to lag by the transaction markers at the end of the log."""
    world = SharePartitionWorld()
    log = [(0, 4, True), (5, 5, False)]
    assert world.share.acquire("a", 0, iter(log), 5, 500, False) == [Acquired(0, 4, 1)]
    assert world.share.acquire("a", 5, iter(log), 5, 500, False) == []
    assert world.state.start_offset == 0, "records are in flight: the acknowledgement will move the start"
    assert world.say("a", 0, 4, ACCEPT) is ErrorCode.NONE
    assert (world.state.start_offset, world.state.delivery_complete_count, world.share.flight.start) == (0, 6, 6)
    assert world.share.acquire("a", 6, iter([(6, 7, False)]), 5, 500, False) == []
    assert (world.state.start_offset, world.state.delivery_complete_count) == (8, 0)
    world.persister.fail_with = ErrorCode.FENCED_STATE_EPOCH
    assert world.share.acquire("a", 8, iter([(8, 8, False)]), 5, 500, False) == []
    assert world.share.is_closed


def test_a_state_that_is_still_the_same_is_served_on() -> None:
    world = SharePartitionWorld()
    world.acquire("a")
    world.say("a", 0, 9, ACCEPT)
    world.persister.is_held = True
    woken, check = world.woken, world.share.check()
    assert not check.is_over
    world.persister.release()
    assert check.is_over and world.share.is_loaded and world.woken == woken + 1


@pytest.mark.parametrize(
    "state",
    [
        ShareState(5, 7, 10, 0),
        ShareState(3, 7, 10, 0),
        ShareState(4, 7, -1, -1),
        ShareState(4, 7, 30, 0),
        ShareState(4, 0, 0, 0),
        ShareState(4, 7, 0, 0),
        ShareState(4, 8, 0, 0),
        None,
    ],
)
def test_a_state_that_was_altered_or_deleted_is_dropped(state: ShareState | None) -> None:
    """This includes the state of another group with the same name and the same state epoch (I55)."""
    world = SharePartitionWorld()
    world.acquire("a", 20)
    world.say("a", 0, 9, ACCEPT)
    if state is None:
        del world.persister.states[KEY]
    else:
        world.persister.states[KEY] = state
    check = world.share.check()
    assert check.is_over and world.share.is_closed and world.closed == [world.share]


def test_while_the_share_coordinator_cannot_be_asked_other_members_read_on() -> None:
    world = SharePartitionWorld()
    world.persister.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    check = world.share.check()
    assert not check.is_over and world.share.is_loaded and world.acquire("a")
    world.persister.fail_with = None
    world.timers.advance(CHECK_RETRY_MS)
    assert check.is_over and world.share.is_loaded


def test_nothing_waits_for_the_check_of_a_closed_share_partition() -> None:
    world = SharePartitionWorld()
    world.persister.is_held = True
    check = world.share.check()
    world.share.close()
    assert check.is_over
    world.persister.release()
