"""The host of a coordinator's state machine: when effects are released, and the answers after a failure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.machine.contract import Call, Cancel, Decision, Effect, LogRecord, Respond, Schedule, Transactional
from ottla.machine.host import HostState, MachineHost, SlewedClock
from tests.fakes.clock import ManualClock
from tests.fakes.machine_log import MemoryLog
from tests.fakes.world import World


class Ledger:
    """A state machine whose hard state is the list of logged records."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, bytes]] = []
        self.markers: list[tuple[int, int, bool]] = []
        self.resumed_at: int | None = None

    def apply(self, offset: int, record: LogRecord, transactional: Transactional | None) -> None:
        self.applied.append((offset, record.key))

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.markers.append((offset, producer_id, is_commit))

    def resume(self, now_ms: int) -> Decision:
        self.resumed_at = now_ms
        return Decision()


class WaitingLedger(Ledger):
    def __init__(self, answers: list[object]) -> None:
        super().__init__()
        self.answers = answers

    def abandon(self, code: ErrorCode) -> Sequence[Effect]:
        return [Respond(self.answers.append, ("waiter", code))]


class HostWorld(World):
    """A host with its log, its clock and a list of the sent answers."""

    def __init__(self, *, is_instant: bool = True, machine: Ledger | None = None, is_active: bool = True) -> None:
        self.answers: list[object] = []
        self.machine = machine if machine is not None else Ledger()
        self.log = MemoryLog(is_instant=is_instant)
        self.host = MachineHost(self.machine, self.log, self.clock, self.timers)
        if is_active:
            self.host.activate()

    def decision(self, *keys: bytes, say: object, more: Sequence[Effect] = ()) -> Decision:
        return Decision(
            records=[LogRecord(key, b"") for key in keys],
            effects=[Respond(self.answers.append, say), *more],
            refused=lambda code: [Respond(self.answers.append, code)],
        )

    def run(self, *keys: bytes, say: object, more: Sequence[Effect] = ()) -> None:
        self.host.run(lambda _now_ms: self.decision(*keys, say=say, more=more))


def test_records_are_applied_with_their_offsets_before_the_answer_leaves() -> None:
    world = HostWorld()
    world.run(b"a", b"b", say="done")
    assert world.machine.applied == [(0, b"a"), (1, b"b")]
    assert world.answers == ["done"]


def test_an_answer_waits_for_the_high_watermark() -> None:
    world = HostWorld(is_instant=False)
    world.run(b"a", say=1)
    world.run(b"b", say=2)
    assert world.machine.applied == [(0, b"a"), (1, b"b")], "state moves on while answers wait"
    assert world.answers == []
    world.log.commit(1)
    assert world.answers == [1]
    world.log.commit()
    assert world.answers == [1, 2]


def test_a_read_waits_for_what_may_still_be_lost() -> None:
    world = HostWorld(is_instant=False)
    world.run(b"a", say="write")
    world.run(say="read")
    assert world.answers == []
    world.log.commit()
    assert world.answers == ["write", "read"]


def test_a_refused_append_changes_nothing_and_answers_every_caller() -> None:
    world = HostWorld()
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.run(b"a", say="done")
    assert world.machine.applied == []
    assert world.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.run(b"b", say="next")
    assert world.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE, "next"]


def parts_of(world: HostWorld, *keys: bytes) -> list[Decision]:
    return [world.decision(key, say=key) for key in keys]


def run_parts(world: HostWorld, *keys: bytes) -> None:
    refused = lambda code: [Respond(world.answers.append, code)]  # noqa: E731
    decision = Decision(parts=parts_of(world, *keys), effects=[Respond(world.answers.append, "all")], refused=refused)
    world.host.run(lambda _now_ms: decision)


def test_parts_share_a_batch_and_are_answered_when_it_is_committed() -> None:
    world = HostWorld(is_instant=False)
    run_parts(world, b"a", b"b", b"c")
    assert world.log.batches == 1 and world.machine.applied == [(0, b"a"), (1, b"b"), (2, b"c")] and world.answers == []
    world.log.commit(2)
    assert world.answers == []
    world.log.commit()
    assert world.answers == [b"a", b"b", b"c", "all"]


def test_parts_that_are_too_large_together_are_logged_in_smaller_batches() -> None:
    world = HostWorld()
    world.log.batch_bytes_max = 3
    run_parts(world, b"a", b"b", b"c", b"d", b"e")
    assert [entry.what.key for entry in world.log.entries if isinstance(entry.what, LogRecord)] == [b"a", b"b", b"c", b"d", b"e"]
    assert world.log.batches == 2 and world.answers == [b"a", b"b", b"c", b"d", b"e", "all"]


