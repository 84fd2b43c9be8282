"""Checks that offsets sent in a transaction are committed or discarded together with it."""

from __future__ import annotations

import time
from typing import Any

from ottla.cli.check.eos.verdict import Broken
from ottla.cli.check.eos.world import WAIT_SECONDS, World

STABLE_SECONDS = 1.5
BEFORE, ABORTED, COMMITTED = 1, 5, 7


def offsets_follow_the_transaction(world: World) -> str:
    """Offsets of an aborted or open transaction do not show (open ones also block requests for stable offsets); committed ones do."""
    topic = world.topic("offsets")
    consumer = world.consumer("offsets")
    try:
        return _check(world, topic, consumer)
    finally:
        consumer.close()


def _check(world: World, topic: str, consumer: Any) -> str:
    def place(offset: int) -> list[Any]:
        return [world.kafka.TopicPartition(topic, 0, offset)]

    world.write(world.producer(), topic, *map(str, range(10)))
    consumer.commit(offsets=place(BEFORE), asynchronous=False)
    producer = world.transactional("offsets")
    group = consumer.consumer_group_metadata()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(place(ABORTED), group, WAIT_SECONDS)
    producer.abort_transaction(WAIT_SECONDS)
    _expect(world, topic, BEFORE, "after the abort")
    producer.begin_transaction()
    producer.send_offsets_to_transaction(place(COMMITTED), group, WAIT_SECONDS)
    loose = committed(world, topic, is_stable=False)
    if loose != BEFORE:
        raise Broken(f"with the transaction open, offset {loose} was returned instead of {BEFORE}")
    stable = committed(world, topic, is_stable=True, seconds=STABLE_SECONDS)
    if stable is not None:
        raise Broken(f"with the transaction open, {stable} was returned as a stable offset")
    producer.commit_transaction(WAIT_SECONDS)
    _expect(world, topic, COMMITTED, "after the commit")
    return "aborted and open ones did not show, committed ones did"


def _expect(world: World, topic: str, wanted: int, when: str) -> None:
    """The stable offset is the wanted one once the transaction's markers are written."""
    deadline = time.monotonic() + WAIT_SECONDS
    found = None
    while found is None:
        if time.monotonic() > deadline:
            raise Broken(f"{when}, no stable offset was returned within {WAIT_SECONDS:g} s")
        found = committed(world, topic, is_stable=True, seconds=STABLE_SECONDS)
    if found != wanted:
        raise Broken(f"{when}, offset {found} was returned instead of {wanted}")


def committed(world: World, topic: str, *, is_stable: bool, seconds: float = WAIT_SECONDS) -> int | None:
    """The group's offset; None if the broker answers that it is not stable, or the client's wait for it times out."""
    asked = world.kafka.ConsumerGroupTopicPartitions(f"{world.name}-offsets", [world.kafka.TopicPartition(topic, 0)])
    future = world.admin.list_consumer_group_offsets([asked], require_stable=is_stable, request_timeout=seconds)[asked.group_id]
    try:
        (found,) = future.result(2 * WAIT_SECONDS).topic_partitions
    except world.kafka.KafkaException as error:
        waits = (world.kafka.KafkaError._TIMED_OUT, world.kafka.KafkaError.UNSTABLE_OFFSET_COMMIT)
        if is_stable and error.args[0].code() in waits:
            return None
        raise
    return None if found.error is not None else int(found.offset)
