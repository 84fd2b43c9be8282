"""A share coordinator in memory, which executes calls immediately, later, or refuses them."""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import ErrorCode
from ottla.base.share_state import UNKNOWN_DELIVERY_COMPLETE_COUNT, SharePartitionKey, ShareState, StateFound, StateWritten
from ottla.sharing.state_machine import NOTHING_KNOWN
from ottla.sharing.state_shard import updated


class MemoryPersister:
    """`base.share_state.Persister`. While `is_held` is set, calls wait for `release`. With `fail_with` each call is refused and changes
    nothing.
    """

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.calls: list[str] = []
        self.is_held = False
        self.fail_with: ErrorCode | None = None
        self._waiting: list[Callable[[], None]] = []

    def release(self) -> None:
        """Executes the waiting calls in order, and the calls that arrive meanwhile."""
        while self._waiting:
            self._waiting.pop(0)()
        self.is_held = False

    def reverse(self) -> None:
        """Reverses the order of the waiting calls."""
        self._waiting.reverse()

    def _carry_out(self, what: str, call: Callable[[], None], refuse: Callable[[ErrorCode], None]) -> None:
        self.calls.append(what)

        def run() -> None:
            if self.fail_with is not None:
                refuse(self.fail_with)
            else:
                call()

        if self.is_held:
            self._waiting.append(run)
        else:
            run()

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: StateWritten) -> None:
        def call() -> None:
            known = self.states.get(key)
            if known is not None and known.state_epoch > state_epoch:
                done(ErrorCode.FENCED_STATE_EPOCH)
                return
            count = UNKNOWN_DELIVERY_COMPLETE_COUNT if start_offset < 0 else 0
            self.states[key] = ShareState(state_epoch, known.leader_epoch if known is not None else 0, start_offset, count)
            done(ErrorCode.NONE)

        self._carry_out(f"initialize {_name(key)} epoch={state_epoch} start={start_offset}", call, done)

    def read(self, key: SharePartitionKey, leader_epoch: int, found: StateFound) -> None:
        def call() -> None:
            known = self.states.get(key)
            if known is None:
                found(ErrorCode.INVALID_REQUEST, None)
            elif known.leader_epoch > leader_epoch:
                found(ErrorCode.FENCED_LEADER_EPOCH, None)
            else:
                self.states[key] = known._replace(leader_epoch=leader_epoch)
                found(ErrorCode.NONE, self.states[key])

        self._carry_out(f"read {_name(key)}", call, lambda code: found(code, None))

    def summary(self, key: SharePartitionKey, leader_epoch: int, found: StateFound) -> None:
        def call() -> None:
            known = self.states.get(key, NOTHING_KNOWN)
            found(ErrorCode.NONE, known._replace(batches=()))

        self._carry_out(f"summary {_name(key)}", call, lambda code: found(code, None))

    def write(self, key: SharePartitionKey, state: ShareState, done: StateWritten) -> None:
        def call() -> None:
            known = self.states.get(key)
            if known is None:
                done(ErrorCode.INVALID_REQUEST)
            elif known.leader_epoch > state.leader_epoch:
                done(ErrorCode.FENCED_LEADER_EPOCH)
            elif known.state_epoch != state.state_epoch:
                done(ErrorCode.FENCED_STATE_EPOCH)
            else:
                self.states[key] = updated(known, state)
                done(ErrorCode.NONE)

        self._carry_out(f"write {_name(key)}", call, done)

    def delete(self, key: SharePartitionKey, done: StateWritten) -> None:
        def call() -> None:
            self.states.pop(key, None)
            done(ErrorCode.NONE)

        self._carry_out(f"delete {_name(key)}", call, done)


def _name(key: SharePartitionKey) -> str:
    """Returns the name of a topic: the text of its id if it has one, as in the topics of these tests."""
    return f"{key.group_id} {key.topic_id.rstrip(bytes(1)).decode(errors='replace')}-{key.partition}"
