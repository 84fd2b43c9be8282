"""A write that makes a stored share state larger fits into the memory or is refused. Writes that let the group continue are accepted
(I46)."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.share_state import DeliveryState, SharePartitionKey, ShareState, StateBatch
from ottla.machine.memory import CoordinatorMemory
from ottla.sharing.acknowledgement import ACCEPT, REJECT, RELEASE, Acknowledgement
from ottla.sharing.commands import DeleteState, InitializeState, WriteState
from ottla.sharing.in_flight import InFlight
from ottla.sharing.share_partition import GroupTerms, SharePartition
from ottla.sharing.state_machine import ADDED_MAX
from ottla.sharing.state_shard import BATCH_BYTES, state_bytes
from tests.fakes import ManualTimers
from tests.fakes.coordinator_settings import share_state_settings
from tests.fakes.persister import MemoryPersister
from tests.sharing.state_world import KEY, ORDERS, StateWorld, hard_state

NONE, REFUSED = ErrorCode.NONE, ErrorCode.POLICY_VIOLATION
AVAILABLE, ACKNOWLEDGED, ARCHIVED = (int(state) for state in (DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED))
OTHER = SharePartitionKey("other", ORDERS, 1)


def done(first: int, last: int, count: int = 1, state: int = ACKNOWLEDGED) -> StateBatch:
    return StateBatch(first, last, state, count)


class FullWorld(StateWorld):
    """A share coordinator whose memory is full when it has the state of `KEY`."""

    def __init__(self) -> None:
        super().__init__(share_state_settings(updates_per_snapshot=500), memory=CoordinatorMemory(1 << 40, "states of share groups"))
        self.answer(InitializeState(KEY, 1, 0))
        self.fill()

    def fill(self) -> None:
        assert self.memory is not None
        self.memory.bytes_max = self.memory.total_bytes()

    def write(self, *batches: StateBatch, start: int = 0) -> ErrorCode:
        return self.answer(WriteState(KEY, ShareState(1, -1, start, 0, batches))).code

    @property
    def state(self) -> ShareState:
        return self.machine.shard.partitions[KEY].state

    @property
    def held_bytes(self) -> int:
        return self.machine.shard.memory.bytes

    def stored_flight(self) -> InFlight:
        """Returns the records in flight as another leader would load them."""
        return InFlight(self.state.start_offset, self.state.batches)


def test_i46_a_state_without_room_does_not_grow() -> None:
    world = FullWorld()
    codes = [world.write(done(offset, offset)) for offset in range(2, 200, 2)]
    assert codes == [NONE] + [REFUSED] * 98
    assert world.held_bytes == state_bytes(KEY)
    assert world.state.batches == (done(2, 2),)


def test_where_there_is_room_it_grows_until_that_is_taken() -> None:
    world = FullWorld()
    assert world.memory is not None
    world.memory.bytes_max += 10 * BATCH_BYTES
    codes = [world.write(done(offset, offset)) for offset in range(2, 200, 2)]
    assert codes[:8] == [NONE] * 8
    assert REFUSED in codes
    assert world.held_bytes <= world.memory.bytes_max


def test_a_refusal_changes_nothing_and_names_what_is_full() -> None:
    world = FullWorld()
    world.write(done(2, 2))
    before = hard_state(world.machine)
    result = world.answer(WriteState(KEY, ShareState(1, -1, 0, 0, (done(4, 4), done(6, 6)))))
    assert result.code is REFUSED
    assert "states of share groups" in (result.message or "")
    assert hard_state(world.machine) == before


def test_a_group_that_acknowledges_in_order_goes_on() -> None:
    world = FullWorld()
    for offset in range(0, 100, 10):
        assert world.write(done(offset, offset + 9), start=max(offset - 10, 0)) is NONE
    assert world.held_bytes == state_bytes(KEY)


def test_what_fills_holes_passes() -> None:
    """They are accepted although different delivery counts split the records into more batches."""
    world = FullWorld()
    assert world.memory is not None
    world.memory.bytes_max = 1 << 40
    assert world.write(*(done(offset, offset, 2) for offset in range(2, 20, 2))) is NONE
    world.fill()
    assert world.write(done(30, 30)) is REFUSED
    for offset in (0, *range(1, 20, 2)):
        assert world.write(done(offset, offset)) is NONE, offset
    assert world.write(start=19) is NONE
    assert (world.state.batches, world.held_bytes) == ((done(19, 19),), state_bytes(KEY))


def test_dead_letters_that_are_not_copied_are_kept() -> None:
    """Such dead letters are not completed, so they end the run of completed records at the start. A reduced state contains them
    unchanged."""
    world = FullWorld()
    archiving = int(DeliveryState.ARCHIVING)
    assert world.write(done(0, 0), done(1, 1, 1, archiving), done(2, 2, 3)) is REFUSED, "two lasting batches behind the front"
    assert world.write(done(0, 0), done(1, 1, 1, archiving)) is NONE
    assert world.state.batches == (done(0, 0), done(1, 1, 1, archiving))
    assert world.write(done(1, 1, 1, ARCHIVED)) is NONE
    assert world.stored_flight().start == 2


def test_the_front_is_one_batch_whatever_became_of_its_records() -> None:
    world = FullWorld()
    mixed = (done(0, 0), done(1, 1, 1, ARCHIVED), done(2, 2, 3), done(3, 3, 2, ARCHIVED), done(7, 7))
    assert world.write(*mixed) is NONE
    assert world.state.batches == (done(0, 3, 3, ARCHIVED), done(7, 7))
    assert world.held_bytes == state_bytes(KEY)
    assert world.stored_flight().start == 4


def test_releases_pass_without_their_counts_of_deliveries() -> None:
    """The records are available nevertheless. With another leader their delivery counts begin at 0."""
    world = FullWorld()
    world.write(done(4, 4))
    assert world.write(*(done(offset, offset, 2, AVAILABLE) for offset in range(6, 60, 2))) is NONE
    assert world.state.batches == (done(4, 4),)
    assert world.stored_flight().complete_count == 1


def test_what_makes_the_state_smaller_passes() -> None:
    world = FullWorld()
    assert world.memory is not None
    world.memory.bytes_max = 1 << 40
    world.write(*(done(offset, offset) for offset in range(2, 20, 2)))
    world.memory.bytes_max = 0
    assert world.write(start=11) is NONE
    assert world.state.batches == tuple(done(offset, offset) for offset in range(12, 20, 2))
    assert world.answer(DeleteState(KEY)).code is NONE


def test_room_that_is_given_back_is_found() -> None:
    world = FullWorld()
    assert world.memory is not None
    world.memory.bytes_max = 1 << 40
    world.answer(InitializeState(OTHER, 1, 0))
    world.write(done(2, 2))
    world.fill()
    assert world.write(done(4, 4), done(6, 6)) is REFUSED
    world.answer(DeleteState(OTHER))
    assert state_bytes(OTHER) > ADDED_MAX * 2 * BATCH_BYTES
    assert world.write(done(4, 4), done(6, 6)) is NONE


def test_a_replay_of_what_was_spared_is_the_same() -> None:
    world = FullWorld()
    for batches in ((done(2, 2),), (done(0, 0), done(1, 1, 3)), (done(9, 9, 1, AVAILABLE), done(3, 3, 2)), (done(5, 5), done(7, 7))):
        world.write(*batches)
    assert hard_state(world.replayed()) == hard_state(world.machine)


# A share partition whose acknowledgements are refused


class Partition:
    """A share partition that was loaded, and whose changes cannot be stored because the coordinator's memory is full."""

    def __init__(self, delivery_count_max: int = 2) -> None:
        terms = GroupTerms(1000, delivery_count_max, 100, "earliest", False, True)
        self.timers, self.persister = ManualTimers(), MemoryPersister()
        key = SharePartitionKey("g", bytes(16), 0)
        self.persister.states[key] = ShareState(1, 0, 0, 0)
        self.share = SharePartition(
            key, 1, persister=self.persister, clock=self.timers.clock, timers=self.timers, terms=lambda: terms,
            find_start=lambda _reset: 0, on_closed=lambda _share: None,
        )  # fmt: skip
        self.share.load()
        self.persister.fail_with = REFUSED

    def acquire(self, member: str = "a") -> list[tuple[int, int, int]]:
        offset = self.share.fetch_offset(0)
        log = [(base, base + 9, True) for base in range(0, 10, 10) if base + 9 >= (offset or 0)]
        return [tuple(run) for run in self.share.acquire(member, offset, log, 10, 10, False)] if offset is not None else []

    def say(self, kind: int, first: int = 0, last: int = 9) -> ErrorCode:
        codes: list[ErrorCode] = []
        self.share.acknowledge("a", [Acknowledgement(first, last, (kind,))], codes.append)
        return codes[0]


