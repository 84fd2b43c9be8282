"""Operators of one consumer group: they set offsets, delete offsets and delete the group. While the group has no members, the request is
repeated until it has certainly been executed. While it has members, the request is sent once and must be refused, unless the group has just
lost its last member. If the outcome is unknown, the members are stopped and the request is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.handlers.groups import delete_groups, offset_commit, offset_delete
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tests.sim.group_client import GroupClient
from tests.sim.process import Steps

if TYPE_CHECKING:
    from tests.sim.membership_world import MembershipWorld

PAUSE_MS = (500, 2_000)
RETRY_MS = (20, 200)
IN_USE = 0.4
DONE = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
NOT_DONE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)

Alteration = tuple[Any, int, Callable[[], Any], Callable[[Any], int], list[tuple[TopicPartition, int]]]
"""Handler, version, request, the code of an answer, and where each committed offset is after it."""


class GroupOperator(GroupClient):
    """See above."""

    def __init__(self, world: MembershipWorld, group_id: str) -> None:
        super().__init__(world, group_id)
        self.world = world

    def run(self) -> Steps:
        while not self.world.is_ending:
            yield self._chance.randint(*PAUSE_MS)
            alteration = self._chance.choice([self._set, self._delete_offset, self._delete_group])()
            is_over = False
            if self._chance.random() < IN_USE:
                is_over = yield from self._try(alteration)
            if not is_over:
                self.world.stop_members(self.group_id)
                while not is_over:
                    yield self._chance.randint(*RETRY_MS)
                    is_over = yield from self._try(alteration, is_stopped=True)
                self.world.restart_members(self.group_id)

    def _try(self, alteration: Alteration, *, is_stopped: bool = False) -> Steps:
        """Sends the request. Returns whether its outcome is known, and if the group has no members, whether it was executed."""
        handler, version, body, code_of, results = alteration
        offsets = self.world.offsets
        for place, end in results:
            offsets.alter((self.group_id, place), end)
        before = self.world.members_of(self.group_id)
        code = yield from self._ask(handler, version, body, code_of)
        if code in DONE:
            kept = sorted(before & self.world.members_of(self.group_id)) if code == ErrorCode.NONE else ()
            assert not kept, f"altered in use: {self.group_id} by {handler.__name__}, while {kept[0][1]} was a member all the time (I35)"
            self.world.altered += 1
            for place, end in results:
                offsets.begin_era((self.group_id, place), end)
            if handler is delete_groups or code == ErrorCode.GROUP_ID_NOT_FOUND:
                offsets.forget_owners(self.group_id)
            return True
        is_refused = code in NOT_DONE
        if is_refused and not is_stopped:
            self.world.refused += 1
            for place, _ in results:
                offsets.leave((self.group_id, place))
        return is_refused and not is_stopped

    def _set(self) -> Alteration:
        place = self._chance.choice(self.world.places)
        end = self._chance.randint(0, self.world.offsets.floor((self.group_id, place)))
        partition = OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=end)
        topic = OffsetCommitRequestTopic(name=place.topic, partitions=[partition])
        body = OffsetCommitRequest(group_id=self.group_id, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        return offset_commit, 9, lambda: body, lambda answer: answer.topics[0].partitions[0].error_code, [(place, end)]

    def _delete_offset(self) -> Alteration:
        place = self._chance.choice(self.world.places)
        topic = OffsetDeleteRequestTopic(name=place.topic, partitions=[OffsetDeleteRequestPartition(partition_index=place.partition)])
        body = OffsetDeleteRequest(group_id=self.group_id, topics=[topic])

        def code_of(answer: Any) -> int:
            return int(answer.error_code or answer.topics[0].partitions[0].error_code)

        return offset_delete, 0, lambda: body, code_of, [(place, 0)]

    def _delete_group(self) -> Alteration:
        body = DeleteGroupsRequest(groups_names=[self.group_id])
        return delete_groups, 2, lambda: body, lambda answer: answer.results[0].error_code, [(place, 0) for place in self.world.places]
