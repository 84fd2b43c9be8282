"""Dead letters of a share partition: which records are copied, when they are archived, and what a crash or a failed write leaves."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.share_state import ShareState, StateBatch
from ottla.sharing.acknowledgement import ACCEPT, GAP, REJECT, RELEASE
from ottla.sharing.dead_letters import Copied, DeadLetters
from ottla.sharing.in_flight import ACKNOWLEDGED, ARCHIVED, ARCHIVING
from ottla.sharing.share_partition import CHECK_RETRY_MS, SharePartition
from tests.sharing.test_share_partition import KEY, TERMS, SharePartitionWorld

OUT = ErrorCode.COORDINATOR_NOT_AVAILABLE


class DeadLetterWorld(SharePartitionWorld):
    """A group with a dead-letter topic; `copies` are in progress until `finish`."""

    def __init__(self, *, batches: tuple[StateBatch, ...] = (), is_loaded: bool = True) -> None:
        super().__init__(batches=batches, is_loaded=False)
        self.copies: list[tuple[DeadLetters, Copied]] = []
        self.share = SharePartition(
            KEY, 7, persister=self.persister, clock=self.clock, timers=self.timers, terms=lambda: TERMS._replace(has_dead_letters=True),
            find_start=self._find_start, on_closed=self.closed.append,
            copy_dead_letters=lambda letters, done: self.copies.append((letters, done)),
        )  # fmt: skip
        if is_loaded:
            self.share.load()

    @property
    def copied(self) -> list[tuple[int, int, int, bool]]:
        """Returns the copies in progress: first and last offset, delivery count, and whether the records were rejected."""
        return [(letters.first_offset, letters.last_offset, letters.delivery_count, letters.was_rejected) for letters, _ in self.copies]

    def finish(self, may_archive: bool = True) -> None:
        _, done = self.copies.pop(0)
        done(may_archive)

    def stored(self) -> list[tuple[int, int, int]]:
        return [(first, last, state) for first, last, state, _ in self.state.batches]


def test_rejected_records_are_archived_after_their_copy() -> None:
    world = DeadLetterWorld()
    world.acquire("a", 10)
    assert world.say("a", 0, 3, ACCEPT, REJECT, REJECT, GAP) is ErrorCode.NONE, "the member does not wait for the copy"
    assert world.copied == [(1, 2, 1, True)] and world.share.flight.start == 1
    assert world.stored() == [(0, 0, ACKNOWLEDGED), (1, 2, ARCHIVING), (3, 3, ARCHIVED)]
    world.finish()
    assert world.share.flight.start == 4
    assert (1, 3, ARCHIVED) in world.stored()


def test_no_record_is_copied_before_its_state_is_stored() -> None:
    world = DeadLetterWorld()
    world.acquire("a", 10)
    world.persister.is_held = True
    world.say("a", 0, 0, REJECT)
    assert world.copied == []
    world.persister.fail_with = OUT
    world.persister.release()
    assert (world.codes, world.copied) == ([OUT], []), "the member still has the record"
    world.persister.fail_with = None
    assert world.say("a", 0, 0, ACCEPT) is ErrorCode.NONE
    assert world.copied == []


def test_records_that_were_delivered_too_often_are_copied() -> None:
    world = DeadLetterWorld(batches=(StateBatch(0, 1, 0, TERMS.delivery_count_max - 1),))
    world.acquire("a", 1)
    assert world.say("a", 0, 0, RELEASE) is ErrorCode.NONE
    assert world.copied == [(0, 0, TERMS.delivery_count_max, False)]


def test_records_whose_last_lock_ends_are_copied() -> None:
    world = DeadLetterWorld(batches=(StateBatch(0, 0, 0, TERMS.delivery_count_max - 1),))
    world.acquire("a", 1)
    world.persister.fail_with = OUT
    world.timers.advance(TERMS.lock_duration_ms)
    assert world.copied == []
    world.persister.fail_with = None
    world.timers.advance(TERMS.lock_duration_ms)
    assert world.copied == [(0, 0, TERMS.delivery_count_max, False)]
    world.finish()
    assert world.share.flight.start == 1


def test_one_run_is_copied_at_a_time() -> None:
    world = DeadLetterWorld()
    world.acquire("a", 10)
    world.say("a", 0, 4, REJECT, ACCEPT, REJECT, ACCEPT, REJECT)
    seen = []
    while world.copies:
        assert len(world.copies) == 1
        seen.append(world.copied[0][:2])
        world.finish()
    assert seen == [(0, 0), (2, 2), (4, 4)]
    assert world.share.flight.start == 5


def test_the_next_leader_copies_again() -> None:
    """The reason is not stored. The next leader derives it from the number of deliveries."""
    spent = TERMS.delivery_count_max
    world = DeadLetterWorld(batches=(StateBatch(0, 1, ARCHIVING, 1), StateBatch(2, 2, ARCHIVED, 1), StateBatch(3, 3, ARCHIVING, spent)))
    assert world.share.flight.start == 0
    assert world.copied == [(0, 1, 1, True)]
    world.finish()
    assert world.copied == [(3, 3, spent, False)]
    world.finish()
    assert world.share.flight.start == 4


def test_dead_letters_are_copied_although_the_group_has_no_topic_any_more() -> None:
    """The records became dead letters before the group's setting changed. Their copy is given up, so that the start offset can advance."""
    world = DeadLetterWorld(batches=(StateBatch(0, 0, ARCHIVING, 1),), is_loaded=False)
    world.share.terms = lambda: TERMS
    world.share.load()
    assert world.copied == [(0, 0, 1, True)]


