"""An operator of a share group in a cluster: alters its offsets, deletes them, deletes the group, or deletes the group and sets its start.
Before that the members are stopped: some leave, some die, some disappear without closing connections, so that leaders still lock their
records. The operator repeats the request until it has certainly been executed; then new members start without any state. From the first
attempt until the answer, the partitions are not judged: an attempt whose answer was lost may take effect at any time before the last
attempt does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode
from ottla.groups.share.offsets import NOTHING_REMEMBERED
from ottla.handlers.groups import delete_groups
from ottla.handlers.share_groups import alter_share_group_offsets, delete_share_group_offsets
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic
from tests.sim.group_client import GroupClient
from tests.sim.process import Steps
from tests.sim.share_members import GROUP

if TYPE_CHECKING:
    from tests.sim.share_cluster import ShareClusterWorld

PAUSE_MS = (400, 1_800)
RETRY_MS = (20, 200)
OPERATIONS = ("alter", "delete offsets", "delete", "begin elsewhere")


class ShareOperator(GroupClient):
    """See above."""

    def __init__(self, world: ShareClusterWorld, topic: str, partitions: int) -> None:
        super().__init__(world, GROUP)
        self.world = world
        self._topic = topic
        self._places = range(partitions)

    def run(self) -> Steps:
        while not self.world.is_ending:
            yield self._chance.randint(*PAUSE_MS)
            if self.world.is_ending:
                return
            kind = self._chance.choice(OPERATIONS)
            self.world.stop_members()
            if kind in ("delete", "begin elsewhere"):
                yield from self._until_done(self._delete_group, self._places)
            if kind == "delete offsets":
                yield from self._until_done(self._delete_offsets, self._places)
            if kind in ("alter", "begin elsewhere"):
                yield from self._alter()
            self.world.operated[kind] = self.world.operated.get(kind, 0) + 1
            self.world.restart_members()

    def _alter(self) -> Steps:
        chosen = sorted(self._chance.sample(self._places, self._chance.randint(1, len(self._places))))
        starts = {index: self._chance.randint(0, self.world.shares.farthest[index]) for index in chosen}
        partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=starts[index]) for index in chosen]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=self._topic, partitions=partitions)
        body = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])

        def code_of(answer: Any) -> int:
            return int(answer.error_code or max(found.error_code for found in answer.responses[0].partitions))

        def alter() -> Steps:
            return self._ask(alter_share_group_offsets, 0, lambda: body, code_of)

        yield from self._until_done(alter, chosen, starts)

    def _delete_offsets(self) -> Steps:
        body = DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=self._topic)])

        def code_of(answer: Any) -> int:
            found = answer.responses[0] if answer.responses else None
            is_done = found is not None and found.error_message == NOTHING_REMEMBERED
            return int(ErrorCode.NONE if is_done else answer.error_code or (found.error_code if found is not None else 0))

        return self._ask(delete_share_group_offsets, 0, lambda: body, code_of)

    def _delete_group(self) -> Steps:
        body = DeleteGroupsRequest(groups_names=[GROUP])
        return self._ask(delete_groups, 2, lambda: body, lambda answer: answer.results[0].error_code)

    def _until_done(self, attempt: Callable[[], Steps], places: Sequence[int], starts: dict[int, int] | None = None) -> Steps:
        shares = self.world.shares
        shares.suspend(places, is_deleting=starts is None)
        done = (ErrorCode.NONE,) if starts else (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        while (yield from attempt()) not in done:
            yield self._chance.randint(*RETRY_MS)
        for index in places:
            shares.resume(index, starts[index] if starts is not None else None)
