"""Access rules in the metadata store: which nodes are written, and that every broker sees all changes and loses none, whatever happens to
its session."""

from __future__ import annotations

import inspect
import itertools
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping

import pytest

from ottla.base.acls import AclFilter, AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.base.errors import ErrorCode
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Delete, Set, StoreResult
from ottla.cluster.acl_rules import DENY_ALL, PATTERNS_PER_WRITE, AclRules, RuleChange
from ottla.cluster.change_watch import PURGE_MS
from ottla.controller.loading import read_paths
from ottla.metadata_store import acl_nodes
from tests.fakes.memory_store import MemoryStore
from tests.fakes.rule_nodes import count_encoded
from tests.fakes.timers import ManualTimers
from tests.fakes.world import World

ORDERS = Pattern(ResourceType.TOPIC, "orders")
TEAM = Pattern(ResourceType.GROUP, "team-", PatternType.PREFIXED)


def rule(who: str, operation: AclOperation = AclOperation.READ) -> Rule:
    return Rule(f"User:{who}", "*", operation, Permission.ALLOW)


class Table:
    """A `RuleTable` without an authorizer."""

    def __init__(self) -> None:
        self.rules: dict[Pattern, frozenset[Rule]] = {}
        self.replaced = 0

    def replace(self, rules: Mapping[Pattern, Iterable[Rule]]) -> None:
        self.replaced += 1
        self.rules = {pattern: frozenset(of_pattern) for pattern, of_pattern in rules.items()}

    def put(self, pattern: Pattern, rules: Iterable[Rule]) -> None:
        self.rules[pattern] = frozenset(rules)
        if not self.rules[pattern]:
            del self.rules[pattern]

    def bindings(self, wanted: AclFilter) -> Generator[None, None, list[Binding]]:
        yield from ()
        return []


class Side:
    """The access rules of one broker."""

    def __init__(self, store: MemoryStore, timers: ManualTimers, *, is_alone: bool = False) -> None:
        self.store, self.timers, self.table = store, timers, Table()
        self.is_loaded = False
        self.rules = AclRules(store, StoreRetries(store, timers), timers, self.table, is_alone=is_alone)
        self.rules.start(self._loaded)

    def _loaded(self) -> None:
        assert not self.is_loaded
        self.is_loaded = True

    def change(self, pattern: Pattern, *, added: Iterable[Rule] = (), removed: Iterable[Rule] = ()) -> list[Mapping[Pattern, ErrorCode]]:
        answers: list[Mapping[Pattern, ErrorCode]] = []
        self.rules.change({pattern: RuleChange(frozenset(added), frozenset(removed))}, answers.append)
        return answers


class RulesWorld(World):
    """Brokers over one ZooKeeper."""

    def __init__(self, count: int = 2, seed: int = 1) -> None:
        chance = random.Random(seed)
        self.sides = [Side(self.model.session(self.timers, lambda: chance.randint(1, 20)), self.timers) for _ in range(count)]
        self.until(lambda: all(side.is_loaded for side in self.sides))

    def stored(self) -> dict[Pattern, frozenset[Rule]]:
        found = {}
        for path, node in self.model.tree.nodes().items():
            pattern = acl_nodes.pattern_at(path) if path.startswith("/kafka-acl") else None
            if pattern is not None:
                found[pattern] = frozenset(acl_nodes.read_rules(node.data))
        return found

    def agree(self) -> bool:
        return all(side.table.rules == self.stored() for side in self.sides)


def alone() -> Side:
    side = Side(MemoryStore(), ManualTimers(), is_alone=True)
    assert side.is_loaded
    return side


def test_a_broker_by_itself_answers_at_once_and_finds_its_rules_after_a_restart() -> None:
    side = alone()
    assert side.change(ORDERS, added=[rule("a"), rule("b")]) == [{}] and side.change(TEAM, added=[rule("a")]) == [{}]
    assert side.change(ORDERS, removed=[rule("b"), rule("absent")]) == [{}]
    assert side.table.rules == {ORDERS: {rule("a")}, TEAM: {rule("a")}}
    assert not [path for path in side.store.nodes() if "acl_changes_" in path]
    again = Side(side.store.reopened(), side.timers, is_alone=True)
    assert again.is_loaded and again.table.rules == side.table.rules
    before = len(again.store.multis)
    assert again.change(ORDERS, added=[rule("a")]) == [{}] and len(again.store.multis) == before, "what holds already is not written"
    assert again.change(ORDERS, removed=[rule("a")]) == [{}]
    assert "/kafka-acl/Topic/orders" not in again.store.nodes() and ORDERS not in again.table.rules


