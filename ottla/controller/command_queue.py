"""The controller's queue: one command at a time is decided, written to the metadata store, applied, announced and answered.

A command is decided only when the one before it has been applied, so a decision never rests on a state that is about to change. Between
decide and apply the controller waits for the store. Every write checks the epoch that the controller was elected with and the versions that
the decision read. The outcomes:

- success: the changes are in force and are announced; the next part of the plan, or the answer, follows.
- another epoch, or an expired session: the controller resigns; nothing is written any more, and all waiting commands get NOT_CONTROLLER.
- another version: the state is read again and the command decided again, `ATTEMPTS_MAX` times at most.
- late, when the session may have ended: the answer may be worth nothing; the queue is closed.
- unknown: first a write that only checks the epoch, which the store orders behind the write whose answer was lost; then the nodes of that
  write are read. If they are as the write leaves them, it counts as done; if not, the state is read again and the command decided again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.base.cluster_metadata import Change, PartitionPut, TopicMetadata, TopicPut, TopicRemoved
from ottla.base.errors import ErrorCode
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Check, Create, Delete, MetadataStore, Outcome, Set, StoreNode, StoreResult
from ottla.controller.loading import read_paths
from ottla.controller.plans import Decide, Part, Plan
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.controller")

ATTEMPTS_MAX = 3
COMMANDS_MAX = 10_000
"""At most this many commands wait; more are refused with REQUEST_TIMED_OUT, and clients try again."""

OPERATIONS_AT_ONCE_MAX = 2_000
"""After a decision for more than this, other work of the loop has its turn before the write."""


@dataclass(slots=True)
class Command:
    """One entry of the queue. `failed` makes the answer for a write that could not be done."""

    decide: Decide
    done: Callable[[Any], object]
    failed: Callable[[ErrorCode], object]
    attempts: int = 0


class CommandQueue:
    """The queue of one controller, open from its election to its end."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        retries: StoreRetries,
        later: Callable[[Callable[[], object]], object],
        on_applied: Callable[[Sequence[Change], Mapping[str, TopicMetadata | None]], object],
        read_state: Callable[[Callable[[ClusterState], object]], object],
        resign: Callable[[StoreResult], object],
        may_act: Callable[[], bool],
    ) -> None:
        """`on_applied` gets the changes and the previous topics; `read_state` reads everything again. `may_act` is asked before each step;
        if it returns False, it has closed the queue."""
        self.state = ClusterState()
        self.is_open = False
        self._store = store
        self._retries = retries
        self._later = later
        self._on_applied = on_applied
        self._read_state = read_state
        self._resign = resign
        self._may_act = may_act
        self._queue: deque[Command] = deque()
        self._current: Command | None = None
        self._is_running = False
        self._term = 0

    def open(self, state: ClusterState) -> None:
        self.state = state
        self.is_open = True
        self._term += 1

    def close(self) -> None:
        """Answers all waiting commands with NOT_CONTROLLER; the answer to a write that is under way is ignored."""
        self.is_open = False
        self._term += 1
        waiting = [*([self._current] if self._current is not None else []), *self._queue]
        self._current = None
        self._queue.clear()
        for command in waiting:
            command.failed(ErrorCode.NOT_CONTROLLER)

    def submit(self, command: Command, *, is_urgent: bool = False) -> None:
        if not self.is_open or not self._may_act():
            command.failed(ErrorCode.NOT_CONTROLLER)
        elif is_urgent:
            self._queue.appendleft(command)
            self._run()
        elif len(self._queue) >= COMMANDS_MAX:
            command.failed(ErrorCode.REQUEST_TIMED_OUT)
        else:
            self._queue.append(command)
            self._run()

    def _run(self) -> None:
        """Works off the queue; returns when it is empty or a write is under way."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._queue and self._current is None and self._may_act():
                self._begin(self._queue.popleft())
        finally:
            self._is_running = False

    def _begin(self, command: Command) -> None:
        self._current = command
        command.attempts += 1
        plan = command.decide(self.state)
        self._apply(plan.at_once)
        if plan.parts and len(plan.parts[0].operations) > OPERATIONS_AT_ONCE_MAX:
            self._in_term(self._later, lambda: self._write(command, plan, 0))
        else:
            self._write(command, plan, 0)

    def _write(self, command: Command, plan: Plan, index: int) -> None:
        if index == len(plan.parts):
            self._current = None
            for note in plan.notes:
                log.warning(note)
            command.done(plan.answer)
            self._run()
            return
        part, term = plan.parts[index], self._term

        def written(outcome: Outcome) -> None:
            if term == self._term and self._may_act():
                self._on_written(command, plan, index, outcome)

        self._store.multi(part.operations, written)

    def _on_written(self, command: Command, plan: Plan, index: int, outcome: Outcome) -> None:
        result = outcome.result
        if result is StoreResult.OK:
            self._on_taken(command, plan, index)
        elif result is StoreResult.SESSION_EXPIRED or (result is StoreResult.BAD_VERSION and outcome.index == 0):
            self._resign(result)
        elif result in (StoreResult.UNKNOWN, StoreResult.CONNECTION_LOST):
            log.warning("metadata store: %s; looking whether the write was taken", result.name)
            self._order_behind(command, plan, index)
        elif result in (StoreResult.DISK_FAILED, StoreResult.TOO_LARGE):
            self._fail(command, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._decide_again(command, result)

    def _on_taken(self, command: Command, plan: Plan, index: int) -> None:
        self._apply(plan.parts[index].changes)
        if index + 1 < len(plan.parts):
            self._in_term(self._later, lambda: self._write(command, plan, index + 1))
        else:
            self._write(command, plan, index + 1)

    def _apply(self, changes: Sequence[Change]) -> None:
        if changes:
            names = dict.fromkeys(name for name in map(topic_of, changes) if name is not None)
            before = {name: self.state.topic(name) for name in names}
            self.state.apply(changes)
            self._on_applied(changes, before)

    def _fail(self, command: Command, code: ErrorCode) -> None:
        self._current = None
        command.failed(code)
        self._run()

    # An unknown outcome

    def _order_behind(self, command: Command, plan: Plan, index: int) -> None:
        """Waits until nothing can happen any more of the write whose answer was lost."""
        term = self._term

        def ordered(outcome: Outcome) -> None:
            if term != self._term:
                return
            if outcome.result is StoreResult.OK:
                self._look(command, plan, index)
            elif outcome.result in (StoreResult.SESSION_EXPIRED, StoreResult.BAD_VERSION, StoreResult.NO_NODE):
                self._resign(outcome.result)
            else:
                self._in_term(self._retries.again, lambda: self._order_behind(command, plan, index))

        self._store.multi([Check(znodes.CONTROLLER_EPOCH, self.state.controller_epoch_version)], ordered)

    def _look(self, command: Command, plan: Plan, index: int) -> None:
        part, term = plan.parts[index], self._term
        paths = list(dict.fromkeys(operation.path for operation in part.operations))

        def read(result: StoreResult, nodes: dict[str, StoreNode]) -> None:
            if term != self._term:
                return
            if result is StoreResult.SESSION_EXPIRED:
                self._resign(result)
            elif result is not StoreResult.OK:
                self._in_term(self._retries.again, lambda: self._order_behind(command, plan, index))
            elif is_in_force(part, nodes):
                self._on_taken(command, plan, index)
            elif index > 0:
                self._write(command, plan, index)  # its conditions are those of the decision, of which earlier parts hold already
            else:
                command.attempts -= 1
                self._decide_again(command, StoreResult.UNKNOWN)

        read_paths(self._store, paths, read)

    def _decide_again(self, command: Command, result: StoreResult) -> None:
        log.warning("metadata store: %s; reading the cluster's state again", result.name)

        def loaded(state: ClusterState) -> None:
            self.state = state
            self._current = None
            if command.attempts >= ATTEMPTS_MAX:
                command.failed(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self._queue.appendleft(command)
            self._run()

        term = self._term
        self._read_state(lambda state: loaded(state) if term == self._term else None)

    def _in_term(self, schedule: Callable[[Callable[[], object]], object], function: Callable[[], object]) -> None:
        term = self._term
        schedule(lambda: function() if term == self._term else None)


def topic_of(change: Change) -> str | None:
    """The topic that a change is about; None for settings, which announce themselves, and for brokers."""
    if isinstance(change, TopicPut):
        return change.topic.name
    if isinstance(change, TopicRemoved):
        return change.name
    return change.topic if isinstance(change, PartitionPut) else None


def is_in_force(part: Part, nodes: Mapping[str, StoreNode]) -> bool:
    """Whether the nodes are as the multi leaves them. A multi has all of its effects or none, and only this controller writes these nodes.
    """
    expected: dict[str, tuple[int | None, bytes] | None] = {}
    for operation in part.operations:
        if isinstance(operation, Create) and operation.is_sequential:
            continue  # the store makes its name
        if isinstance(operation, Create):
            expected[operation.path] = (0, operation.data)
        elif isinstance(operation, Set):
            expected[operation.path] = (operation.version + 1 if operation.version >= 0 else None, operation.data)
        elif isinstance(operation, Delete):
            expected[operation.path] = None
    return all(_is_as(nodes.get(path), wanted) for path, wanted in expected.items())


def _is_as(node: StoreNode | None, wanted: tuple[int | None, bytes] | None) -> bool:
    if node is None or wanted is None:
        return node is None and wanted is None
    version, data = wanted
    return node.data == data and version in (None, node.version)
