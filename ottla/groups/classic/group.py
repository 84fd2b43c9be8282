"""The state of one classic group: its members, its generation, and its last record in the log.

Only `from_record` and `apply_record` set `stored`, the last logged record. All other fields are soft state: requests change them, and a new
coordinator starts again from the record. Members whose id or generation it does not know get an error and join again.

Invariants: `votes` counts the members that support each protocol. `metadata_bytes` is the size of all members' protocol metadata. `joining`
counts the members with a waiting JoinGroup. The leader, if any, is a member. `static_members` has the member of each group instance id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.groups.classic.member import ClassicMember
from ottla.groups.commands import Protocols
from ottla.groups.settings import MEMBER_BYTES
from ottla.groups.states import ALLOWED, COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE, GroupState, GroupType
from ottla.machine.memory import NO_OWNER
from ottla.wire.codec import decoder
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.group_records import GroupMetadataValue

CONSUMER_PROTOCOL_TYPE = "consumer"


def protocols_bytes(protocols: Protocols) -> int:
    """Returns the size of a member's protocols: their names and metadata."""
    return sum([len(name) + len(metadata) for name, metadata in protocols])


def metadata_bytes(protocols: Protocols) -> int:
    """Returns the size of a member's metadata, without the names of its protocols."""
    return sum([len(metadata) for _, metadata in protocols])


class ClassicGroup:
    """One group of the classic protocol. Without members it may have offsets, for example of a consumer that selects its own partitions.
    """

    __slots__ = (
        "generation",
        "group_id",
        "has_new_member",
        "joining",
        "leader_id",
        "members",
        "metadata_bytes",
        "owner",
        "pending_members",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_members",
        "stored",
        "subscribed_topics",
        "votes",
    )

    type = GroupType.CLASSIC

    def __init__(self, group_id: str, state_since_ms: int = -1) -> None:
        self.group_id = group_id
        self.owner = NO_OWNER
        self.stored: GroupMetadataValue | None = None
        self.state = EMPTY
        self.previous_state = EMPTY
        self.state_since_ms = state_since_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, None] = {}  # ids that were sent with MEMBER_ID_REQUIRED and have not joined yet
        self.pending_syncs: dict[str, None] = {}  # members of this generation that have not sent SyncGroup yet
        self.votes: dict[str, int] = {}
        self.metadata_bytes = 0
        self.joining = 0
        self.has_new_member = False
        self.subscribed_topics: frozenset[str] | None = None  # None: no generation yet, no consumers, or an unreadable subscription

    # The record

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, value.current_state_timestamp)
        group.stored = value
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.generation = value.generation
        for member in value.members:
            group.add(ClassicMember.from_record(member, value.protocol))
        group.leader_id = value.leader if value.leader in group.members else group.leader_id
        if value.members:
            group.state = STABLE
            group.find_subscribed_topics()
            if value.leader is None:
                # This record converted a consumer group, so a rebalance is running.
                group.state, group.previous_state = PREPARING_REBALANCE, STABLE
        return group

    def apply_record(self, value: GroupMetadataValue) -> None:
        """Applies a logged record. If it is of the current generation, the members get its assignments, and a group that waits for the
        assignments becomes Stable."""
        self.stored = value
        if value.generation != self.generation:
            return
        for stored in value.members:
            member = self.members.get(stored.member_id)
            if member is not None:
                member.assignment = stored.assignment
        if self.state is COMPLETING_REBALANCE and value.members:
            self.move_to(STABLE, value.current_state_timestamp)

    def to_record(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=[
                member.to_record(self.protocol_name, assignments.get(member_id, member.assignment))
                for member_id, member in self.members.items()
            ],
        )

    # States

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert state in ALLOWED[self.state], f"group {self.group_id} cannot go from {self.state.value} to {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    @property
    def may_rebalance(self) -> bool:
        return PREPARING_REBALANCE in ALLOWED[self.state]

    @property
    def is_active(self) -> bool:
        return self.state is not EMPTY and self.state is not DEAD

    # Members

    def add(self, member: ClassicMember) -> None:
        if member.member_id in self.members:
            raise AssertionError(f"member {member.member_id} is in group {self.group_id} already")
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_members.pop(member.member_id, None)
        self._count_votes(member.protocols, 1)

    def remove(self, member: ClassicMember) -> None:
        """Removes a member that has no waiting request."""
        assert not member.is_waiting, f"member {member.member_id} leaves with a request open"
        del self.members[member.member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        self.pending_syncs.pop(member.member_id, None)
        self._count_votes(member.protocols, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def held_bytes(self) -> int:
        """Returns the approximate memory of the members and of the ids in `pending_members`, in bytes."""
        held = MEMBER_BYTES * (len(self.members) + len(self.pending_members))
        for member in self.members.values():
            held += len(member.assignment) + protocols_bytes(member.protocols)
        return held

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Gives a member another id, also as the leader and in `static_members` and `pending_syncs`."""
        old_id = member.member_id
        self.members = {member_id if key == old_id else key: value for key, value in self.members.items()}
        member.member_id = member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        if old_id in self.pending_syncs:
            del self.pending_syncs[old_id]
            self.pending_syncs[member_id] = None

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._count_votes(member.protocols, -1)
        member.protocols = protocols
        self._count_votes(protocols, 1)

    def _count_votes(self, protocols: Protocols, change: int) -> None:
        for name, metadata in protocols:
            self.metadata_bytes += change * len(metadata)
            count = self.votes.get(name, 0) + change
            if count:
                self.votes[name] = count
            else:
                del self.votes[name]

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Returns the member that a request names. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the static member has another id,
        usually because another process has replaced it (I34).
        """
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_id != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    @property
    def rebalance_timeout_ms(self) -> int:
        return max([member.rebalance_timeout_ms for member in self.members.values()], default=0)

    @property
    def have_all_joined(self) -> bool:
        return self.joining == len(self.members) and not self.pending_members

    # Protocols

    def may_use(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether all members support one of these protocols, so that a client with them may join."""
        if not self.members:
            return bool(protocol_type and protocols)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self.votes.get(name) == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """Returns the protocol that most members prefer, among the protocols that all members support. In a tie the protocol that was voted
        for first wins.
        """
        count = len(self.members)
        candidates = dict.fromkeys(name for name, votes in self.votes.items() if votes == count)
        ballot: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            ballot[choice] = ballot.get(choice, 0) + 1
        return max(ballot, key=lambda name: ballot[name])

    def find_subscribed_topics(self) -> None:
        """Decodes the topics that the members subscribe to, if they are consumers."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            self.subscribed_topics = None
            return
        topics: list[str] = []
        for member in self.members.values():
            subscription = read_subscription(member.metadata(self.protocol_name))
            if subscription is None:
                self.subscribed_topics = None
                return
            topics += subscription.topics
        self.subscribed_topics = frozenset(topics)

    def subscribed_among(self, topics: Iterable[str]) -> set[str]:
        """Returns the subset of `topics` that a member subscribes to; all `topics` if the subscriptions of consumers are not known."""
        if self.subscribed_topics is not None:
            return set(self.subscribed_topics.intersection(topics))
        return set(topics) if self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.members else set()


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Decodes a consumer's subscription; returns None if that fails. Later versions only append fields, so a later version is decoded as
    the last known version.
    """
    if len(metadata) < 2:
        return None
    lowest, highest = ConsumerProtocolSubscription.VERSIONS
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < lowest:
        return None
    try:
        return decoder(ConsumerProtocolSubscription, min(version, highest))(metadata, 2)[0]
    except WireError:
        return None
