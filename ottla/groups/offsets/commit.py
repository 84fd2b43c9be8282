"""OffsetCommit and TxnOffsetCommit: logs the offsets that a member, a lone consumer or an operator commits.

A commit names the member and its generation, and is refused if the generation is not the current one (I33). A member of a consumer or
streams group may not have received its new epoch yet. It may therefore name an earlier epoch, if it has owned each of the partitions since
that epoch (KIP-1251). A consumer without a subscription, or an operator, may commit without a generation (-1) while the group has no
members. A transactional commit without generation and member id is accepted even while the group has members. Offsets committed in a
transaction are logged immediately, but take effect only with its marker (I32).

Invariants: an offset changes only by a logged record (P9, I35); each offset of a command has its own result. The handler has already
removed topics that do not exist or that the client may not use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.groups import records
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import CommitOffsets, CommitOffsetsInTransaction, OffsetToCommit
from ottla.groups.modern.reconciling import ReconcilingGroup
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.shard import GroupShard, offset_bytes
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY
from ottla.machine.contract import Decision, LogRecord, Reply, Transactional
from ottla.machine.draft import answered

NO_TIMESTAMP = -1
INT64_MAX = (1 << 63) - 1
NO_LIMIT = INT64_MAX


def commit_offsets(shard: GroupShard, command: CommitOffsets, reply: Reply, now_ms: int) -> Decision:
    """Answers with a list of `ErrorCode`, one for each offset."""
    reply = shard.claiming(command.group_id, command.owner, reply)
    try:
        _check_commit(shard, command, now_ms)
    except ApiError as failure:
        return _refused(command, failure.code, reply)
    expire_ms = min(now_ms + command.retention_ms, INT64_MAX) if command.retention_ms >= 0 else NO_TIMESTAMP
    slots = shard.settings.offsets_per_group_max - len(shard.offsets.of_group(command.group_id))
    return _log(shard, command, slots, now_ms, expire_ms, None, reply)


def commit_in_transaction(shard: GroupShard, command: CommitOffsetsInTransaction, reply: Reply, now_ms: int) -> Decision:
    """Answers with a list of `ErrorCode`, one for each offset."""
    reply = shard.claiming(command.group_id, command.owner, reply)
    try:
        _check_transaction_commit(shard, command)
    except ApiError as failure:
        return _refused(command, failure.code, reply)
    transactional = Transactional(command.producer_id, command.producer_epoch)
    return _log(shard, command, NO_LIMIT, now_ms, NO_TIMESTAMP, transactional, reply)


def _log(
    shard: GroupShard,
    command: CommitOffsets | CommitOffsetsInTransaction,
    slots: int,
    now_ms: int,
    expire_ms: int,
    transactional: Transactional | None,
    reply: Reply,
) -> Decision:
    """Logs the allowed offsets, and answers each offset's code. `slots` is the number of offsets that the group may still add. When the
    command has added that many, only partitions with a committed offset are accepted.
    """
    logged, codes, added = list[LogRecord](), list[ErrorCode](), 0
    group_id, metadata_max = command.group_id, shard.settings.offset_metadata_bytes_max
    has_memory = _reserve_memory(shard, command, is_pending=transactional is not None)
    for offset in command.offsets:
        if len(offset.metadata) > metadata_max:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        elif (is_new := shard.offsets.get(group_id, offset.topic, offset.partition) is None) and added >= slots:
            codes.append(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        elif not has_memory and (transactional is not None or _growth(shard, group_id, offset) > 0):
            codes.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            logged.append(_commit_record(group_id, offset, now_ms, expire_ms))
            codes.append(ErrorCode.NONE)
            added += is_new
    return answered(reply, codes, lambda code: [_commit_error(code)] * len(codes), logged, transactional)


def _reserve_memory(shard: GroupShard, command: CommitOffsets | CommitOffsetsInTransaction, *, is_pending: bool) -> bool:
    """Reserves memory for the command's offsets; returns whether enough is free. A plain commit that replaces an offset of at least its
    size needs none; a pending offset always does.
    """
    if is_pending:
        size = sum([offset_bytes(offset.topic, offset.metadata) for offset in command.offsets])
    else:
        size = sum([max(_growth(shard, command.group_id, offset), 0) for offset in command.offsets])
    try:
        if size:
            shard.offset_memory.admit(size, shard.owner_of(command.group_id, command.owner))
    except ApiError:
        return False
    return True


def _growth(shard: GroupShard, group_id: str, offset: OffsetToCommit) -> int:
    known = shard.offsets.get(group_id, offset.topic, offset.partition)
    if known is not None and len(known.metadata) >= len(offset.metadata):
        return 0
    return offset_bytes(offset.topic, offset.metadata) - (0 if known is None else offset_bytes(offset.topic, known.metadata))


def _commit_record(group_id: str, offset: OffsetToCommit, now_ms: int, expire_ms: int) -> LogRecord:
    committed = CommittedOffset(offset.offset, offset.leader_epoch, offset.metadata, now_ms, expire_ms, offset.topic_id)
    return records.offset_commit(group_id, offset.topic, offset.partition, committed)


def _commit_error(code: ErrorCode) -> ErrorCode:
    """Returns the error that clients expect for a refused append: INVALID_COMMIT_OFFSET_SIZE if the records are too large."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code is ErrorCode.UNKNOWN_SERVER_ERROR else code


