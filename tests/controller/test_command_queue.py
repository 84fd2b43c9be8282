"""The command queue of one controller: the order of the commands, the consequences of each outcome of a write, and the end of the queue
with the controller's term."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ottla.base.cluster_metadata import Change, ConfigPut, PartitionMetadata, PartitionPut, TopicMetadata, TopicPut, TopicRemoved
from ottla.base.errors import ErrorCode
from ottla.base.loop.store_retries import RETRY_MS
from ottla.base.ports import Check, Create, Delete, Operation, Set, StoreNode, StoreResult
from ottla.controller import command_queue
from ottla.controller.command_queue import ATTEMPTS_MAX, CommandQueue, QueuedCommand, is_in_force, topic_of
from ottla.controller.plans import Plan, PlanPart, Unit, planned
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes
from tests.controller.cluster import state_of
from tests.fakes.world import World


def topic(name: str) -> TopicMetadata:
    return TopicMetadata(name=name, topic_id=name.encode().ljust(16), partitions=())


def elected() -> ClusterState:
    """Returns the state of a controller whose epoch is in version 0 of the epoch's node."""
    state = state_of(0, epoch=7)
    state.controller_epoch_version = 0
    return state


class QueueWorld(World):
    """A controller's command queue over a metadata store in memory. `read_state` waits until the test answers."""

    def __init__(self, *, is_later: bool = False) -> None:
        self.store.put(znodes.CONTROLLER_EPOCH, znodes.controller_epoch_bytes(7))
        self.answers: list[object] = []
        self.applied: list[tuple[Sequence[Change], dict[str, TopicMetadata | None]]] = []
        self.resigned: list[StoreResult] = []
        self.may_act = True
        self.reads: list[Callable[[ClusterState], object]] = []
        self.later: list[Callable[[], object]] = []
        self.decided: list[str] = []
        self.queue = CommandQueue(
            store=self.store,
            retries=self.retries,
            later=self.later.append if is_later else lambda function: function(),
            on_applied=lambda changes, before: self.applied.append((changes, dict(before))),
            read_state=self.reads.append,
            resign=self.resigned.append,
            may_act=lambda: self.may_act,
        )
        self.queue.open(elected())

    def submit(self, name: str, *operations: Operation, changes: Sequence[Change] = (), is_urgent: bool = False) -> None:
        """Submits a command that writes these operations at once and answers with its name."""

        def decide(state: ClusterState) -> Plan:
            self.decided.append(name)
            return planned(state, [Unit(operations, changes)] if operations or changes else [], answer=name)

        self.run(decide, is_urgent=is_urgent)

    def run(self, decide: Callable[[ClusterState], Plan], *, is_urgent: bool = False) -> None:
        self.queue.submit(QueuedCommand(decide, self.answers.append, self.answers.append), is_urgent=is_urgent)

    def data(self, path: str) -> bytes | None:
        node = self.store.nodes().get(path)
        return None if node is None else node.data


def test_a_change_holds_when_it_is_written_and_is_announced_with_what_was_before() -> None:
    world = QueueWorld()
    world.store.hold()
    world.submit("a", Create("/a", b"1"), changes=[TopicPut(topic("t"))])
    assert not world.applied and not world.answers and world.queue.state.topic("t") is None
    world.store.release()
    assert world.applied == [((TopicPut(topic("t")),), {"t": None})] and world.answers == ["a"]
    world.submit("b", Delete("/a"), changes=[TopicRemoved("t")])
    assert world.applied[1] == ((TopicRemoved("t"),), {"t": topic("t")}) and world.data("/a") is None


def test_a_command_without_a_write_is_answered_at_once() -> None:
    world = QueueWorld()
    world.submit("a", changes=[TopicPut(topic("t"))])
    world.submit("b")
    assert world.answers == ["a", "b"] and len(world.applied) == 1 and len(world.store.multis) == 1, "one made the epoch's node"


def test_the_next_command_is_decided_when_the_one_before_it_is_applied() -> None:
    world = QueueWorld()
    world.store.hold()
    for name in ("a", "b", "c"):
        world.submit(name, Create(f"/{name}"))
    world.submit("urgent", Create("/urgent"), is_urgent=True)
    assert world.decided == ["a"]
    world.store.release()
    assert world.decided == world.answers == ["a", "urgent", "b", "c"]


def test_a_command_that_an_answer_submits_waits_for_its_turn() -> None:
    world = QueueWorld()

    def done(answer: object) -> None:
        world.submit("second")
        world.answers.append(answer)

    world.queue.submit(QueuedCommand(lambda _state: Plan(answer="first"), done, world.answers.append))
    assert world.answers == ["first", "second"]