def test_another_broker_has_a_change_as_soon_as_the_store_has_notified_it() -> None:
    world = RulesWorld(3)
    answers = world.sides[0].change(ORDERS, added=[rule("a")])
    world.until(lambda: answers)
    assert world.sides[0].table.rules == {ORDERS: {rule("a")}}, "in force where it was asked for"
    world.until(world.agree, ms=1_000)
    answers = world.sides[2].change(ORDERS, removed=[rule("a")])
    world.until(lambda: answers and world.agree(), ms=1_000)
    assert world.stored() == {} == world.sides[1].table.rules
    changes = {path: node.data for path, node in world.model.tree.nodes().items() if "acl_changes_" in path}
    assert changes == {f"/kafka-acl-changes/acl_changes_000000000{number}": b"TOPIC:orders" for number in (0, 1)}
    world.timers.advance(PURGE_MS + 1_000)
    assert not [path for path in world.model.tree.nodes() if "acl_changes_" in path]


def test_two_brokers_that_change_one_pattern_lose_no_rule() -> None:
    for seed in range(20):
        world = RulesWorld(seed=seed)
        answers = [side.change(ORDERS, added=[rule(f"{who}-{number}")]) for number in range(5) for who, side in enumerate(world.sides)]
        world.until(lambda answers=answers: all(answers))  # type: ignore[misc]
        assert all(answer == [{}] for answer in answers)
        assert world.stored() == {ORDERS: {rule(f"{who}-{number}") for number in range(5) for who in range(2)}}
        world.until(world.agree)


