"""When a group looks its topics up again, and which changes of the topics change its hash."""

from __future__ import annotations

from ottla.groups.modern.topics import LOOK_AGAIN_MS, TopicIds, metadata_hash, must_look_up, refresh_of
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareFacts, ShareGroup
from tests.groups.classic.coordinator import Coordinator
from tests.scenarios.groups_text import FixedTopics


def shard_with(**counts: int) -> GroupShard:
    shard = Coordinator().shard
    shard.topics = FixedTopics(counts)
    return shard


def group_of(*topics: str) -> ShareGroup:
    group = ShareGroup("g")
    group.set_member("a", ShareFacts(topics=topics))
    return group


def test_topics_are_looked_up_at_first_after_a_change_and_from_time_to_time() -> None:
    shard = shard_with(t=1)
    refresh = refresh_of(shard, "g")
    assert refresh_of(shard, "g") is refresh
    assert must_look_up(shard, refresh, 0)
    refresh.topics_version = shard.topics_version
    assert not must_look_up(shard, refresh, LOOK_AGAIN_MS - 1)
    assert must_look_up(shard, refresh, LOOK_AGAIN_MS)
    assert not must_look_up(shard, refresh, LOOK_AGAIN_MS + 1)
    shard.topics_version += 1
    assert must_look_up(shard, refresh, LOOK_AGAIN_MS + 2)


def test_the_hash_is_the_same_for_the_same_topics() -> None:
    assert metadata_hash(shard_with(t=1, u=2), group_of("u", "t")) == metadata_hash(shard_with(u=2, t=1, v=5), group_of("t", "u"))


def test_the_hash_differs_when_a_topic_has_more_partitions_or_is_there_at_last() -> None:
    group = group_of("t", "u")
    found = [metadata_hash(shard, group) for shard in (shard_with(t=1), shard_with(t=2), shard_with(t=1, u=1), shard_with(u=1))]
    assert len(set(found)) == 4 and 0 not in found


def test_without_topics_that_exist_the_hash_is_zero() -> None:
    assert metadata_hash(shard_with(t=1), group_of("unknown")) == metadata_hash(shard_with(t=1), ShareGroup("g")) == 0


def test_ids_of_topics_that_exist() -> None:
    ids = TopicIds(shard_with(t=1, u=1))
    both = ids.of(("t", "u", "unknown"))
    assert both == {b"t".ljust(16, b"\0"), b"u".ljust(16, b"\0")}
    assert ids.of(("t", "u", "unknown")) is both, "members that subscribe to the same share one set"
    assert ids.of(()) == frozenset()
