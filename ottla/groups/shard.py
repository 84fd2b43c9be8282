"""The state of one group coordinator: all groups and offsets of one partition of `__consumer_offsets`, and what it knows of the cluster.

Hard state: `offsets`, each classic group's `stored` record, and the logged fields of each consumer and share group. Only
`GroupMachine.apply` and `apply_marker` change it. The rest of each group is soft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from ottla.machine.contract import Run, run_nothing
from ottla.machine.draft import Draft
from ottla.machine.memory import NO_OWNER, CoordinatorMemory

Group = ClassicGroup | ConsumerGroup | ShareGroup

def run_at_once(steps: Iterator[object]) -> None:
    """The placeholder until the shell sets turns of its own."""
    for _ in steps:
        pass


class Session:
    """The session of a member of a consumer or share group: its deadline, when the timer looks, and its last connection."""

    __slots__ = ("connection", "deadline_ms", "is_join_awaited", "timer_ms")

    def __init__(self) -> None:
        self.connection = ""
        self.deadline_ms = 0
        self.is_join_awaited = False  # a classic member was answered to join again
        self.timer_ms: int | None = None

    def has_moved(self, connection: str) -> bool:
        """Whether the member came by another connection last time, so that it may not have got its last answer.

        Kafka sends an assignment once, and again to members that ask for everything. librdkafka (2.16) does not ask after a request that
        timed out: then the group waits for it to revoke partitions of an assignment that never arrived, up to its rebalance timeout.
        Sending an assignment twice does no harm.
        """
        before, self.connection = self.connection, connection
        return before != connection


class Refresh:
    """When a consumer or share group's topics were last looked up, and in which version of the topics; until when a share group that was
    empty waits for members."""

    __slots__ = ("gathers_until_ms", "looked_at_ms", "regexes_at_ms", "topics_version")

    def __init__(self) -> None:
        self.gathers_until_ms = -(1 << 62)
        self.looked_at_ms = -(1 << 62)
        self.regexes_at_ms = -(1 << 62)
        self.topics_version = -1


def offset_bytes(topic: str, metadata: str) -> int:
    """Roughly the memory of one offset; a text that is not ASCII takes up to four bytes a letter."""
    return OFFSET_BYTES + len(topic) + (len(metadata) if metadata.isascii() else 4 * len(metadata))


class GroupShard:
    """What every command of a group coordinator works on."""

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
        self.persister = persister  # the share coordinators; its answers come back through `run`
        self.run: Run = run_nothing
        self.later: Callable[[Iterator[object]], None] = run_at_once  # runs long work in turns of the loop
        self.updates: dict[str, object] = {}  # soft: what is under way in turns for a consumer or share group, one at a time
        self.own_settings = own_settings
        self.topics = topics
        self.random = random
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.deferred = DeferredAnswers()
        # soft: deleted topics whose offsets are still there, and the last record that this is about; None: whatever there is by now
        self.deleted_topics: dict[str, int | None] = {}
        self.sessions: dict[tuple[str, str], Session] = {}  # soft: (group, member) of consumer and share groups
        self.refreshes: dict[str, Refresh] = {}  # soft: by consumer or share group
        self.beginning: dict[SharePartitionKey, int] = {}  # soft: what share coordinators are asked to begin, and in which epoch
        self.forgetting: dict[tuple[str, Uuid], int] = {}  # soft: (group, topic) that share coordinators are asked to forget, how often
        self.share_joiners: dict[str, dict[Deferred, Callable[[Draft], None]]] = {}  # soft: joins that wait for partitions, by group
        self.topics_version = 0  # goes up when a topic was created, deleted or got more partitions
        self.is_over = False  # True once the coordinator has lost its partition: long work stops
        self.is_live = False  # False while the log is loaded: then every record replaces what earlier ones said

    def classic_group(self, group_id: str) -> ClassicGroup:
        """The group, if it exists under the classic protocol; UNKNOWN_MEMBER_ID else, since it cannot have the member that asks."""
        group = self.groups.get(group_id)
        if type(group) is not ClassicGroup:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def session_timeout_ms(self, group_id: str) -> int:
        """Returns the session timeout of members of the consumer protocol; this and the next two may be the group's own."""
        return self.own_settings(group_id).get("consumer.session.timeout.ms", self.settings.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self.own_settings(group_id).get("consumer.heartbeat.interval.ms", self.settings.consumer_heartbeat_interval_ms)

    def assignment_interval_ms(self, group_id: str) -> int:
        return self.own_settings(group_id).get("consumer.assignment.interval.ms", self.settings.consumer_assignment_interval_ms)

    def share_session_timeout_ms(self, group_id: str) -> int:
        """Returns the session timeout of members of share groups; the group may have its own, as for the three above."""
        return self.own_settings(group_id).get("share.session.timeout.ms", self.settings.share_session_timeout_ms)

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        return self.own_settings(group_id).get("share.heartbeat.interval.ms", self.settings.share_heartbeat_interval_ms)

    def share_assignment_interval_ms(self, group_id: str) -> int:
        return self.own_settings(group_id).get("share.assignment.interval.ms", self.settings.share_assignment_interval_ms)

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
        """Drops a group without members that is not in the log: made-up names would fill the memory."""
        if group.members or group.pending_members or group.stored is not None or self.offsets.has_offsets(group.group_id):
            return
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def forget_group(self, group_id: str) -> None:
        """Drops a consumer or share group that is no more, and what is remembered beside it."""
        owner = self.groups.pop(group_id).owner
        self.refreshes.pop(group_id, None)
        if self.offsets.has_offsets(group_id):
            self.groups[group_id] = ClassicGroup(group_id)
            self.groups[group_id].owner = owner

    def claim(self, group_id: str, owner: str) -> None:
        """Notes in whose share of the memory a group is counted, if it has no owner: the first principal that has used it here."""
        group = self.groups.get(group_id)
        if group is not None and group.owner == NO_OWNER:
            group.owner = owner

    def owner_of(self, group_id: str, owner: str = NO_OWNER) -> str:
        """The owner of a group; `owner` if it has none."""
        group = self.groups.get(group_id)
        return group.owner or owner if group is not None else owner

    def _sizes(self) -> Iterator[tuple[str, int]]:
        """Yields the owner and roughly the memory of the members of each group. Groups that are removed meanwhile are left out."""
        for group_id in list(self.groups):
            group = self.groups.get(group_id)
            if group is not None:
                yield group.owner, group.held_bytes()

    def _offset_sizes(self) -> Iterator[tuple[str, int]]:
        """Yields the owner of each offset and roughly its memory. Offsets that are removed meanwhile may be included."""
        for group_id in self.offsets.group_ids():
            owner = self.owner_of(group_id)
            for key, offset in self.offsets.all_of(group_id):
                yield owner, offset_bytes(key[0], offset.metadata)

    def fresh_member_id(self, prefix: str) -> str:
        """`prefix` and a random uuid, as Kafka names members."""
        digits = self.random.token_bytes(16).hex()
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
