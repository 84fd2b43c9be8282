"""Delegation tokens in the metadata store: any broker creates, changes and removes them, and all brokers know them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ErrorCode
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Outcome, Set, StoreResult
from ottla.base.uuids import uuid_to_text
from ottla.cluster import delegation_tokens
from ottla.cluster.change_watch import PURGE_MS
from ottla.cluster.delegation_tokens import DelegationTokens
from ottla.metadata_store import delegation_token_nodes
from tests.fakes.memory_store import MemoryStore
from tests.fakes.timers import ManualTimers
from tests.fakes.world import World

HOUR_MS = 3_600_000
Answers = list[tuple[ErrorCode, DelegationToken | None]]


class Side:
    """The delegation tokens of one broker."""

    def __init__(self, store: MemoryStore, timers: ManualTimers, *, is_alone: bool = False) -> None:
        self.store, self.is_loaded, self.changes = store, False, 0
        self.tokens = DelegationTokens(
            store, StoreRetries(store, timers), timers, timers.clock, is_alone=is_alone, expiry_interval_ms=HOUR_MS
        )
        self.tokens.on_change = self._changed
        self.tokens.start(self._loaded)

    def _loaded(self) -> None:
        assert not self.is_loaded
        self.is_loaded = True

    def _changed(self) -> None:
        self.changes += 1

    def create(self, token: DelegationToken) -> Answers:
        answers: Answers = []
        self.tokens.create(token, lambda code, found: answers.append((code, found)))
        return answers

    def update(self, token_id: str, decide: delegation_tokens.Decide) -> Answers:
        answers: Answers = []
        self.tokens.update(token_id, decide, lambda code, found: answers.append((code, found)))
        return answers


class TokensWorld(World):
    """Brokers over one ZooKeeper."""

    def __init__(self, count: int = 2) -> None:
        chance = random.Random(1)
        self.sides = [Side(self.model.session(self.timers, lambda: chance.randint(1, 20)), self.timers) for _ in range(count)]
        self.until(lambda: all(side.is_loaded for side in self.sides))

    def token(self, number: int = 1, **changed: object) -> DelegationToken:
        now_ms = self.clock.wall_ms()
        token = DelegationToken(
            token_id=uuid_to_text(number.to_bytes(16, "big")), owner="User:alice", requester="User:alice", issue_ms=now_ms,
            expiry_ms=now_ms + HOUR_MS, max_ms=now_ms + 10 * HOUR_MS,
        )  # fmt: skip
        return replace(token, **changed)

    def stored(self) -> list[DelegationToken]:
        found = self.model.tree.nodes()
        nodes = [node for path, node in sorted(found.items()) if delegation_token_nodes.token_at(path)]
        return [delegation_token_nodes.read_token(node.data) for node in nodes]

    def answer(self, answers: Answers) -> tuple[ErrorCode, DelegationToken | None]:
        self.until(lambda: answers)
        (answer,) = answers
        return answer

    def agree(self) -> bool:
        return all(side.tokens.all() == self.stored() for side in self.sides)


def test_a_token_is_known_to_every_broker_and_so_is_its_end() -> None:
    world = TokensWorld()
    token = world.token()
    assert world.answer(world.sides[0].create(token)) == (ErrorCode.NONE, token)
    assert world.sides[0].tokens.find(token.token_id) == token and world.stored() == [token]
    world.until(world.agree)
    longer = replace(token, expiry_ms=token.expiry_ms + 1)
    assert world.answer(world.sides[1].update(token.token_id, lambda _token: longer)) == (ErrorCode.NONE, longer)
    world.until(world.agree)
    assert world.answer(world.sides[0].update(token.token_id, lambda _token: None)) == (ErrorCode.NONE, None)
    world.until(world.agree)
    assert world.stored() == [] and world.sides[1].tokens.find(token.token_id) is None


def test_a_broker_that_starts_later_knows_all() -> None:
    world = TokensWorld(1)
    tokens = [world.token(number) for number in range(1, 4)]
    for token in tokens:
        world.answer(world.sides[0].create(token))
    world.sides.append(Side(world.model.session(world.timers, lambda: 3), world.timers))
    world.until(lambda: world.sides[1].is_loaded)
    assert world.sides[1].tokens.all() == tokens


def test_two_brokers_change_one_token_and_no_change_is_lost() -> None:
    world = TokensWorld()
    token = world.token()
    world.answer(world.sides[0].create(token))
    world.until(world.agree)

    def longer(token: DelegationToken) -> DelegationToken:
        return replace(token, expiry_ms=token.expiry_ms + 1)

    answers = [side.update(token.token_id, longer) for side in world.sides for _ in range(3)]
    world.until(lambda: all(answers))
    world.until(world.agree)
    assert world.stored()[0].expiry_ms == token.expiry_ms + 6


def test_a_refused_change_changes_nothing() -> None:
    world = TokensWorld(1)
    token = world.token()
    world.answer(world.sides[0].create(token))
    answer = world.answer(world.sides[0].update(token.token_id, lambda _token: ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    assert answer == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, token) and world.stored() == [token]
    unknown = world.answer(world.sides[0].update(world.token(9).token_id, lambda _token: None))
    assert unknown == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, None)


def test_expired_tokens_are_of_no_use_and_are_removed() -> None:
    world = TokensWorld()
    token, kept = world.token(1), world.token(2, expiry_ms=world.timers.clock.wall_ms() + 9 * HOUR_MS)
    for one in (token, kept):
        world.answer(world.sides[0].create(one))
    world.until(world.agree)
    world.timers.advance(token.expiry_ms + 1 - world.timers.clock.wall_ms())
    assert all(side.tokens.find(token.token_id) is None and side.tokens.find(kept.token_id) == kept for side in world.sides)
    world.timers.advance(HOUR_MS)
    world.until(world.agree)
    assert world.stored() == [kept]


@pytest.mark.parametrize("result", [StoreResult.CONNECTION_LOST, StoreResult.UNKNOWN])
def test_a_write_whose_answer_is_lost_is_found_or_made_again(result: StoreResult, monkeypatch: pytest.MonkeyPatch) -> None:
    world = TokensWorld(1)
    store, multi, lost = world.sides[0].store, world.sides[0].store.multi, [2]

    def losing(operations: object, done: Callable[[object], object]) -> None:
        lost[0] -= 1
        if lost[0] < 0:
            multi(operations, done)
        elif result is StoreResult.UNKNOWN:
            multi(operations, lambda outcome: done(replace(outcome, result=result)))
        else:
            done(Outcome(result))

    monkeypatch.setattr(store, "multi", losing)
    token = world.token()
    assert world.answer(world.sides[0].create(token)) == (ErrorCode.NONE, token)
    assert world.stored() == [token]


def test_everything_is_read_again_in_a_new_session() -> None:
    world = TokensWorld()
    world.sides[1].store.expire()
    token = world.token()
    world.answer(world.sides[0].create(token))
    world.sides[1].store.renew()
    world.timers.advance(100)
    world.sides[1].tokens.restart()
    world.until(world.agree)
    assert world.sides[1].tokens.all() == [token]


def test_a_damaged_node_is_no_token(caplog: pytest.LogCaptureFixture) -> None:
    world = TokensWorld(1)
    token, other = world.token(1), world.token(2)
    world.answer(world.sides[0].create(token))
    store, done = world.sides[0].store, []
    store.multi([Set(delegation_token_nodes.token_path(token.token_id), delegation_token_nodes.token_bytes(other))], done.append)
    world.until(lambda: done)
    world.sides[0].tokens.restart()
    world.until(lambda: world.sides[0].tokens.find(token.token_id) is None)
    assert world.sides[0].tokens.all() == []


def test_announcements_are_removed_in_the_end() -> None:
    world = TokensWorld()
    world.answer(world.sides[0].create(world.token()))
    world.until(world.agree)

    def announced() -> list[str]:
        return [path for path in world.model.tree.nodes() if path.startswith(f"{delegation_token_nodes.CHANGES}/")]

    assert len(announced()) == 1
    world.timers.advance(PURGE_MS)
    world.until(lambda: announced() == [])


def test_a_broker_by_itself_announces_nothing() -> None:
    timers, store = ManualTimers(), MemoryStore()
    side = Side(store, timers, is_alone=True)
    world = object.__new__(TokensWorld)
    world.timers = timers
    assert side.is_loaded and side.create(TokensWorld.token(world))[0][0] is ErrorCode.NONE
    assert not [path for path in store.model.tree.nodes() if path.startswith(f"{delegation_token_nodes.CHANGES}/")]


def test_i46_names_of_principals_have_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly one token could have a thousand renewers with names of thirty thousand letters, and there could be ten thousand tokens."""
    world = TokensWorld(2)
    large = tuple(f"User:{number}" + "x" * 1000 for number in range(100))
    assert world.answer(world.sides[0].create(world.token(1, renewers=large * 3)))[0] is ErrorCode.POLICY_VIOLATION
    monkeypatch.setattr(delegation_tokens, "TEXT_BYTES_MAX", 1_800_000)
    for number in (1, 2):
        assert world.answer(world.sides[0].create(world.token(number, renewers=large)))[0] is ErrorCode.NONE
    assert world.answer(world.sides[0].create(world.token(3, renewers=large)))[0] is ErrorCode.POLICY_VIOLATION
    world.until(world.agree)
    assert world.answer(world.sides[1].create(world.token(3, renewers=large)))[0] is ErrorCode.POLICY_VIOLATION
    assert world.answer(world.sides[1].update(world.token(1).token_id, lambda _token: None))[0] is ErrorCode.NONE
    assert world.answer(world.sides[1].create(world.token(3, renewers=large)))[0] is ErrorCode.NONE


def test_there_is_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "TOKENS_MAX", 1)
    world = TokensWorld(1)
    assert world.answer(world.sides[0].create(world.token(1)))[0] is ErrorCode.NONE
    assert world.answer(world.sides[0].create(world.token(2)))[0] is ErrorCode.POLICY_VIOLATION




def test_one_owner_leaves_tokens_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly one user could create all tokens that a cluster may have within four seconds."""
    monkeypatch.setattr(delegation_tokens, "TOKENS_MAX", 20)
    world = TokensWorld()
    (greedy, other) = (replace(world.token(number), owner=owner) for number, owner in ((100, "User:greedy"), (200, "User:other")))

    def made(token: DelegationToken) -> int:
        codes = [world.answer(world.sides[0].create(replace(token, token_id=f"{token.owner}-{number}")))[0] for number in range(20)]
        return codes.count(ErrorCode.NONE)

    assert (made(greedy), made(other)) == (10, 5)
    world.answer(world.sides[0].update("User:greedy-0", lambda _token: None))
    assert world.answer(world.sides[0].create(greedy))[0] is ErrorCode.POLICY_VIOLATION, "others need what is left"
    assert world.answer(world.sides[0].create(replace(other, owner="User:third")))[0] is ErrorCode.NONE
