"""The share coordinator of one partition of `__share_group_state`, as a state machine over the partition's log (`machine/contract.py`).

A write is logged as an update, or as a complete snapshot after `updates_per_snapshot` updates. A share partition's leader takes over the
state by reading it once, with its leader epoch; from then on reads and writes of an older leader are fenced. Resetting a group's offsets
initializes the state again with a higher state epoch, which fences earlier writes.

Two scans of all states run periodically. One repeats the snapshots of share partitions whose last snapshot is old, so that older records
become redundant. The other removes redundant records: it raises the start of the log by the function `prune`. A third scan deletes the
states of deleted topics. Scans run in steps (`later`), between which the event loop serves clients and the states may change.

The states of a broker have a memory limit. At the limit a new state is refused with POLICY_VIOLATION. A write after which the state has
more runs than before is refused with it, too. Such a write is accepted if the new state fits into the memory reserved for every state, or
can be reduced to it or to the former number of runs (`state_room.py`). POLICY_VIOLATION is not retriable, because brokers would repeat
their writes, and each waiting request needs as much memory as the state.

The checks, their order and their codes are Kafka's, with three exceptions. There is a memory limit. Writes with a state epoch higher than
the stored one are refused. Writes to a state that was initialized again after a deletion are refused until a leader has read it.
`state_coordinators.py` finds the shard of a share partition, `persister.py` retries.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import pieces_of, run_steps
from ottla.base.share_state import UNINITIALIZED_START_OFFSET, UNKNOWN_DELIVERY_COMPLETE_COUNT, SharePartitionKey, ShareState
from ottla.machine.contract import Decision, LogRecord, Reply, RunDecision, Transactional, run_nothing
from ottla.machine.draft import Draft, answered, logged
from ottla.machine.memory import CoordinatorMemory
from ottla.sharing.batches import merge
from ottla.sharing.commands import WRITTEN, DeleteState, InitializeState, ReadState, ReadSummary, StateCommand, StateResult, WriteState
from ottla.sharing.state_records import ShareStateRecord, Snapshot, StateUpdate, snapshot_record, tombstone, update_record
from ottla.sharing.state_room import LASTING_MIN, spared
from ottla.sharing.state_settings import ShareStateSettings, StateTopicsView
from ottla.sharing.state_shard import BATCH_BYTES, ShareStateShard, StoredShare, state_bytes, updated

NO_EPOCH = -1
UNREAD = -1
"""The leader epoch of a state that was initialized again after a deletion, before a leader reads it."""
STATES_PER_STEP = 500
"""States that one step of a scan looks at. It may log a tombstone for each, which takes some 5 us."""
REPEATED_PER_STEP = 200
"""Snapshots and batches in them that one step repeats, unless one state has more. Each takes some 5 us."""
FORGET_RETRY_MS = 1_000
ADDED_MAX = 2
"""Number of batches that one batch of a write is expected to add to a state. 2: the batch itself, and one more if it splits a known batch.
A batch over several runs with gaps may add more."""
NOTHING_KNOWN = ShareState(0, 0, UNINITIALIZED_START_OFFSET, UNKNOWN_DELIVERY_COMPLETE_COUNT)
NO_TOPIC = StateResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, "the topic or partition does not exist")
UNINITIALIZED = StateResult(ErrorCode.INVALID_REQUEST, None, "the share partition has not been initialized")

Steps = Generator[None, None, None]


class ShareStateMachine:
    """One shard; see `machine/contract.py` for its use by a host."""

    def __init__(
        self, settings: ShareStateSettings, topics: StateTopicsView, prune: Callable[[int], None], memory: CoordinatorMemory | None = None
    ) -> None:
        self.settings = settings
        self.shard = ShareStateShard((memory or CoordinatorMemory()).exact_share())
        self.writes = 0  # for metrics
        self.later: Callable[[Steps], None] = run_steps  # spreads scans over iterations of the loop
        self.run: RunDecision = run_nothing
        self._topics = topics
        self._prune = prune
        self._decide: dict[type, Callable[[int, Any, Reply], Decision]] = {
            InitializeState: self._initialize,
            ReadState: self._read,
            ReadSummary: self._summary,
            WriteState: self._write,
            DeleteState: self._delete,
        }

    # The life of a shard (`machine/coordinator.py`)

    def begin(self, run: RunDecision) -> None:
        self.run = run

    def end(self) -> None:
        self.shard.memory.end()
        self.run = run_nothing

    def configure(self, settings: ShareStateSettings) -> None:
        self.settings = settings

    # The machine's contract

    def apply(self, offset: int, record: LogRecord, transactional: Transactional | None) -> None:
        self.shard.apply(offset, record)

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Only advances the applied end: this topic has no records of clients' transactions, so a stray marker has no effect."""
        self.shard.applied_end = offset + 1

    def resume(self, now_ms: int) -> Decision:
        """Schedules the periodic scans, and the deletion of states of topics that were deleted while no coordinator ran."""
        draft = Draft()
        draft.schedule("cold", self.settings.cold_snapshot_interval_ms, self.snapshot_cold)
        draft.schedule("prune", self.settings.prune_interval_ms, self.prune)
        draft.schedule("forget", 0, self.forget_topics)
        return draft.decision()

    # Commands

    def decide(self, now_ms: int, command: StateCommand, reply: Reply) -> Decision:
        """Answers with a `StateResult`."""
        return self._decide[type(command)](now_ms, command, reply)

    def _initialize(self, now_ms: int, command: InitializeState, reply: Reply) -> Decision:
        key, state_epoch, start_offset = command
        known = self.shard.partitions.get(key)
        if known is not None and state_epoch != NO_EPOCH and state_epoch < known.state.state_epoch:
            return _fenced(reply, ErrorCode.FENCED_STATE_EPOCH, state_epoch, known.state.state_epoch)
        if not self._topics.has_partition(key.topic_id, key.partition):
            return _answer(reply, NO_TOPIC)
        if known is None:
            try:
                self.shard.memory.require_free(state_bytes(key))
            except ApiError as error:
                return _answer(reply, StateResult(ErrorCode.POLICY_VIOLATION, None, error.message))
        leader_epoch = UNREAD if key in self.shard.ended else 0
        if known is not None:
            # Epochs never decrease, so that resetting a group's offsets does not unfence an earlier leader.
            leader_epoch, state_epoch = known.state.leader_epoch, max(state_epoch, known.state.state_epoch)
        complete_count = UNKNOWN_DELIVERY_COMPLETE_COUNT if start_offset == UNINITIALIZED_START_OFFSET else 0
        state = ShareState(state_epoch, leader_epoch, start_offset, complete_count)
        snapshot_epoch = known.snapshot_epoch + 1 if known is not None else 0
        return self._log(reply, WRITTEN, snapshot_record(key, Snapshot(snapshot_epoch, state, now_ms, now_ms)))

    def _read(self, now_ms: int, command: ReadState, reply: Reply) -> Decision:
        key, leader_epoch = command
        known = self.shard.partitions.get(key)
        if known is None:
            return _answer(reply, UNINITIALIZED)
        state = known.state
        if leader_epoch < state.leader_epoch:
            return _fenced(reply, ErrorCode.FENCED_LEADER_EPOCH, leader_epoch, state.leader_epoch)
        if not self._topics.has_partition(key.topic_id, key.partition):
            return _answer(reply, NO_TOPIC)
        if leader_epoch == state.leader_epoch:
            return _answer(reply, StateResult(ErrorCode.NONE, state))
        taken_over = state._replace(leader_epoch=leader_epoch)
        return self._log(reply, StateResult(ErrorCode.NONE, taken_over), self._change(now_ms, key, known, taken_over._replace(batches=())))

    def _summary(self, now_ms: int, command: ReadSummary, reply: Reply) -> Decision:
        key = command.key
        if not self._topics.has_partition(key.topic_id, key.partition):
            return _answer(reply, NO_TOPIC)
        known = self.shard.partitions.get(key)
        state = known.state._replace(batches=()) if known is not None else NOTHING_KNOWN
        return _answer(reply, StateResult(ErrorCode.NONE, state))

    def _write(self, now_ms: int, command: WriteState, reply: Reply) -> Decision:
        key, change = command
        known = self.shard.partitions.get(key)
        if known is None:
            return _answer(reply, UNINITIALIZED)
        state = known.state
        if change.leader_epoch != NO_EPOCH and change.leader_epoch < state.leader_epoch:
            return _fenced(reply, ErrorCode.FENCED_LEADER_EPOCH, change.leader_epoch, state.leader_epoch)
        if state.leader_epoch == UNREAD and change.leader_epoch != NO_EPOCH:
            # The leader of the deleted state may still write, with the same state epoch. (Kafka accepts such a write.)
            return _answer(reply, StateResult(ErrorCode.FENCED_STATE_EPOCH, message="no leader has read this new state yet"))
        if change.state_epoch not in (NO_EPOCH, state.state_epoch):
            # A higher epoch is from a deleted group of the same name. Kafka would apply that group's acknowledgements.
            return _fenced(reply, ErrorCode.FENCED_STATE_EPOCH, change.state_epoch, state.state_epoch)
        if not self._topics.has_partition(key.topic_id, key.partition):
            return _answer(reply, NO_TOPIC)
        # Only a read takes over leadership, so a write is logged with the known epoch.
        try:
            return self._log(reply, WRITTEN, self._written(now_ms, key, known, change._replace(leader_epoch=state.leader_epoch)))
        except ApiError as error:
            return _answer(reply, StateResult(ErrorCode.POLICY_VIOLATION, None, error.message))

    def _delete(self, now_ms: int, command: DeleteState, reply: Reply) -> Decision:
        key = command.key
        if not self._topics.has_partition(key.topic_id, key.partition):
            return _answer(reply, NO_TOPIC)
        if key not in self.shard.partitions:
            return _answer(reply, WRITTEN)
        return self._log(reply, WRITTEN, tombstone(key))

    def _written(self, now_ms: int, key: SharePartitionKey, known: StoredShare, change: ShareState) -> ShareStateRecord:
        """Returns the record of a write. At the memory limit a write that adds runs becomes a snapshot of the reduced state, unless the
        state has at most `LASTING_MIN` batches after it. Raises `ApiError` if even the reduced state is too large.
        """
        if change.batches:
            try:
                self.shard.memory.require_free(BATCH_BYTES * ADDED_MAX * len(change.batches))
            except ApiError:
                after = updated(known.state, change)
                if len(after.batches) > max(len(known.state.batches), LASTING_MIN):
                    tight = spared(known.state, after)
                    if tight is None:
                        raise
                    return snapshot_record(key, Snapshot(known.snapshot_epoch + 1, tight, now_ms, now_ms))
        return self._change(now_ms, key, known, change)

    def _change(self, now_ms: int, key: SharePartitionKey, known: StoredShare, change: ShareState) -> ShareStateRecord:
        if known.updates >= self.settings.updates_per_snapshot:
            return snapshot_record(key, Snapshot(known.snapshot_epoch + 1, updated(known.state, change), now_ms, now_ms))
        batches = merge((), change.batches, change.start_offset)
        return update_record(key, StateUpdate(known.snapshot_epoch, change._replace(batches=batches)))

    def _log(self, reply: Reply, result: StateResult, record: ShareStateRecord) -> Decision:
        self.writes += 1
        return logged(record, reply, result, StateResult)

    # Scans of all states

    def _begin(self, steps: Callable[[], Steps]) -> Draft:
        draft = Draft()
        draft.call(lambda: self.later(steps()))
        return draft

    def forget_topics(self, now_ms: int) -> Decision:
        """Begins to delete the states of deleted topics."""
        return self._begin(self._forgetting).decision()

    def _forgetting(self) -> Steps:
        partitions, is_deleted = self.shard.partitions, self._topics.is_deleted
        for keys in pieces_of(partitions, STATES_PER_STEP):
            gone = [key for key in keys if key in partitions and is_deleted(key.topic_id)]
            if gone:
                self.run(partial(self._forget, gone))
            yield

    def _forget(self, keys: Sequence[SharePartitionKey], now_ms: int) -> Decision:
        draft = Draft()
        draft.separate(map(tombstone, keys))
        draft.on_refusal(lambda repair, _code: repair.schedule("forget", FORGET_RETRY_MS, self.forget_topics))
        return draft.decision()

    def snapshot_cold(self, now_ms: int) -> Decision:
        """Begins to repeat old snapshots. If every stored snapshot is already a repetition, repeats none, so that the log of idle share
        partitions does not grow.
        """
        draft = self._begin(partial(self._repeating, now_ms - self.settings.cold_snapshot_interval_ms))
        draft.schedule("cold", self.settings.cold_snapshot_interval_ms, self.snapshot_cold)
        return draft.decision()

    def _repeating(self, written_until_ms: int) -> Steps:
        partitions, is_idle = self.shard.partitions, True
        for keys in pieces_of(partitions, STATES_PER_STEP):
            known = [partitions[key] for key in keys if key in partitions]
            is_idle = is_idle and all(stored.created_ms != stored.written_ms for stored in known)
            yield
        cold, work = list[SharePartitionKey](), 0
        for keys in pieces_of(() if is_idle else partitions, STATES_PER_STEP):
            for key in keys:
                stored = partitions.get(key)
                if stored is not None and stored.written_ms <= written_until_ms:
                    cold.append(key)
                    work += 1 + len(stored.state.batches)
                    if work >= REPEATED_PER_STEP:
                        self.run(partial(self._repeat, cold))
                        yield
                        cold, work = [], 0
            yield
        self.run(partial(self._repeat, cold))

    def _repeat(self, keys: Sequence[SharePartitionKey], now_ms: int) -> Decision:
        draft, partitions = Draft(), self.shard.partitions
        known = [(key, partitions[key]) for key in keys if key in partitions]
        draft.separate(
            snapshot_record(key, Snapshot(stored.snapshot_epoch + 1, stored.state, stored.created_ms, now_ms)) for key, stored in known
        )
        return draft.decision()

    def prune(self, now_ms: int) -> Decision:
        """Begins to look for the oldest needed snapshot. The log below it is pruned after all records applied until then are committed."""
        draft = self._begin(self._pruning)
        draft.schedule("prune", self.settings.prune_interval_ms, self.prune)
        return draft.decision()

    def _pruning(self) -> Steps:
        partitions, end = self.shard.partitions, self.shard.applied_end
        for keys in pieces_of(partitions, STATES_PER_STEP):
            end = min([end, *[partitions[key].snapshot_offset for key in keys if key in partitions]])
            yield
        self.run(partial(self._prune_below, end))

    def _prune_below(self, end: int, now_ms: int) -> Decision:
        """Prunes the log below `end`. No needed record is below it: a state that has changed since the scan began has a later snapshot than
        the scan has found."""
        draft = Draft()
        draft.call(lambda: self._prune(end))
        return draft.decision()


def _answer(reply: Reply, result: StateResult) -> Decision:
    """Returns a decision without records that answers `result`. If the host closes before it can answer, the answer is an error."""
    return answered(reply, result, StateResult)


def _fenced(reply: Reply, code: ErrorCode, epoch: int, known: int) -> Decision:
    return _answer(reply, StateResult(code, None, f"the epoch {epoch} is {'behind' if epoch < known else 'ahead of'} {known}"))
