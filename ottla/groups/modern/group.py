"""The common state of consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071): members, epochs, the target
assignment, and each member's progress.

All of it except `owner` is hard state, built from the group's records, so a new coordinator continues where the last one stopped. Values
are immutable and replaced as a whole. A decision can therefore try its changes on a `copy`, which copies only some dicts.

There are three kinds of epochs. `epoch` rises when members join or leave, and when their subscriptions or the subscribed topics change. It
does not rise when a new process replaces a static member. `target_epoch` is the group epoch of the current target assignment. A member's
epoch is the epoch of the target assignment that the member has reached.

Invariants: each target and each position belongs to a member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX, is_too_long
from ottla.base.uuids import Uuid
from ottla.groups.settings import MEMBER_BYTES, GroupCoordinatorSettings
from ottla.groups.states import EMPTY, STABLE, GroupState, GroupType
from ottla.machine.memory import NO_OWNER, Share

PartitionsByTopic = dict[Uuid, tuple[int, ...]]
"""Partitions by topic, in ascending order."""

Assignment = dict[Any, tuple[int, ...]]
"""Partitions by topic id, or in a streams group by role and subtopology."""

SUBSCRIPTIONS_MAX = 8
"""Number of recent different subscriptions that a new one is compared with."""
NAME_BYTES = 60
"""Memory of a name in addition to its characters, in bytes."""
FIRST_EPOCH = 1
"""Epoch of a new group. The first member raises the epoch, so its member epoch is 2, as in Kafka."""
JOINING_EPOCH = 0
LEAVING_EPOCH = -1


class DeclaredFacts(Protocol):
    """A member's description of itself, in every kind of group."""

    @property
    def rack_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def topics(self) -> tuple[str, ...]: ...


class CurrentAssignment(Protocol):
    """A member's current assignment and epoch, in every kind of group."""

    @property
    def epoch(self) -> int: ...
    @property
    def previous_epoch(self) -> int: ...
    @property
    def assigned(self) -> Mapping[Any, tuple[int, ...]]: ...


FactsT = TypeVar("FactsT", bound=DeclaredFacts)
PlaceT = TypeVar("PlaceT", bound=CurrentAssignment)
GroupT = TypeVar("GroupT", bound="EpochGroup[Any, Any]")


def find_facts(group: EpochGroup[FactsT, Any], member_id: str, epoch: int, members_max: int) -> FactsT | None:
    """Returns the description of the member that sent this epoch; None for a new member. Raises ApiError UNKNOWN_MEMBER_ID for an unknown
    member that is not joining, and GROUP_MAX_SIZE_REACHED for a new member of a full group.
    """
    facts = group.facts.get(member_id)
    if facts is None and epoch != JOINING_EPOCH:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
    if facts is None and len(group.facts) >= members_max:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {counted(len(group.facts), 'member')} already")
    return facts


def check_names(settings: GroupCoordinatorSettings, ids: Iterable[str | None], topics: Iterable[str] | None) -> None:
    """Raises INVALID_REQUEST if an id, or the list of topics in characters, is too long."""
    if is_too_long(*ids):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"an id of a member, an instance or a rack has at most {ID_CHARACTERS_MAX} characters")
    if topics and sum(map(len, topics)) > settings.member_metadata_bytes_max:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the names of the topics that a member subscribes to are too long in total")


def admit(share: Share, before: FactsT | None, facts: FactsT, owner: str) -> None:
    """Reserves memory for a new member, or for a longer subscription. Raises `ApiError` if too little memory is free."""
    size = facts_bytes(facts) - (facts_bytes(before) if before is not None else 0)
    if size > 0:
        share.admit(size, owner)


def fenced(position: CurrentAssignment, epoch: int) -> ApiError:
    return ApiError(ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {epoch} is not the member's epoch {position.epoch}; it must join again")


def merged_topics(before: tuple[str, ...], names: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the sorted topics that a member subscribes to. None keeps the topics of `before`."""
    return before if names is None else tuple(sorted(dict.fromkeys(names)))


def facts_bytes(facts: DeclaredFacts) -> int:
    return MEMBER_BYTES + sum([NAME_BYTES + len(name) for name in facts.topics])


class EpochGroup(Generic[FactsT, PlaceT]):
    """One group. `set_*` and `remove_*` apply its records."""

    __slots__ = (
        "_subscriptions", "owner", "epoch", "facts", "group_id", "metadata_hash", "positions", "target", "target_epoch",
        "target_timestamp_ms",
    )  # fmt: skip

    type: ClassVar[GroupType]
    protocol_type: ClassVar[str]
    word: ClassVar[str]
    """The word in messages such as "Group g is not a share group"."""
    fields: ClassVar[tuple[str, ...]] = __slots__[2:]
    new_position: PlaceT

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.owner = NO_OWNER
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        self.facts: dict[str, FactsT] = {}
        self.positions: dict[str, PlaceT] = {}
        self.target: dict[str, Assignment] = {}
        self._subscriptions: list[tuple[str, ...]] = []

    def copy(self: GroupT) -> GroupT:
        twin = self.__class__(self.group_id)
        for name in self.fields:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if value.__class__ is dict else value)
        twin.owner = self.owner
        twin._subscriptions = self._subscriptions
        return twin

    # Questions

    @property
    def members(self) -> Mapping[str, FactsT]:
        return self.facts

    @property
    def state(self) -> GroupState:
        return STABLE if self.facts else EMPTY

    def position(self, member_id: str) -> PlaceT:
        return self.positions.get(member_id, self.new_position)

    def subscriptions(self) -> list[tuple[str, ...]]:
        """Returns the members' subscriptions. A subscription that several members share (`shared_topics`) is returned once."""
        return list({id(facts.topics): facts.topics for facts in self.facts.values()}.values())

    def subscribed_topics(self) -> list[str]:
        """Returns every topic that a member subscribes to, sorted."""
        topics: dict[str, None] = {}
        for names in self.subscriptions():
            topics.update(dict.fromkeys(names))
        return sorted(topics)

    def has_rested(self, interval_ms: int, now_ms: int) -> bool:
        """Whether the last target is at least `interval_ms` old. A target with a future time was made by another coordinator whose clock is
        ahead; it is treated as old."""
        return not 0 <= now_ms - self.target_timestamp_ms < interval_ms

    def held_bytes(self) -> int:
        return sum([facts_bytes(facts) for facts in self.facts.values()])

    # Applying the log

    def set_member(self, member_id: str, facts: FactsT) -> None:
        topics = self.shared_topics(facts.topics)
        # Facts of every kind are named tuples.
        self.facts[member_id] = facts if topics is facts.topics else facts._replace(topics=topics)  # type: ignore[attr-defined]

    def shared_topics(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        """Returns an equal tuple of names: the same object for members with a recent common subscription, which is then processed once."""
        for known in self._subscriptions:
            if known == topics:
                return known
        self._subscriptions.insert(0, topics)
        del self._subscriptions[SUBSCRIPTIONS_MAX:]
        return topics

    def remove_member(self, member_id: str) -> None:
        self.facts.pop(member_id, None)

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash

    def set_target_epoch(self, epoch: int, timestamp_ms: int) -> None:
        self.target_epoch = epoch
        self.target_timestamp_ms = timestamp_ms

    def set_target(self, member_id: str, target: Assignment) -> None:
        self.target[member_id] = target

    def remove_target(self, member_id: str) -> None:
        self.target.pop(member_id, None)

    def set_position(self, member_id: str, position: PlaceT) -> None:
        self.positions[member_id] = position

    def remove_position(self, member_id: str) -> None:
        self.positions.pop(member_id, None)