def test_records_are_not_copied_twice_because_of_a_failed_write() -> None:
    world = DeadLetterWorld()
    world.acquire("a", 10)
    world.say("a", 0, 0, REJECT)
    world.persister.fail_with = OUT
    world.finish()
    world.persister.fail_with = None
    assert (world.copied, world.stored()) == ([], [(0, 0, ARCHIVING)])
    world.timers.advance(CHECK_RETRY_MS)
    assert (world.copied, world.share.flight.start) == ([], 1)


def test_a_leader_that_was_replaced_archives_nothing() -> None:
    world = DeadLetterWorld()
    world.acquire("a", 10)
    world.say("a", 0, 0, REJECT)
    world.finish(may_archive=False)
    assert world.share.is_closed and world.stored() == [(0, 0, ARCHIVING)]


def test_a_copy_outlives_the_last_session() -> None:
    world = DeadLetterWorld()
    world.acquire("a", 10)
    world.say("a", 0, 0, REJECT)
    world.share.close_when_copied()
    assert not world.share.is_closed
    world.finish()
    assert world.share.is_closed and world.state.start_offset <= 1 and world.stored() == [(0, 0, ARCHIVED)]


def test_without_dead_letters_the_last_session_closes_at_once() -> None:
    world = DeadLetterWorld()
    world.acquire("a", 10)
    world.share.release(frozenset("a"), world.codes.append)
    world.share.close_when_copied()
    assert world.share.is_closed


def test_a_session_that_ends_with_its_last_deliveries() -> None:
    """The records are released by a write, and the copy begins after the write."""
    world = DeadLetterWorld(batches=(StateBatch(0, 0, 0, TERMS.delivery_count_max - 1),))
    world.acquire("a", 1)
    world.persister.is_held = True
    world.share.release(frozenset("a"), world.codes.append)
    world.share.close_when_copied()
    assert not world.share.is_closed
    world.persister.release()
    assert world.copied == [(0, 0, TERMS.delivery_count_max, False)]
    world.finish()
    assert world.share.is_closed


def test_a_release_that_fails_closes_nevertheless() -> None:
    world = DeadLetterWorld(batches=(StateBatch(0, 0, 0, TERMS.delivery_count_max - 1),))
    world.acquire("a", 1)
    world.persister.is_held = True
    world.share.release(frozenset("a"), world.codes.append)
    world.share.close_when_copied()
    world.persister.fail_with = OUT
    world.persister.release()
    assert world.share.is_closed and world.copied == []


def test_a_new_session_keeps_it_open() -> None:
    world = DeadLetterWorld()
    world.acquire("a", 10)
    world.say("a", 0, 0, REJECT)
    world.share.close_when_copied()
    world.share.closes_when_copied = False
    world.finish()
    assert not world.share.is_closed


def test_the_log_may_lose_dead_letters() -> None:
    """Retention removes the records while they are copied, or a crash has lost the end of the log."""
    world = DeadLetterWorld()
    world.acquire("a", 10)
    world.say("a", 0, 5, REJECT)
    world.share.fetch_offset(3)
    world.finish()
    assert world.share.flight.start == 6
    world.acquire("a", 10)
    world.say("a", 6, 8, REJECT)
    world.share.forget_from(7)
    late = world.copies.pop(0)
    assert world.copied == [(6, 6, 1, True)], "what is left is copied again"
    late[1](True)
    assert world.share.flight.start == 6, "the late answer is about other records"
    world.finish()
    assert world.share.flight.start == 7


def test_dead_letters_are_not_completed() -> None:
    """A member's acknowledgement of dead letters is refused. Dead letters are in flight, and are part of the lag."""
    world = DeadLetterWorld()
    world.acquire("a", 20)
    world.say("a", 0, 9, REJECT)
    assert world.say("a", 0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert world.share.fetch_offset(0) is None, "20 are in flight"
    assert world.state == ShareState(4, 7, 0, 0, (StateBatch(0, 9, ARCHIVING, 1),))
