"""Finds the state of a mirror by asking both clusters, whether the mirror runs or not. A mirror stores no state, so the target's ends are
read twice: a mirror that runs has moved them in between. The module changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ottla.base.errors import ErrorCode, WireError
from ottla.base.settings.topics import LEADER_EPOCH_MIN, MIRROR_SOURCE
from ottla.base.types import READ_UNCOMMITTED, TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core import admin
from ottla.client.core.fetch_once import fetch_once
from ottla.client.core.fetching import FetchLimits, read_headers, sound_batches
from ottla.client.core.mirroring import offers_mirroring
from ottla.client.errors import ClientError, KafkaError, UnknownTopicError
from ottla.cloning.mirror.state import State, make_state
from ottla.cloning.mirror.target import FAILED, GRADUATED, MIRRORING, MirroredTopic
from ottla.cloning.mirror.topics import TopicFollower

SECONDS = 1.0
ONE_BATCH = FetchLimits(0, 1, 1 << 20, 1)
"""A broker sends the first batch whole, however large it is."""


def survey(source: Client, target: Client, topics: Sequence[str], *, seconds: float = SECONDS) -> State:
    """Returns the state of these topics; each partition has the `rate` of the target in offsets per second. A topic of Ottla that was
    mirrored and is writable now is shown as graduated, a missing topic as failed. If the target lacks records, it waits `seconds` and reads
    the target's ends again. A partition that got none meanwhile has an `error` if its next batch is damaged at the source. Raises
    `CloneError` and `ClientError`.
    """
    follower, is_exact = TopicFollower(source, target, {}), offers_mirroring(target.cluster)
    found = [follower.found(name)[0] for name in topics]
    for topic in found:
        _judge(target, topic, is_exact=is_exact)
    known = [partition for topic in found if topic.state != FAILED for partition in topic.partitions]
    before, begun_s = _ends(target, known), time.monotonic()
    state = _look(source, target, found, known)
    if state["lag"]:
        time.sleep(seconds)
        state = _look(source, target, found, known)
    took_s = time.monotonic() - begun_s
    for topic in state["topics"]:
        for one in topic["partitions"]:
            end = before.get(TopicPartition(topic["topic"], one["partition"]))
            one["rate"] = None if end is None or one["end"] is None else round((one["end"] - end) / took_s)
    still = {
        TopicPartition(topic["topic"], one["partition"]): one
        for topic in state["topics"] if topic["state"] == MIRRORING
        for one in topic["partitions"] if one["lag"] and one["rate"] == 0
    }  # fmt: skip
    for partition, damage in _damaged(source, {partition: one["end"] for partition, one in still.items()}).items():
        still[partition]["error"] = f"damaged at the source: {damage}"
    return state


def _damaged(source: Client, positions: dict[TopicPartition, int]) -> dict[TopicPartition, str]:
    """Returns what is wrong with the batch at each position, for those that are damaged. A batch that cannot be read is not named."""
    if not positions:
        return {}
    try:
        found, failures = fetch_once(source.cluster, positions, READ_UNCOMMITTED, ONE_BATCH, read=read_headers)
    except ClientError:
        return {}
    damaged = {
        partition: failure.message
        for partition, failure in failures.items() if isinstance(failure, KafkaError) and failure.code is ErrorCode.CORRUPT_MESSAGE
    }  # fmt: skip
    for one in found:
        try:
            next(sound_batches(one.partition, one.data), None)
        except WireError as error:
            damaged[one.partition] = str(error)
    return damaged


def _look(source: Client, target: Client, topics: Sequence[MirroredTopic], known: Sequence[TopicPartition]) -> State:
    partitions = [partition for topic in topics for partition in topic.partitions]
    ends = _ends(target, known)  # before the source's ends, so that a lag of 0 is certain
    return make_state(topics, _ends(source, partitions), ends, {}, error=None, groups=0, copied=0, notes=[])


def _judge(target: Client, topic: MirroredTopic, *, is_exact: bool) -> None:
    try:
        configs = target.topic_configs(topic.name)
    except UnknownTopicError:
        topic.state, topic.error = FAILED, f"the target has no topic {topic.name!r}"
        return
    source = configs.get(MIRROR_SOURCE)
    if is_exact and not source and int(configs.get(LEADER_EPOCH_MIN) or 0):
        topic.state = GRADUATED
    elif is_exact and source != topic.source:
        topic.state, topic.error = FAILED, f"the target's topic mirrors {source}" if source else "the target's topic is no mirror"


def _ends(client: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    found = admin.list_offsets(client.cluster, dict.fromkeys(partitions, admin.LATEST)) if partitions else {}
    return {partition: one.offset for partition, one in found.items() if not isinstance(one, KafkaError)}
