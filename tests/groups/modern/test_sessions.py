"""Sessions of members of modern groups: each member has one timer, which checks the deadline and continues, or removes the member."""

from __future__ import annotations

from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.modern import sessions as epoch_sessions
from ottla.groups.modern.sessions import SessionRules
from ottla.groups.shard import GroupShard, Session
from ottla.groups.share.group import ShareFacts, ShareGroup
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft
from tests.groups.classic.coordinator import Coordinator


class Sessions(Coordinator):
    """A share group with one member. The rules only record the removals, in `removed`."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[tuple[str, int]] = []
        self.rules = SessionRules(ShareGroup, self._remove)
        self.share = self.shard.groups["g"] = ShareGroup("g")
        self.share.set_member("a", ShareFacts())

    def _remove(self, shard: GroupShard, group: ShareGroup, member_id: str, now_ms: int) -> Decision:
        self.removed.append((member_id, now_ms))
        return NOTHING

    def extend(self, timeout_ms: int, member_id: str = "a") -> Session:
        draft = Draft()
        session = epoch_sessions.extend(self.shard, "g", member_id, timeout_ms, self.rules, draft, self.now_ms)
        self.take(draft.decision())
        return session


def test_a_silent_member_is_removed_when_its_time_is_over() -> None:
    world = Sessions()
    world.extend(1_000)
    world.advance(999)
    assert world.removed == []
    world.advance(1)
    assert world.removed == [("a", world.now_ms)] and not world.timers


def test_heartbeats_move_the_deadline_and_not_the_timer() -> None:
    world = Sessions()
    session = world.extend(1_000)
    timers = dict(world.timers)
    world.advance(600)
    assert world.extend(1_000) is session and world.timers == timers
    world.advance(999)
    assert world.removed == [] and list(world.timers) == ["alive/g/a"]
    world.advance(1)
    assert world.removed == [("a", 1_001_600)]


def test_a_shorter_time_makes_an_earlier_timer() -> None:
    world = Sessions()
    world.extend(100_000)
    world.extend(500)
    world.advance(500)
    assert [member for member, _ in world.removed] == ["a"]


def test_a_removal_that_the_log_refuses_can_extend_the_session() -> None:
    """The rules must start the session again in this case, because the session still exists, without a timer."""
    world = Sessions()
    session = world.extend(1_000)
    world.advance(1_000)
    assert session.timer_ms is None and world.extend(1_000) is session
    world.advance(1_000)
    assert len(world.removed) == 2


def test_the_session_of_a_member_that_left_ends_with_its_timer() -> None:
    world = Sessions()
    world.extend(1_000)
    world.share.remove_member("a")
    world.advance(1_000)
    assert world.removed == [] and not world.shard.sessions


def test_a_session_that_was_ended_is_not_looked_at() -> None:
    world = Sessions()
    world.extend(1_000)
    del world.shard.sessions["g", "a"]
    world.advance(1_000)
    assert world.removed == []


def test_a_group_of_another_kind_has_no_such_members() -> None:
    world = Sessions()
    world.extend(1_000)
    world.shard.groups["g"] = ConsumerGroup("g")
    world.advance(1_000)
    assert world.removed == [] and not world.shard.sessions


def test_members_have_a_timer_each() -> None:
    world = Sessions()
    world.share.set_member("b", ShareFacts())
    world.extend(1_000)
    world.extend(2_000, "b")
    assert set(world.timers) == {"alive/g/a", "alive/g/b"}
    world.advance(2_000)
    assert [member for member, _ in world.removed] == ["a", "b"]