def _refused(command: CommitOffsets | CommitOffsetsInTransaction, code: ErrorCode, reply: Reply) -> Decision:
    count = len(command.offsets)
    return answered(reply, [_commit_error(code)] * count, lambda code: [_commit_error(code)] * count)


def _check_commit(shard: GroupShard, command: CommitOffsets, now_ms: int) -> None:
    generation = command.generation
    group = shard.groups.get(command.group_id)
    if group is None:
        if generation < 0:
            return  # a lone consumer: applying the record creates the group
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if command.knows_epochs else ErrorCode.ILLEGAL_GENERATION)
    if type(group) is ClassicGroup:
        check_classic_commit(group, command.member_id, command.instance_id, generation, is_transactional=False)
        member = group.members.get(command.member_id)
        if member is not None and member.timer_ms is not None:
            member.deadline_ms = now_ms + member.session_timeout_ms  # a member that commits is alive
    elif isinstance(group, ReconcilingGroup):
        _check_epoch_commit(shard, group, command, knows_epochs=command.knows_epochs, is_transactional=False)
    else:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)  # a share group has no offsets of this kind


def _check_transaction_commit(shard: GroupShard, command: CommitOffsetsInTransaction) -> None:
    """Checks the member and generation that a producer commits for (KIP-447), if the commit names them. Raises `ApiError`."""
    generation = command.generation
    group = shard.groups.get(command.group_id)
    if group is None:
        if generation >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return
    if type(group) is ClassicGroup:
        check_classic_commit(group, command.member_id, command.instance_id, generation, is_transactional=True)
    elif isinstance(group, ReconcilingGroup):
        _check_epoch_commit(shard, group, command, knows_epochs=True, is_transactional=True)
    else:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)


def check_classic_commit(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool) -> None:
    """Raises `ApiError` if a client with this member id, instance id and generation may not commit for the group now."""
    if generation < 0 and group.state is EMPTY:
        return
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation != group.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    elif not is_transactional:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)  # the group has members, and the client is none of them
    if not is_transactional and group.state is COMPLETING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)  # the member is valid, but its partitions are about to be reassigned


def _check_epoch_commit(
    shard: GroupShard,
    group: ReconcilingGroup[Any],
    command: CommitOffsets | CommitOffsetsInTransaction,
    *,
    knows_epochs: bool,
    is_transactional: bool,
) -> None:
    member_id, epoch = command.member_id, command.generation
    if epoch < 0 and (not group.facts or is_transactional):
        return
    if member_id not in group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    is_classic = group.is_classic(member_id)
    if not is_classic and not is_transactional and not knows_epochs:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    current = group.position(member_id).epoch
    if epoch != current and not (epoch < current and _has_had_since(shard, group, member_id, epoch, command.offsets)):
        # Producers do not know the error STALE_MEMBER_EPOCH.
        is_of_new_protocol = not is_classic and not is_transactional
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH if is_of_new_protocol else ErrorCode.ILLEGAL_GENERATION)


def _has_had_since(shard: GroupShard, group: ReconcilingGroup[Any], member_id: str, epoch: int, offsets: Iterable[OffsetToCommit]) -> bool:
    """Whether the member has owned all of these partitions since this epoch."""
    for offset in offsets:
        topic_id = offset.topic_id if offset.topic_id != ZERO_UUID else shard.topics.topic_id(offset.topic)
        assignment_epoch = group.assignment_epoch(member_id, offset.topic, topic_id, offset.partition)
        if assignment_epoch is None or epoch < assignment_epoch:
            return False
    return True