def test_thousands_of_changes_that_wait_and_write_nothing_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered one after the other, not by calls within calls, which would exhaust the stack."""
    side = alone()
    multi, held = side.store.multi, []
    monkeypatch.setattr(side.store, "multi", lambda operations, done: held.append(lambda: multi(operations, done)))
    answers = [side.change(ORDERS, added=[rule("a")]) for _ in range(3_000)]
    held.pop()()
    side.timers.advance(1)
    assert answers == [[{}]] * 3_000 and side.table.rules == {ORDERS: {rule("a")}} and not held


def test_a_change_of_many_patterns_is_written_in_turns_and_not_one_write_within_the_other() -> None:
    side, answers = alone(), list[Mapping[Pattern, ErrorCode]]()
    patterns = [Pattern(ResourceType.TOPIC, f"topic-{number}") for number in range(4 * PATTERNS_PER_WRITE)]
    depths: list[int] = []
    multi = side.store.multi
    side.store.multi = lambda operations, done: (depths.append(len(inspect.stack(0))), multi(operations, done))  # type: ignore[method-assign]
    side.rules.change({pattern: RuleChange(frozenset([rule("a")])) for pattern in patterns}, answers.append)
    assert len(depths) == 1
    side.timers.advance(1)
    assert answers == [{}] and set(side.table.rules) == set(patterns)
    assert len(depths) == 4 and len(set(depths[1:])) == 1


def test_another_program_that_writes_the_node_is_noticed() -> None:
    world = RulesWorld(1)
    answers = world.sides[0].change(ORDERS, added=[rule("a")])
    world.until(lambda: answers)
    other = world.model.session()
    path = acl_nodes.rules_path(ORDERS)
    other.multi([Set(path, acl_nodes.rules_bytes([rule("tool")])), acl_nodes.change(ORDERS)], lambda outcome: None)
    world.until(lambda: world.sides[0].table.rules == {ORDERS: {rule("tool")}})
    other.multi([Delete(path), acl_nodes.change(ORDERS)], lambda outcome: None)
    world.until(lambda: not world.sides[0].table.rules)
    assert world.stored() == {}


@pytest.mark.parametrize(("is_applied", "is_late"), [(False, False), (True, False), (False, True)])
def test_a_write_whose_answer_is_lost_is_carried_out_once(is_applied: bool, is_late: bool) -> None:
    world = RulesWorld(1)
    side = world.sides[0]
    side.store.fail_next(StoreResult.UNKNOWN, is_applied=is_applied, is_late=is_late)
    answers = side.change(ORDERS, added=[rule("a")])
    world.until(lambda: answers)
    assert answers == [{}] and world.stored() == {ORDERS: {rule("a")}} and world.agree()


def test_a_store_that_cannot_write_is_an_error_and_changes_nothing() -> None:
    side = alone()
    side.store.fail_next(StoreResult.DISK_FAILED)
    assert side.change(ORDERS, added=[rule("a")]) == [{ORDERS: ErrorCode.KAFKA_STORAGE_ERROR}]
    assert not side.table.rules and side.change(ORDERS, added=[rule("b")]) == [{}]
    assert side.table.rules == {ORDERS: {rule("b")}}


def test_what_changed_without_a_connection_is_read_afterwards() -> None:
    world = RulesWorld(2)
    first, second = world.sides
    second.store.disconnect()
    answers = first.change(ORDERS, added=[rule("a")])
    world.until(lambda: answers)
    world.timers.advance(1_000)
    assert not second.table.rules
    waiting = second.change(TEAM, added=[rule("b")])
    world.timers.advance(1_000)
    assert not waiting
    second.store.reconnect()
    world.until(lambda: waiting and world.agree())
    assert world.stored() == {ORDERS: {rule("a")}, TEAM: {rule("b")}}


def test_a_new_session_reads_everything_and_goes_on_with_what_waited() -> None:
    world = RulesWorld(2)
    first, second = world.sides
    second.store.disconnect()
    waiting = second.change(TEAM, added=[rule("b")])
    world.model.end(second.store.session_id())
    answers = first.change(ORDERS, added=[rule("a")])
    world.until(lambda: answers)
    second.store.reconnect()
    second.store.renew()
    world.timers.advance(100)
    second.rules.restart()
    world.until(lambda: waiting and world.agree())
    assert waiting == [{}] and world.stored() == {ORDERS: {rule("a")}, TEAM: {rule("b")}}
    third = second.change(ORDERS, added=[rule("c")])
    world.until(lambda: third and world.agree())


def test_a_session_that_ends_during_a_write_is_answered_and_holds_up_nothing() -> None:
    world = RulesWorld(1)
    side = world.sides[0]
    answers = side.change(ORDERS, added=[rule("a")])
    side.store.expire()
    world.until(lambda: answers)
    side.store.renew()
    world.timers.advance(100)
    side.rules.restart()
    again = side.change(TEAM, added=[rule("b")])
    world.until(lambda: again and world.agree())
    assert again == [{}]


def test_a_damaged_node_denies_everything_and_cannot_be_changed(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    store.put(acl_nodes.rules_path(ORDERS), b"{")
    store.put("/kafka-acl/Topik/x", b"")
    side = Side(store, ManualTimers(), is_alone=True)
    assert side.table.rules == {ORDERS: {DENY_ALL}} and "damaged, so everything is denied there" in caplog.text
    assert side.change(ORDERS, added=[rule("a")]) == [{ORDERS: ErrorCode.UNKNOWN_SERVER_ERROR}]
    assert side.change(TEAM, added=[rule("a")]) == [{}] and store.nodes()[acl_nodes.rules_path(ORDERS)].data == b"{"


def test_changes_that_name_nothing_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = RulesWorld(1)
    store = world.model.session()
    store.put("/kafka-acl-changes/acl_changes_nonsense", b"?")
    world.until(lambda: "names no resource" in caplog.text)
    answers = world.sides[0].change(ORDERS, added=[rule("a")])
    world.until(lambda: answers and world.agree())
    assert world.stored() == {ORDERS: {rule("a")}}


def test_a_pattern_has_no_more_rules_than_a_node_holds() -> None:
    side = alone()
    many = [rule("x" * 1000 + str(number)) for number in range(300)]
    assert side.change(ORDERS, added=many) == [{ORDERS: ErrorCode.POLICY_VIOLATION}] and not side.table.rules
    answers: list[Mapping[Pattern, ErrorCode]] = []
    changes = {Pattern(ResourceType.TOPIC, f"t{number}"): RuleChange(frozenset(many[:100])) for number in range(20)}
    side.rules.change(changes, answers.append)
    side.timers.advance(1)
    assert answers == [{}] and len(side.table.rules) == 20


def test_a_write_encodes_the_rules_of_its_pattern_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding thousands of rules takes some milliseconds."""
    encoded = count_encoded(monkeypatch)
    side = alone()
    assert side.change(ORDERS, added=[rule("a"), rule("b")]) == [{}] and encoded == [2]
    assert side.change(ORDERS, added=[rule("a")]) == [{}] and encoded == [2], "nothing changes"
    assert side.change(ORDERS, removed=[rule("a")]) == [{}] and encoded == [2, 1]


