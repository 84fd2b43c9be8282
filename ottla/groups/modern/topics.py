"""The topics that a modern group reads, and whether they have changed.

A heartbeat looks the topics up again after the broker has reported a change (`GroupShard.topics_version`), and every `LOOK_AGAIN_MS`. The
group's record contains a hash of the topics' ids and partition counts. When it differs, the group's epoch rises.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from hashlib import blake2b
from struct import Struct as Packer
from typing import Any, NamedTuple

from ottla.base.loop.turns import run_steps
from ottla.base.uuids import Uuid
from ottla.groups.modern.group import EpochGroup
from ottla.groups.settings import TopicsView
from ottla.groups.shard import GroupShard, Refresh

LOOK_AGAIN_MS = 5_000
NAMES_PER_STEP = 1_000
"""Topics looked up in one step, which takes less than a millisecond."""

_INT64 = Packer(">q")
_INT32 = Packer(">i")


def refresh_of(shard: GroupShard, group_id: str) -> Refresh:
    refresh = shard.refreshes.get(group_id)
    if refresh is None:
        refresh = shard.refreshes[group_id] = Refresh()
    return refresh


def must_look_up(shard: GroupShard, refresh: Refresh, now_ms: int) -> bool:
    """Whether topics may have changed since the last look-up: the broker has reported a change, or `LOOK_AGAIN_MS` have passed. If so,
    records the time; the caller must look the topics up and set `refresh.topics_version`."""
    if refresh.topics_version == shard.topics_version and now_ms - refresh.looked_at_ms < LOOK_AGAIN_MS:
        return False
    refresh.looked_at_ms = now_ms
    return True


class FoundTopics(NamedTuple):
    """The existing topics of subscriptions; `counts` is ordered by topic name."""

    ids: dict[str, Uuid]
    counts: dict[Uuid, int]
    """The number of partitions by topic."""
    hash: int
    """Changes when a topic is added, removed or created again, or has more partitions; 0 without topics."""


def find_topics(topics: TopicsView, subscriptions: Iterable[Sequence[str]]) -> Generator[None, None, FoundTopics]:
    """Looks up the topics of several subscriptions, in steps."""
    names: dict[str, None] = {}
    work = 0
    for subscription in subscriptions:
        names.update(dict.fromkeys(subscription))
        work += len(subscription)
        if work >= 5 * NAMES_PER_STEP:
            work = 0
            yield
    ids: dict[str, Uuid] = {}
    for number, name in enumerate(names, 1):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            ids[name] = topic_id
        if not number % NAMES_PER_STEP:
            yield
    counts: dict[Uuid, int] = {}
    digest = blake2b(digest_size=8)
    for number, name in enumerate(sorted(ids), 1):
        topic_id = ids[name]
        count = counts[topic_id] = topics.partition_count(name)
        digest.update(topic_id + _INT32.pack(count))
        if not number % NAMES_PER_STEP:
            yield
    return FoundTopics(ids, counts, _INT64.unpack(digest.digest())[0] if ids else 0)


def metadata_hash(shard: GroupShard, group: EpochGroup[Any, Any]) -> int:
    return run_steps(find_topics(shard.topics, (group.subscribed_topics(),))).hash


class TopicIds:
    """The topic ids of subscriptions; members with equal subscriptions share one set."""

    def __init__(self, shard: GroupShard) -> None:
        self._topics = shard.topics
        self._known: dict[tuple[str, ...], frozenset[Uuid]] = {}
        self._by_object: dict[int, tuple[tuple[str, ...], frozenset[Uuid]]] = {}

    def of(self, names: tuple[str, ...]) -> frozenset[Uuid]:
        known = self._by_object.get(id(names))
        if known is None:
            known = self._by_object[id(names)] = names, self._look_up(names)
        return known[1]

    def _look_up(self, names: tuple[str, ...]) -> frozenset[Uuid]:
        found = self._known.get(names)
        if found is None:
            ids = (self._topics.topic_id(name) for name in names)
            found = self._known[names] = frozenset(topic_id for topic_id in ids if topic_id is not None)
        return found