def test_more_commands_than_may_wait_are_to_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_queue, "COMMANDS_MAX", 1)
    world = QueueWorld()
    world.store.hold()
    for name in ("a", "b", "c"):
        world.submit(name, Create(f"/{name}"))
    world.submit("urgent", is_urgent=True)
    assert world.answers == [ErrorCode.REQUEST_TIMED_OUT], "an urgent command is never refused"
    world.store.release()
    assert world.answers[1:] == ["a", "urgent", "b"]


def test_a_queue_that_is_not_open_has_no_controller() -> None:
    world = QueueWorld()
    world.queue.close()
    world.submit("a", Create("/a"))
    assert world.answers == [ErrorCode.NOT_CONTROLLER] and not world.decided


def test_without_a_lease_nothing_is_decided_and_an_answer_is_not_acted_upon() -> None:
    """The part of the broker that answers `may_act` with False also closes the queue. Here the queue stays open, and still does nothing."""
    world = QueueWorld()
    world.store.hold()
    world.submit("written", Create("/a"))
    world.submit("waits", Create("/b"))
    world.may_act = False
    world.submit("late", Create("/c"))
    world.store.release()
    assert world.decided == ["written"] and world.answers == [ErrorCode.NOT_CONTROLLER] and world.applied == []


def test_closing_answers_all_that_waits_and_ignores_the_write_under_way() -> None:
    world = QueueWorld()
    world.store.hold()
    world.submit("a", Create("/a"), changes=[TopicPut(topic("t"))])
    world.submit("b", Create("/b"))
    world.queue.close()
    assert world.answers == [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER]
    world.store.release()
    assert len(world.answers) == 2 and not world.applied and world.data("/b") is None
    world.queue.open(elected())
    world.submit("c", Create("/c"))
    assert world.answers[2:] == ["c"]


# Several parts


def in_parts(*names: str) -> Callable[[ClusterState], Plan]:
    guard = Check(znodes.CONTROLLER_EPOCH, 0)
    return lambda _state: Plan(parts=tuple(PlanPart((guard, Create(f"/{name}")), (TopicPut(topic(name)),)) for name in names), answer="all")


def test_each_part_holds_when_it_is_written_and_other_work_has_its_turn_in_between() -> None:
    world = QueueWorld(is_later=True)
    world.run(in_parts("a", "b"))
    assert world.data("/a") is not None and len(world.applied) == 1 and world.data("/b") is None
    world.submit("c", Create("/c"))
    assert world.decided == []
    world.later.pop()()
    assert len(world.applied) == 2 and world.answers == ["all", "c"]


def test_a_part_that_was_put_off_is_not_written_after_the_end_of_the_term() -> None:
    world = QueueWorld(is_later=True)
    world.run(in_parts("a", "b"))
    world.queue.close()
    world.later.pop()()
    assert world.data("/b") is None and world.answers == [ErrorCode.NOT_CONTROLLER]


def test_a_large_write_lets_other_work_have_its_turn_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_queue, "OPERATIONS_AT_ONCE_MAX", 2)
    world = QueueWorld(is_later=True)
    world.submit("small", Create("/a"))
    world.submit("large", Create("/b"), Create("/c"))
    assert world.answers == ["small"] and world.data("/b") is None
    world.later.pop()()
    assert world.answers == ["small", "large"]


# Outcomes


@pytest.mark.parametrize("result", [StoreResult.SESSION_EXPIRED, StoreResult.BAD_VERSION])
def test_a_controller_that_was_replaced_resigns(result: StoreResult) -> None:
    """BAD_VERSION of the first operation, the check of the epoch, means that another controller has raised the epoch."""
    world = QueueWorld()
    if result is StoreResult.BAD_VERSION:
        world.store.multi([Set(znodes.CONTROLLER_EPOCH, b"8", 0)], lambda outcome: None)
    else:
        world.store.fail_next(result)
    world.submit("a", Create("/a"))
    assert world.resigned == [result] and not world.answers and world.data("/a") is None


def test_a_conflict_is_decided_again_from_a_new_state() -> None:
    world = QueueWorld()
    world.store.put("/a", b"changed by another")
    world.run(lambda state: planned(state, [Unit([Create("/a")] if state.topic("a") is None else [])], answer="made"))
    assert not world.answers and len(world.reads) == 1
    world.queue.state.unclean_elections = 2
    state = elected()
    state.apply([TopicPut(topic("a"))])
    world.reads.pop()(state)
    assert world.answers == ["made"] and world.queue.state is state
    assert state.unclean_elections == 2


def test_unclean_elections_are_counted_over_all_terms() -> None:
    world = QueueWorld()
    world.queue.state.unclean_elections = 2
    world.queue.close()
    world.queue.open(elected())
    assert world.queue.state.unclean_elections == 2


