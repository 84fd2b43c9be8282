"""What consumer groups (KIP-848) and share groups (KIP-932) have in common: members, epochs, a target assignment, and who has reached it.

All of it is hard state, a fold of the group's records; a coordinator that takes over continues where the last one stopped. Values are
immutable and replaced as a whole, so a decision can try its changes on a `copy`, which is a handful of dict copies.

Three epochs measure progress: `epoch` rises when the members or what they want change, `target_epoch` is the group epoch that the
target assignment was made for, and each member's own epoch says which target it has reached.

Invariants: a target and a position belong to a member.
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

Assignment = dict[Uuid, tuple[int, ...]]
"""Partitions by topic, in ascending order."""

SUBSCRIPTIONS_MAX = 8
"""So many of the last different subscriptions are compared with a new one."""
NAME_BYTES = 60
"""What a name takes beside its characters."""
FIRST_EPOCH = 1
"""Of a group without a past: its first member raises it, so that member's epoch is 2, as in Kafka."""
JOINING_EPOCH = 0
LEAVING_EPOCH = -1


class Facts(Protocol):
    """What a member says of itself, in groups of either kind."""

    @property
    def rack_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def topics(self) -> tuple[str, ...]: ...


class Place(Protocol):
    """What a member has, and which epoch it has reached, in groups of either kind."""

    @property
    def epoch(self) -> int: ...
    @property
    def previous_epoch(self) -> int: ...
    @property
    def assigned(self) -> Mapping[Uuid, tuple[int, ...]]: ...


FactsT = TypeVar("FactsT", bound=Facts)
PlaceT = TypeVar("PlaceT", bound=Place)
GroupT = TypeVar("GroupT", bound="EpochGroup[Any, Any]")


def find_facts(group: EpochGroup[FactsT, Any], member_id: str, epoch: int, members_max: int) -> FactsT | None:
    """The facts of the member that sent this epoch; None if it joins now. Raises `ApiError` if it may not."""
    facts = group.facts.get(member_id)
    if facts is None and epoch != JOINING_EPOCH:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
    if facts is None and len(group.facts) >= members_max:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {counted(len(group.facts), 'member')} already")
    return facts


def check_names(settings: GroupCoordinatorSettings, ids: Iterable[str | None], topics: Iterable[str] | None) -> None:
    """Refuses ids of a member, and lists of topics, that are too long."""
    if is_too_long(*ids):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"an id of a member, an instance or a rack has at most {ID_CHARACTERS_MAX} characters")
    if topics and sum(map(len, topics)) > settings.member_metadata_bytes_max:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the names of the topics that a member subscribes to are too many")


def admit(share: Share, before: FactsT | None, facts: FactsT, owner: str) -> None:
    """Finds room for a new member, or one that subscribes to more. Raises `ApiError` if there is none."""
    size = facts_bytes(facts) - (facts_bytes(before) if before is not None else 0)
    if size > 0:
        share.admit(size, owner)


def fenced(position: Place, epoch: int) -> ApiError:
    """The refusal of a member whose epoch is not its own."""
    return ApiError(ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {epoch} is not the member's epoch {position.epoch}; it must join again")


def merged_topics(before: tuple[str, ...], names: Iterable[str] | None) -> tuple[str, ...]:
    """The topics that a member subscribes to, in order; null leaves them as they were."""
    return before if names is None else tuple(sorted(dict.fromkeys(names)))


def facts_bytes(facts: Facts) -> int:
    """Roughly the memory that a member takes."""
    return MEMBER_BYTES + sum([NAME_BYTES + len(name) for name in facts.topics])


class EpochGroup(Generic[FactsT, PlaceT]):
    """One group. `set_*` and `remove_*` are the folds of its records."""

    __slots__ = (
        "_subscriptions", "owner", "epoch", "facts", "group_id", "metadata_hash", "positions", "target", "target_epoch",
        "target_timestamp_ms",
    )  # fmt: skip

    type: ClassVar[GroupType]
    protocol_type: ClassVar[str]
    word: ClassVar[str]
    """As in "Group g is not a share group"."""
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
        """What members read, each list of names once."""
        return list({id(facts.topics): facts.topics for facts in self.facts.values()}.values())

    def subscribed_topics(self) -> list[str]:
        """Every topic that a member reads, in order."""
        topics: dict[str, None] = {}
        for names in self.subscriptions():
            topics.update(dict.fromkeys(names))
        return sorted(topics)

    def has_rested(self, interval_ms: int, now_ms: int) -> bool:
        """Whether the last target was made so long ago. One that seems to be of the future was made by another coordinator, whose clock
        is ahead of this one's: nothing waits for that."""
        return not 0 <= now_ms - self.target_timestamp_ms < interval_ms

    def held_bytes(self) -> int:
        """Roughly the memory that the members take."""
        return sum([facts_bytes(facts) for facts in self.facts.values()])

    # The fold of the log

    def set_member(self, member_id: str, facts: FactsT) -> None:
        topics = self.shared_topics(facts.topics)
        # Facts of both kinds are named tuples.
        self.facts[member_id] = facts if topics is facts.topics else facts._replace(topics=topics)  # type: ignore[attr-defined]

    def shared_topics(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        """The same names, the very object if another member has them, so that what members have in common is looked at once."""
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