def test_a_refused_acknowledgement_leaves_the_records_with_their_member() -> None:
    world = Partition()
    assert world.acquire() == [(0, 9, 1)]
    assert world.say(ACCEPT) is REFUSED
    assert world.acquire("b") == []
    world.persister.fail_with = None
    assert world.say(ACCEPT) is NONE
    assert (world.share.flight.start, world.acquire()) == (10, [])


def test_records_that_were_accepted_in_vain_are_never_given_up() -> None:
    """Otherwise such records would be archived and lost: each delivery is counted, but none of the acknowledgements is stored."""
    world = Partition(delivery_count_max=2)
    for _ in range(6):
        assert {world.say(ACCEPT, first, last) for first, last, _ in world.acquire()} == {REFUSED}
        world.timers.advance(1000)
    flight = world.share.flight
    assert (flight.start, flight.available_count) == (0, 10)
    world.persister.fail_with = None
    while got := world.acquire():
        assert {world.say(ACCEPT, first, last) for first, last, _ in got} == {NONE}
    assert flight.start == 10


def test_records_that_were_not_accepted_are_given_up_as_ever() -> None:
    world = Partition(delivery_count_max=2)
    for kind in (RELEASE, REJECT):
        assert world.acquire()
        assert world.say(kind) is REFUSED
        world.timers.advance(1000)
    assert (world.acquire(), world.share.flight.start) == ([], 10)