def test_a_conflict_that_does_not_end_is_given_up_and_the_next_command_goes_on() -> None:
    world = QueueWorld()
    world.store.put("/a", b"")
    world.submit("a", Create("/a"))
    world.submit("b", Create("/b"))
    for _ in range(ATTEMPTS_MAX):
        world.reads.pop()(elected())
    assert world.answers == [ErrorCode.UNKNOWN_SERVER_ERROR, "b"] and world.decided == ["a"] * ATTEMPTS_MAX + ["b"]


@pytest.mark.parametrize("result", [StoreResult.DISK_FAILED, StoreResult.TOO_LARGE])
def test_a_write_that_cannot_be_done_fails_its_command_alone(result: StoreResult) -> None:
    world = QueueWorld()
    world.store.fail_next(result)
    world.submit("a", Create("/a"))
    world.submit("b", Create("/b"))
    assert world.answers == [ErrorCode.KAFKA_STORAGE_ERROR, "b"]


# Unknown outcomes


def test_a_write_that_was_taken_without_an_answer_counts() -> None:
    world = QueueWorld()
    world.store.fail_next(StoreResult.UNKNOWN, is_applied=True)
    world.submit("a", Create("/a", b"1"), changes=[TopicPut(topic("t"))])
    assert world.answers == ["a"] and world.decided == ["a"] and len(world.applied) == 1 and not world.reads


@pytest.mark.parametrize("result", [StoreResult.UNKNOWN, StoreResult.CONNECTION_LOST])
def test_a_write_that_was_not_taken_is_decided_again_and_is_no_attempt(result: StoreResult) -> None:
    world = QueueWorld()
    for _ in range(ATTEMPTS_MAX + 1):
        world.store.fail_next(result)
        if world.reads:
            world.reads.pop()(elected())
        else:
            world.submit("a", Create("/a", b"1"))
    world.reads.pop()(elected())
    assert world.answers == ["a"] and world.data("/a") == b"1"


def test_a_late_write_is_awaited_before_it_is_looked_for() -> None:
    """The late write is executed before the session's next write, the check of the epoch, which is ordered behind it."""
    world = QueueWorld()
    world.store.fail_next(StoreResult.UNKNOWN, is_late=True)
    world.submit("a", Create("/a", b"1"))
    assert world.answers == ["a"] and not world.reads


def test_the_look_is_repeated_until_the_store_answers() -> None:
    world = QueueWorld()
    world.store.fail_next(StoreResult.UNKNOWN, is_applied=True)
    world.store.fail_next_read()
    world.submit("a", Create("/a", b"1"))
    assert not world.answers
    world.timers.advance(RETRY_MS)
    assert world.answers == ["a"]


def test_a_look_that_finds_another_epoch_ends_the_rule() -> None:
    world = QueueWorld()

    def replaced(state: ClusterState) -> Plan:
        world.store.multi([Set(znodes.CONTROLLER_EPOCH, b"8", 0)], lambda outcome: None)
        world.store.fail_next(StoreResult.UNKNOWN)
        return planned(state, [Unit([Create("/a")])])

    world.run(replaced)
    assert world.resigned == [StoreResult.BAD_VERSION] and not world.answers


# Pure parts


def node(data: bytes, version: int) -> StoreNode:
    return StoreNode(data=data, version=version, czxid=1, ephemeral_owner=0)


@pytest.mark.parametrize(
    ("operations", "nodes", "expected"),
    [
        ([Create("/a", b"1")], {"/a": node(b"1", 0)}, True),
        ([Create("/a", b"1")], {"/a": node(b"1", 1)}, False),
        ([Create("/a", b"1")], {"/a": node(b"2", 0)}, False),
        ([Create("/a", b"1")], {}, False),
        ([Set("/a", b"1", 4)], {"/a": node(b"1", 5)}, True),
        ([Set("/a", b"1", 4)], {"/a": node(b"1", 4)}, False),
        ([Set("/a", b"1", -1)], {"/a": node(b"1", 9)}, True),
        ([Delete("/a")], {}, True),
        ([Delete("/a")], {"/a": node(b"", 0)}, False),
        ([Check("/c", 3), Create("/a", b"")], {"/a": node(b"", 0), "/c": node(b"", 9)}, True),
        ([Create("/a", b""), Create("/b", b"")], {"/a": node(b"", 0)}, False),
    ],
)
def test_whether_a_write_is_in_force(operations: list[Operation], nodes: dict[str, StoreNode], expected: bool) -> None:
    assert is_in_force(PlanPart(tuple(operations), ()), nodes) is expected


def test_the_topic_of_a_change() -> None:
    partition = PartitionMetadata(index=0, leader=0, leader_epoch=0, replicas=(0,), isr=(0,))
    changes = [TopicPut(topic("t")), TopicRemoved("u"), PartitionPut("v", partition), ConfigPut(2, "t", {})]
    assert [topic_of(change) for change in changes] == ["t", "u", "v", None]
