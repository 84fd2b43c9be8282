"""Updates a streams group's internal topics, epoch and target assignment (`modern/update.py`)."""

from __future__ import annotations

from collections.abc import Generator

from ottla.groups.modern.topics import FoundTopics, refresh_of
from ottla.groups.modern.update import ReconcilingUpdate, Steps
from ottla.groups.shard import GroupShard
from ottla.groups.streams.assignor import Assignments, StreamsMember, assign_sticky
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.records import StreamsChange
from ottla.groups.streams.topology import Configured, configure

STANDBY_REPLICAS, TAG_KEYS = "num.standby.replicas", "rack.aware.assignment.tags"


def assignment_configs(shard: GroupShard, group_id: str) -> tuple[tuple[str, str], ...]:
    """Returns the settings that the target assignment depends on, as Kafka logs them; a change of them raises the group's epoch."""
    tags = tag_keys(shard, group_id)
    replicas = (STANDBY_REPLICAS, str(shard.setting_of(group_id, f"streams.{STANDBY_REPLICAS}")))
    return (replicas, (TAG_KEYS, ",".join(tags))) if tags else (replicas,)


def tag_keys(shard: GroupShard, group_id: str) -> tuple[str, ...]:
    """Returns the keys of the client tags that each member must have."""
    return tuple(shard.setting_of(group_id, "streams.rack.aware.assignment.tags"))


def may_assign(shard: GroupShard, group: StreamsGroup, now_ms: int) -> bool:
    """Whether a new target must be made now. Four conditions must be true: the group's epoch is newer than the target's, no update is
    running, the group does not wait for more members, and the target is old enough."""
    if group.epoch <= group.target_epoch or group.group_id in shard.updates:
        return False
    return _has_rested(shard, group, now_ms)


def is_gathering(shard: GroupShard, group: StreamsGroup, now_ms: int) -> bool:
    """Whether the first target still waits for more members (`streams.initial.rebalance.delay.ms`)."""
    return now_ms < refresh_of(shard, group.group_id).gathers_until_ms


def _has_rested(shard: GroupShard, group: StreamsGroup, now_ms: int) -> bool:
    if is_gathering(shard, group, now_ms):
        return False
    return not any(group.target.values()) or group.has_rested(shard.setting_of(group.group_id, "streams.assignment.interval.ms"), now_ms)


class StreamsUpdate(ReconcilingUpdate[StreamsChange]):
    """One update."""

    def __init__(self, shard: GroupShard, *, must_look_up: bool, wants_other: bool) -> None:
        super().__init__(shard, StreamsGroup, StreamsChange, must_look_up=must_look_up, wants_other=wants_other)

    def _has_rested(self, group: StreamsGroup, now_ms: int) -> bool:
        return _has_rested(self._shard, group, now_ms)

    def _note_topics(self, found: FoundTopics, change: StreamsChange, now_ms: int) -> None:
        configured = self._configure(change.group, found)
        validation = change.group.validation._replace(configs=assignment_configs(self._shard, change.group_id))
        if configured.is_ready:
            validation = validation._replace(topology_epoch=configured.topology.epoch)
        if validation != change.group.validation:
            change.validation = validation
            self._must_raise_epoch = True
        super()._note_topics(found, change, now_ms)

    def _configure(self, group: StreamsGroup, found: FoundTopics) -> Configured:
        assert group.topology is not None
        configured = configure(group.topology, lambda name: found.counts[found.ids[name]] if name in found.ids else 0)
        self._shard.streams_state(group.group_id).configured = configured
        return configured

    def _make_target(self, group: StreamsGroup, found: FoundTopics) -> Steps[StreamsChange]:
        configured = self._configure(group, found)
        target: Assignments = {member_id: {} for member_id in group.facts}
        if configured.is_ready:
            members = yield from _members(group)
            replicas = self._shard.setting_of(group.group_id, f"streams.{STANDBY_REPLICAS}")
            target |= yield from assign_sticky(members, configured.tasks, configured.topology.stateful(), replicas)
        yield from self._log_target(group, target)


def _members(group: StreamsGroup) -> Generator[None, None, list[StreamsMember]]:
    """Returns the members that have the group's topology; others get no tasks."""
    assert group.topology is not None
    members: list[StreamsMember] = []
    for number, (member_id, facts) in enumerate(group.facts.items(), 1):
        if facts.topology_epoch == group.topology.epoch:
            members.append(StreamsMember(member_id, facts.process_id, group.target.get(member_id, {})))
        if not number % 1_000:
            yield
    return members
