"""The state of one group coordinator: all groups and offsets of one partition of `__consumer_offsets`, and what it was told of the world.

Hard state: `offsets`, each classic group's `stored` record, and each consumer group's logged fields. Only `GroupMachine.apply` and
`apply_marker` change it. The rest of each group is soft.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import Random
from ottla.groups.classic_group import ClassicGroup
from ottla.groups.offset_store import OffsetStore
from ottla.groups.settings import GroupSettings, TopicsView

Group = ClassicGroup


class GroupShard:
    """What every command of a group coordinator works on."""

    __slots__ = ("groups", "is_live", "offsets", "random", "settings", "topics")

    def __init__(self, settings: GroupSettings, topics: TopicsView, random: Random) -> None:
        self.settings = settings
        self.topics = topics
        self.random = random
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.is_live = False  # False while the log is loaded: then every record replaces what earlier ones said

    def classic_group(self, group_id: str) -> ClassicGroup:
        """The group, if it exists under the classic protocol; UNKNOWN_MEMBER_ID else, since it cannot have the member that asks."""
        group = self.groups.get(group_id)
        if type(group) is not ClassicGroup:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def forget_if_idle(self, group: ClassicGroup) -> None:
        """A group that nobody is in and that the log does not know leaves no trace, or made-up names would fill the memory."""
        if group.members or group.pending_members or group.stored is not None or self.offsets.has_offsets(group.group_id):
            return
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def fresh_member_id(self, prefix: str) -> str:
        """`prefix` and a random uuid, as Kafka names members."""
        digits = self.random.token_bytes(16).hex()
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
