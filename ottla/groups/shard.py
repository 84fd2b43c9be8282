"""The state of one group coordinator: all groups and offsets of one partition of `__consumer_offsets`, and its view of the cluster.

Hard state: `offsets`, each classic group's `stored` record, and the logged fields of modern groups. Only `GroupMachine.apply`
and `apply_marker` change it. All other state is soft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import Random
from ottla.base.share_state import Persister, SharePartitionKey
from ottla.base.uuids import Uuid
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.deferred import Deferred, DeferredAnswers
from ottla.groups.offsets.store import OffsetStore
from ottla.groups.settings import OFFSET_BYTES, GroupCoordinatorSettings, OwnSettings, TopicsView
from ottla.groups.share.group import ShareGroup
from ottla.groups.streams.group import StreamsGroup, StreamsState
from ottla.machine.contract import Reply, RunDecision, run_nothing
from ottla.machine.draft import Draft
from ottla.machine.memory import NO_OWNER, CoordinatorMemory

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup

def run_at_once(steps: Iterator[object]) -> None:
    """Runs all steps immediately: the default of `GroupShard.later`, which runs long work."""
    for _ in steps:
        pass


class Session:
    """The session of a member of a modern group: its deadline, the time of its timer, and its last connection."""

    __slots__ = ("connection", "deadline_ms", "is_join_awaited", "timer_ms")

    def __init__(self) -> None:
        self.connection = ""
        self.deadline_ms = 0
        self.is_join_awaited = False  # a classic member has been asked to join again
        self.timer_ms: int | None = None

    def has_moved(self, connection: str) -> bool:
        """Records the connection of a heartbeat. Returns whether it is another connection than the last heartbeat's. In that case
        the last answer may be lost.

        Kafka sends an assignment once, and again to members that send a full heartbeat. librdkafka (2.16) sends no full heartbeat after a
        request that timed out. The member would then not revoke partitions, because it never received the assignment, and the group would
        wait for its rebalance timeout. Sending an assignment twice does no harm.
        """
        before, self.connection = self.connection, connection
        return before != connection

    def forget_connection(self) -> None:
        """Makes the answer to the next heartbeat contain the assignment. Called if the log refused the records of the last heartbeat: the
        member then got an error instead of the assignment."""
        self.connection = ""


class Refresh:
    """Times of a modern group, as soft state: the last look-up of its topics, and the last match of its regular expressions. For a share or
    streams group also the end of its wait for more members. Also has `topics_version` at the last look-up."""

    __slots__ = ("gathers_until_ms", "looked_at_ms", "regexes_at_ms", "topics_version")

    def __init__(self) -> None:
        self.gathers_until_ms = -(1 << 62)
        self.looked_at_ms = -(1 << 62)
        self.regexes_at_ms = -(1 << 62)
        self.topics_version = -1


def offset_bytes(topic: str, metadata: str) -> int:
    """Returns the approximate memory of one offset; a text with non-ASCII letters takes up to four bytes per letter."""
    return OFFSET_BYTES + len(topic) + (len(metadata) if metadata.isascii() else 4 * len(metadata))


class GroupShard:
    __slots__ = (
        "beginning",
        "deferred",
        "deleted_topics",
        "forgetting",
        "groups",
        "is_live",
        "is_over",
        "later",
        "memory",
        "offset_memory",
        "offsets",
        "own_settings",
        "persister",
        "random",
        "refreshes",
        "run",
        "sessions",
        "settings",
        "share_joiners",
        "streams_states",
        "topics",
        "topics_version",
        "updates",
    )

    def __init__(
        self, settings: GroupCoordinatorSettings, topics: TopicsView, random: Random, own_settings: OwnSettings, persister: Persister,
        memory: CoordinatorMemory, offset_memory: CoordinatorMemory,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.memory = memory.share(self._sizes)
        self.offset_memory = offset_memory.share(self._offset_sizes)
        self.persister = persister  # the share coordinators; their answers are decisions of `run`
        self.run: RunDecision = run_nothing
        self.later: Callable[[Iterator[object]], None] = run_at_once  # spreads long work over iterations of the loop
        self.updates: dict[str, object] = {}  # soft: the running update of a modern group
        self.own_settings = own_settings
        self.topics = topics
        self.random = random
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.deferred = DeferredAnswers()
        # soft: deleted topics whose offsets still exist, with the last record to delete; None: not determined yet
        self.deleted_topics: dict[str, int | None] = {}
        self.sessions: dict[tuple[str, str], Session] = {}  # soft: by (group, member) of modern groups
        self.refreshes: dict[str, Refresh] = {}  # soft: by id of a modern group
        self.streams_states: dict[str, StreamsState] = {}  # soft: by id of a streams group
        self.beginning: dict[SharePartitionKey, int] = {}  # soft: states being initialized by share coordinators, with the epoch
        self.forgetting: dict[tuple[str, Uuid], int] = {}  # soft: (group, topic) states being deleted, with the number of deletions
        self.share_joiners: dict[str, dict[Deferred, Callable[[Draft], None]]] = {}  # soft: by group, joins that await partitions
        self.topics_version = 0  # counts creations, deletions and extensions of topics
        self.is_over = False  # the coordinator has lost its partition; long work stops
        self.is_live = False  # False while the log is loading; then a group record replaces the whole group

    def classic_group(self, group_id: str) -> ClassicGroup:
        """Returns a classic group. Raises ApiError UNKNOWN_MEMBER_ID if there is no classic group with this id."""
        group = self.groups.get(group_id)
        if type(group) is not ClassicGroup:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def setting_of(self, group_id: str, name: str) -> Any:
        """Returns a setting that a group may override, such as `share.session.timeout.ms`; by default the broker's `group.*` setting. Most
        settings are numbers; `streams.rack.aware.assignment.tags` is a sequence of strings."""
        own = self.own_settings(group_id)
        return own[name] if name in own else getattr(self.settings, name.replace(".", "_"))

    def streams_state(self, group_id: str) -> StreamsState:
        state = self.streams_states.get(group_id)
        if state is None:
            state = self.streams_states[group_id] = StreamsState()
        return state

    def forget_soft_state(self, group_id: str) -> None:
        """Drops the soft state of a streams group that was not created after all."""
        if group_id not in self.groups:
            self.refreshes.pop(group_id, None)
            self.streams_states.pop(group_id, None)

    def add_joiner(self, group_id: str, deferred: Deferred, go_on: Callable[[Draft], None]) -> None:
        self.share_joiners.setdefault(group_id, {})[deferred] = go_on

    def forget_joiner(self, group_id: str, deferred: Deferred) -> None:
        joiners = self.share_joiners.get(group_id)
        if joiners is not None:
            joiners.pop(deferred, None)
            if not joiners:
                del self.share_joiners[group_id]

    def take_joiners(self, group_id: str) -> list[Callable[[Draft], None]]:
        return list(self.share_joiners.pop(group_id, {}).values())

    def forget_if_idle(self, group: ClassicGroup) -> None:
        """Drops a group without members that is not in the log, so that invented names do not fill the memory."""
        if group.members or group.pending_members or group.stored is not None or self.offsets.has_offsets(group.group_id):
            return
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def forget_group(self, group_id: str) -> None:
        """Drops a deleted modern group. If it has committed or pending offsets, an empty classic group replaces it."""
        owner = self.groups.pop(group_id).owner
        self.refreshes.pop(group_id, None)
        self.streams_states.pop(group_id, None)
        if self.offsets.has_offsets(group_id):
            self.groups[group_id] = ClassicGroup(group_id)
            self.groups[group_id].owner = owner

    def claim(self, group_id: str, owner: str) -> None:
        """Sets the owner of a group for the memory quota, if it has none: the first principal that used it on this broker."""
        group = self.groups.get(group_id)
        if group is not None and group.owner == NO_OWNER:
            group.owner = owner

    def claiming(self, group_id: str, owner: str, reply: Reply) -> Reply:
        """Returns the reply function for a request that may create a group. This function first makes `owner` the group's owner, if the
        group has no owner yet, and then calls `reply`."""
        if owner == NO_OWNER or self.owner_of(group_id) != NO_OWNER:
            return reply

        def claimed(answer: Any) -> None:
            self.claim(group_id, owner)
            reply(answer)

        return claimed

    def owner_of(self, group_id: str, owner: str = NO_OWNER) -> str:
        """Returns the owner of a group, or the given `owner` if the group does not exist or has no owner."""
        group = self.groups.get(group_id)
        return group.owner or owner if group is not None else owner

    def _sizes(self) -> Iterator[tuple[str, int]]:
        """Yields the owner of each group and the approximate memory of its members, without groups that are removed meanwhile."""
        for group_id in list(self.groups):
            group = self.groups.get(group_id)
            if group is not None:
                state = self.streams_states.get(group_id)
                yield group.owner, group.held_bytes() + (0 if state is None else state.described.held_bytes())

    def _offset_sizes(self) -> Iterator[tuple[str, int]]:
        """Yields the owner and the approximate memory of each offset. It may include offsets that are removed meanwhile."""
        for group_id in self.offsets.group_ids():
            owner = self.owner_of(group_id)
            for key, offset in self.offsets.all_of(group_id):
                yield owner, offset_bytes(key[0], offset.metadata)

    def fresh_member_id(self, prefix: str) -> str:
        """Returns `prefix` and 16 random bytes in the form of a UUID, as Kafka names members."""
        digits = self.random.token_bytes(16).hex()
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
