"""Steps of the log for tests of every group coordinator: it delays answers, refuses records, and is loaded again."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.groups.machine import GroupMachine
from tests.groups.hard_state import hard_state
from tests.scenarios.groups_world import World


class LogRules(RuleBasedStateMachine):
    """The base class of hypothesis's state machines for groups. A step is one command of the transcripts."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    @rule(code=st.sampled_from(["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "MESSAGE_TOO_LARGE"]))
    def refuse_next_append(self, code: str) -> None:
        self.world.run(f"refuse {code}")

    @rule(is_held=st.booleans())
    def hold(self, is_held: bool) -> None:
        self.world.run("hold" if is_held else "release")

    @rule()
    def restart(self) -> None:
        self.world.log.refuse_next = None
        self.world.run("restart")

    @invariant()
    def live_state_is_the_replay_of_the_log(self) -> None:
        """P9, I36: the running state equals the replay of the log."""
        replica = GroupMachine(self.world.settings, self.world.topics, self.world.random)
        self.world.log.replay(replica)
        assert hard_state(replica) == hard_state(self.world.machine)
