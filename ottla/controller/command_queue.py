"""The controller's queue: one command at a time is decided, written to the metadata store, applied, announced and answered.

A command is decided only when the one before it has been applied, so a decision never rests on a state that is about to change. Between
decide and apply the controller waits for the store. Every write checks the epoch that the controller was elected with and the versions that
the decision read. The outcomes:

- success: the changes are applied and announced. The next part of the plan is written, or the command is answered.
- another epoch, or an expired session: the controller resigns, and all waiting commands fail with NOT_CONTROLLER.
- another version, or a node that is missing or exists already: the state is read again and the command decided again. After
  `ATTEMPTS_MAX` attempts it fails with UNKNOWN_SERVER_ERROR.
- too large, or the store's disk failed: the command fails with KAFKA_STORAGE_ERROR.
- late, when the session may have ended: the outcome is ignored and the queue is closed.
- unknown, because the answer was lost: a write that only checks the epoch is sent first, and the store orders it behind the lost write.
  Then the nodes of the lost write are read. If they have its content, it was executed. If not, a first part is decided again from a new
  reading of the state, and a later part is written again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ottla.base.cluster_metadata import Change, PartitionPut, TopicMetadata, TopicPut, TopicRemoved
from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable
from ottla.base.loop.procedure import CHECKPOINT, FOREVER, Procedure, Runner
from ottla.base.loop.store_reads import write
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Check, Create, Delete, MetadataStore, Outcome, Set, StoreNode, StoreResult
from ottla.controller.loading import read_paths
from ottla.controller.plans import Decide, Plan, PlanPart
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.controller")

ATTEMPTS_MAX = 3
COMMANDS_MAX = 10_000
"""Maximum number of waiting commands. Further commands fail with REQUEST_TIMED_OUT, which clients retry. Urgent commands are accepted
beyond this limit."""

OPERATIONS_AT_ONCE_MAX = 2_000
"""A first part with more operations than this is written in a later iteration of the event loop, as every further part is."""


@immutable
class QueuedCommand:
    """One entry of the queue. Exactly one of `done` (with the plan's answer) and `failed` (with the error code) is called."""

    decide: Decide
    done: Callable[[Any], object]
    failed: Callable[[ErrorCode], object]


class CommandQueue:
    """The queue of one controller, open from its election until it resigns or stops."""

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
        """`on_applied` is called with applied changes and the former state of their topics. `read_state` reads the whole state again.
        `may_act` is called before each step; when it returns False, it has closed the queue."""
        self.state = ClusterState()
        self.is_open = False
        self._store = store
        self._retries = retries
        self._later = later
        self._on_applied = on_applied
        self._read_state = read_state
        self._resign = resign
        self._may_act = may_act
        self._queue: deque[QueuedCommand] = deque()
        self._current: QueuedCommand | None = None
        self._work = Runner()

    def open(self, state: ClusterState) -> None:
        self._take(state)
        self.is_open = True

    def _take(self, state: ClusterState) -> None:
        state.unclean_elections = self.state.unclean_elections
        self.state = state

    def close(self) -> None:
        """Fails all waiting commands with NOT_CONTROLLER, and ignores the outcome of a write in flight."""
        self.is_open = False
        self._work.cancel()
        waiting = [*([self._current] if self._current is not None else []), *self._queue]
        self._current = None
        self._queue.clear()
        for command in waiting:
            command.failed(ErrorCode.NOT_CONTROLLER)

    def submit(self, command: QueuedCommand, *, is_urgent: bool = False) -> None:
        """Queues the command, or puts it first if it is urgent. Fails it if the queue is closed or full."""
        if not self.is_open or not self._may_act():
            command.failed(ErrorCode.NOT_CONTROLLER)
            return
        if not is_urgent and len(self._queue) >= COMMANDS_MAX:
            command.failed(ErrorCode.REQUEST_TIMED_OUT)
            return
        if is_urgent:
            self._queue.appendleft(command)
        else:
            self._queue.append(command)
        if not self._work.is_running:
            self._work.start(self._serve())

    # The procedure of the queue. Any function that it calls may close the queue, which cancels the procedure.

    def _serve(self) -> Procedure[None]:
        while self._queue and self._may_act():
            command = self._current = self._queue.popleft()
            plan, code = yield from self._execute(command)
            self._current = None
            if plan is None:
                command.failed(code)
            else:
                for note in plan.notes:
                    log.warning(note)
                command.done(plan.answer)
            yield CHECKPOINT

    def _execute(self, command: QueuedCommand) -> Procedure[tuple[Plan | None, ErrorCode]]:
        """Decides the command and writes its plan. Repeats both if the state has changed in the store. Returns the executed plan and NONE,
        or None and the error code."""
        attempts = 0
        while attempts < ATTEMPTS_MAX:
            plan = command.decide(self.state)
            self._apply(plan.at_once)
            yield CHECKPOINT
            result = yield from self._write(plan)
            if result is StoreResult.OK:
                return plan, ErrorCode.NONE
            if result in (StoreResult.DISK_FAILED, StoreResult.TOO_LARGE):
                return None, ErrorCode.KAFKA_STORAGE_ERROR
            log.warning("metadata store: %s; reading the cluster's state again", result.name)
            attempts += result is not StoreResult.UNKNOWN
            self._take((yield self._read_state))
            if not self._may_act():
                yield FOREVER
        return None, ErrorCode.UNKNOWN_SERVER_ERROR

    def _write(self, plan: Plan) -> Procedure[StoreResult]:
        """Writes the parts of a plan, one in each iteration of the event loop, and applies each written part."""
        for index, part in enumerate(plan.parts):
            if index > 0 or len(part.operations) > OPERATIONS_AT_ONCE_MAX:
                yield self._later
            result = yield from self._write_part(part)
            while result is StoreResult.UNKNOWN and index > 0:
                result = yield from self._write_part(part)  # Earlier parts are written, so the command is not decided again.
            if result is not StoreResult.OK:
                return result
            self._apply(part.changes)
            yield CHECKPOINT
        return StoreResult.OK

    def _write_part(self, part: PlanPart) -> Procedure[StoreResult]:
        """Writes one part. Returns UNKNOWN if the answer was lost and the part was certainly not executed."""
        outcome = yield from write(self._store, part.operations)
        if not self._may_act():
            yield FOREVER
        result = outcome.result
        if _ends_term(outcome):
            yield from self._end_term(result)
        if result not in (StoreResult.UNKNOWN, StoreResult.CONNECTION_LOST):
            return result
        log.warning("metadata store: %s; checking whether the write was executed", result.name)
        was_executed = yield from self._was_executed(part)
        return StoreResult.OK if was_executed else StoreResult.UNKNOWN

    def _was_executed(self, part: PlanPart) -> Procedure[bool]:
        paths = list(dict.fromkeys(operation.path for operation in part.operations))
        while True:
            yield from self._wait_for_earlier_writes()
            result, nodes = yield partial(read_paths, self._store, paths)
            if result is StoreResult.OK:
                return is_in_force(part, nodes)
            if result is StoreResult.SESSION_EXPIRED:
                yield from self._end_term(result)
            yield self._retries.again

    def _wait_for_earlier_writes(self) -> Procedure[None]:
        """Waits until no earlier write can be executed any more: the store orders the check of the epoch behind them."""
        check = Check(znodes.CONTROLLER_EPOCH, self.state.controller_epoch_version)
        while (result := (yield from write(self._store, [check])).result) is not StoreResult.OK:
            if result in (StoreResult.SESSION_EXPIRED, StoreResult.BAD_VERSION, StoreResult.NO_NODE):
                yield from self._end_term(result)
            yield self._retries.again

    def _end_term(self, result: StoreResult) -> Procedure[None]:
        self._resign(result)
        yield FOREVER

    def _apply(self, changes: Sequence[Change]) -> None:
        if changes:
            names = dict.fromkeys(name for name in map(topic_of, changes) if name is not None)
            before = {name: self.state.topic(name) for name in names}
            self.state.apply(changes)
            self._on_applied(changes, before)


def _ends_term(outcome: Outcome) -> bool:
    """Whether a write failed because the session has expired, or because the controller's epoch has changed. The first operation of a write
    checks this epoch."""
    return outcome.result is StoreResult.SESSION_EXPIRED or (outcome.result is StoreResult.BAD_VERSION and outcome.index == 0)


def topic_of(change: Change) -> str | None:
    """The topic that a change is about; None for settings, which announce themselves, and for brokers."""
    if isinstance(change, TopicPut):
        return change.topic.name
    if isinstance(change, TopicRemoved):
        return change.name
    return change.topic if isinstance(change, PartitionPut) else None


def is_in_force(part: PlanPart, nodes: Mapping[str, StoreNode]) -> bool:
    """Whether the nodes have the content that the multi writes. A multi has all of its effects or none, and only this controller writes
    these nodes."""
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
