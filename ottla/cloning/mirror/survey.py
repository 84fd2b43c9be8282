"""The state of a mirror as both clusters show it, whether it runs or not. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.settings.topics import MIRROR_SOURCE
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core import admin
from ottla.client.core.mirroring import offers_mirroring
from ottla.client.errors import KafkaError, UnknownTopicError
from ottla.cloning.mirror.state import State, make_state
from ottla.cloning.mirror.target import FAILED, GRADUATED, MirroredTopic
from ottla.cloning.mirror.topics import TopicFollower


def survey(source: Client, target: Client, topics: Sequence[str]) -> State:
    """Returns the state of these topics. A topic of Ottla that is writable counts as graduated, a missing one as failed. Raises
    `CloneError` and `ClientError`."""
    follower, is_exact = TopicFollower(source, target, {}), offers_mirroring(target.cluster)
    found = [follower.found(name)[0] for name in topics]
    for topic in found:
        _judge(target, topic, is_exact=is_exact)
    partitions = [partition for topic in found for partition in topic.partitions]
    known = [partition for topic in found if topic.state != FAILED for partition in topic.partitions]
    return make_state(
        found, _ends(source, partitions), _ends(target, known), error=None, groups=0, copied=0, notes=[]
    )  # fmt: skip


def _judge(target: Client, topic: MirroredTopic, *, is_exact: bool) -> None:
    try:
        source = target.topic_configs(topic.name).get(MIRROR_SOURCE)
    except UnknownTopicError:
        topic.state, topic.error = FAILED, f"the target has no topic {topic.name!r}"
        return
    if is_exact and not source:
        topic.state = GRADUATED
    elif is_exact and source != topic.source:
        topic.state, topic.error = FAILED, f"the target's topic mirrors {source}"


def _ends(client: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    found = admin.list_offsets(client.cluster, dict.fromkeys(partitions, admin.LATEST)) if partitions else {}
    return {partition: one.offset for partition, one in found.items() if not isinstance(one, KafkaError)}
