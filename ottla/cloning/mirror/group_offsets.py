"""Copies committed offsets of groups from the source to the target. An offset is committed at the target when the target's log has reached
it, so a consumer that is moved to the target finds its next record there. Groups with live members at the target are skipped, because their
members commit. Offsets have the source's leader epochs and metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.group_admin import Committed, commit_offsets, committed_offsets
from ottla.client.errors import AuthorizationError, KafkaError
from ottla.cloning.source import committed

LIVE = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS))
Offsets = dict[TopicPartition, Committed]


class GroupOffsets:
    """The groups of one mirror. `groups` None: all groups that commit offsets for its partitions."""

    def __init__(self, source: Client, target: Client, groups: Sequence[str] | None) -> None:
        self._source = source
        self._target = target
        self._groups = groups
        self._copied: dict[str, Offsets] = {}
        self.notes: list[str] = []
        """Groups whose offsets do not follow, and why, as of the last round."""

    @property
    def count(self) -> int:
        return len(self._copied)

    def forget(self) -> None:
        """Makes the next round compare all offsets with the target's, even if they have not changed at the source."""
        self._copied.clear()

    def copy(self, ends: Mapping[TopicPartition, int]) -> None:
        """Commits the source's offsets that are not beyond `ends`, the ends of the target's partitions. Raises `ClientError`."""
        notes: list[str] = []
        wanted: dict[str, Offsets] = {}
        for one in committed(self._source, self._groups, list(ends), notes):
            partition = TopicPartition(one.topic, one.partition)
            if one.offset <= ends[partition]:
                wanted.setdefault(one.group, {})[partition] = Committed(one.offset, one.leader_epoch, one.metadata)
        for group, offsets in wanted.items():
            self._copy_group(group, offsets, notes)
        self.notes = notes

    def _copy_group(self, group: str, offsets: Offsets, notes: list[str]) -> None:
        known = self._copied.get(group)
        if known is None:
            known = self._copied[group] = committed_offsets(self._target.cluster, group, list(offsets))
        changed = {partition: at for partition, at in offsets.items() if known.get(partition) != at}
        if not changed:
            return
        try:
            results = commit_offsets(self._target.cluster, group, changed)
        except AuthorizationError as error:
            results = dict.fromkeys(changed, error)
        errors = [error for error in results.values() if error is not None]
        known.update({partition: changed[partition] for partition, error in results.items() if error is None})
        if errors:
            notes.append(_note(group, errors[0]))


def _note(group: str, error: KafkaError) -> str:
    if error.code in LIVE:
        return f"group {group!r} has members at the target, so its offsets do not follow"
    return f"offsets of group {group!r} do not follow: {error}"