def test_one_part_that_is_too_large_by_itself_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    world = HostWorld()
    world.log.batch_bytes_max = 3
    run_parts(world, b"a", b"large", b"c")
    assert world.machine.applied == [(0, b"a"), (1, b"c")]
    assert world.answers == [b"a", ErrorCode.UNKNOWN_SERVER_ERROR, b"c", ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "a batch of 1 coordinator records was refused: RECORD_LIST_TOO_LARGE" in caplog.text


def test_parts_that_are_held_when_the_host_closes_are_refused() -> None:
    world = HostWorld(is_instant=False)
    world.log.batch_bytes_max = 1
    run_parts(world, b"a", b"b")
    world.host.close()
    assert world.answers == [ErrorCode.NOT_COORDINATOR] * 3


def test_a_refused_batch_that_answers_no_client_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    world = HostWorld()
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.run(b"a", say="done")
    assert not caplog.text, "the client is answered"
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.host.run(lambda _now_ms: Decision(records=[LogRecord(b"a", None)]))
    assert "a batch of 1 coordinator records was refused: NOT_ENOUGH_REPLICAS" in caplog.text


def test_a_refusal_of_one_does_not_let_another_answer_leave_early() -> None:
    world = HostWorld(is_instant=False)
    world.run(b"a", say=1)
    world.log.refuse_next = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.run(b"b", say=2)
    assert world.answers == [ErrorCode.NOT_COORDINATOR]
    world.log.commit()
    assert world.answers == [ErrorCode.NOT_COORDINATOR, 1]


def test_timers_decide_again_and_can_be_replaced_and_cancelled() -> None:
    world = HostWorld()

    def later(say: object, delay_ms: int) -> Schedule:
        return Schedule("key", delay_ms, lambda _now: world.decision(b"t", say=say))

    world.run(say="start", more=[later("first", 100)])
    world.run(say="again", more=[later("second", 300)])
    world.timers.advance(200)
    assert world.answers == ["start", "again"], "the second schedule took the place of the first"
    world.timers.advance(100)
    assert world.answers[-1] == "second"
    world.run(say="x", more=[later("third", 50)])
    world.run(say="y", more=[Cancel("key")])
    world.timers.advance(100)
    assert world.answers[-1] == "y"


def test_a_call_may_run_another_decision() -> None:
    world = HostWorld()
    world.run(b"a", say=1, more=[Call(lambda: world.run(b"b", say=2)), Respond(world.answers.append, 3)])
    assert world.answers == [1, 3, 2], "the effects of one decision leave together"


def test_close_answers_the_held_and_the_waiting_and_stops_the_timers() -> None:
    answers: list[object] = []
    world = HostWorld(is_instant=False, machine=WaitingLedger(answers))
    world.run(b"a", say="never", more=[Schedule("key", 10, lambda _now: world.decision(say="never"))])
    world.host.close()
    assert world.answers == [ErrorCode.NOT_COORDINATOR]
    assert answers == [("waiter", ErrorCode.NOT_COORDINATOR)]
    world.log.commit()
    world.timers.advance(1000)
    assert world.answers == [ErrorCode.NOT_COORDINATOR]
    with pytest.raises(ApiError) as refusal:
        world.run(say="late")
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR


def test_loading_applies_in_pieces_and_refuses_commands_meanwhile() -> None:
    """I37: nothing is answered before the partition is loaded."""
    old = HostWorld()
    old.run(b"a", b"b", b"c", b"d", say=1)
    marker = old.log.append_marker(7, 0, True)
    fresh = HostWorld(is_active=False)
    fresh.host.load(old.log.reader(piece_size=2), 0)
    with pytest.raises(ApiError) as refusal:
        fresh.run(say="early")
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    fresh.timers.run_due()
    assert fresh.host.state is HostState.ACTIVE
    assert fresh.machine.applied == old.machine.applied
    assert fresh.machine.markers == [(marker, 7, True)]
    assert fresh.machine.resumed_at is not None


def test_loading_stops_when_the_host_is_closed() -> None:
    old = HostWorld()
    old.run(b"a", b"b", say=1)
    fresh = HostWorld(is_active=False)
    fresh.host.load(old.log.reader(piece_size=1), 0)
    fresh.host.close()
    fresh.timers.run_due()
    assert fresh.machine.applied == []
    assert fresh.host.error is ErrorCode.NOT_COORDINATOR


def test_a_log_that_cannot_be_read_closes_the_host() -> None:
    class Broken:
        def read_piece(self, offset: int) -> None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    world = HostWorld(is_active=False)
    world.host.load(Broken(), 0)
    world.timers.run_due()
    assert world.host.state is HostState.CLOSED
    assert world.host.error is ErrorCode.NOT_COORDINATOR


def test_a_marker_moves_what_is_applied_so_reads_wait_for_it() -> None:
    world = HostWorld(is_instant=False)
    offset = world.log.append_marker(1, 0, True)
    world.host.apply_marker(offset, 1, 0, True)
    world.run(say="read")
    assert world.answers == []
    world.log.commit()
    assert world.answers == ["read"]


def test_intervals_ignore_a_wall_clock_that_jumps_and_stamps_follow_it_slowly() -> None:
    clock = ManualClock()
    time = SlewedClock(clock)
    start_ms = time.now_ms()
    assert start_ms == clock.wall_ms()
    clock.jump_wall(3_600_000)
    clock.advance(1600)
    assert 1600 <= time.now_ms() - start_ms <= 1700
    for _ in range(3600 * 20):
        clock.advance(1000)
        time.now_ms()
    assert time.now_ms() == clock.wall_ms()