def test_patterns_of_many_rules_are_decided_in_a_turn_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one turn of the loop, reading and encoding 50 patterns with 5,000 rules each would take 700 ms."""
    monkeypatch.setattr("ottla.cluster.acl_rules.RULES_BYTES_PER_WRITE", 3000)
    side, turn, turns = alone(), itertools.count(1), [0]
    call_soon, read = side.timers.call_soon, acl_nodes.read_rules
    reads: Counter[int] = Counter()

    def begin_turn(function: Callable[[], object]) -> None:
        turns.append(next(turn))
        function()

    def count(data: bytes) -> list[Rule]:
        reads[turns[-1]] += 1
        return read(data)

    monkeypatch.setattr(side.timers, "call_soon", lambda function: call_soon(lambda: begin_turn(function)))
    monkeypatch.setattr(acl_nodes, "read_rules", count)
    patterns = [Pattern(ResourceType.TOPIC, f"topic-{number}") for number in range(30)]
    for pattern in patterns[:20]:
        assert side.change(pattern, added=[rule(f"u{number}") for number in range(50)]) == [{}]
    answers: list[Mapping[Pattern, ErrorCode]] = []
    reads.clear()
    paths_read: list[str] = []

    def note_paths(store: MemoryStore, paths: list[str], done: Callable[..., object]) -> None:
        paths_read.extend(paths)
        read_paths(store, paths, done)

    monkeypatch.setattr("ottla.cluster.acl_rules.read_paths", note_paths)
    side.rules.change({pattern: RuleChange(frozenset([rule("again"), rule("u1")])) for pattern in patterns}, answers.append)
    while not answers:
        side.timers.advance(1)
    assert answers == [{}] and all(rule("again") in side.table.rules[pattern] for pattern in patterns)
    assert max(reads.values()) == 1 and reads.total() == 20
    assert len(paths_read) < 4 * len(patterns), "few nodes are read in vain"
    monkeypatch.setattr("ottla.cluster.acl_rules.RULES_BYTES_MAX", 3000)
    reads.clear()
    side.rules.change({pattern: RuleChange(frozenset([rule("more")])) for pattern in patterns[:20]}, answers.append)
    while len(answers) < 2:
        side.timers.advance(1)
    assert answers[1] == dict.fromkeys(patterns[:20], ErrorCode.POLICY_VIOLATION)
    assert max(reads.values()) == 1 and reads.total() == 20, "those that are refused cost as much"


def test_a_reading_that_fails_is_done_again() -> None:
    store, timers = MemoryStore(), ManualTimers()
    store.fail_next_read()
    side = Side(store, timers, is_alone=True)
    assert not side.is_loaded
    timers.advance(1_000)
    assert side.is_loaded and side.table.replaced == 1


def test_brokers_and_faults_in_any_order_end_in_agreement() -> None:
    for seed in range(15):
        chance = random.Random(seed)
        world = RulesWorld(3, seed)
        answers = []
        for step in range(30):
            side = chance.choice(world.sides)
            pattern = chance.choice([ORDERS, TEAM])
            mine = [rule(str(chance.randrange(6)))]
            action = chance.randrange(5)
            if action < 3:
                answers.append(side.change(pattern, added=mine if action else (), removed=() if action else mine))
            elif action == 3:
                side.store.fail_next(StoreResult.UNKNOWN, is_applied=chance.random() < 0.5)
            else:
                side.store.disconnect(is_applied=chance.random() < 0.5)
                side.store.reconnect()
            world.timers.advance(chance.randrange(30) if step % 3 else 0)
        world.until(lambda answers=answers, world=world: all(answers) and world.agree())  # type: ignore[misc]
        assert all(answer == [{}] for answer in answers)
