"""Checks that a forgotten transaction is aborted after its time-out."""

from __future__ import annotations

import time

from ottla.cli.check.eos.verdict import Broken
from ottla.cli.check.eos.world import WAIT_SECONDS, World

TIMEOUT_MS = 1_000
LOOK_SECONDS = 10  # how often Apache Kafka looks for timed-out transactions by default
PATIENCE_SECONDS = 8


def time_out_is_enforced(world: World) -> str:
    """The transaction is aborted soon after its time-out, readers continue, and its producer cannot commit."""
    topic = world.topic("timeout")
    producer = world.transactional("timeout", timeout_ms=TIMEOUT_MS)
    producer.begin_transaction()
    world.write(producer, topic, "forgotten")
    world.write(world.producer(), topic, "behind")
    start = time.monotonic()
    world.expect(topic, ["behind"], TIMEOUT_MS / 1000 + LOOK_SECONDS + PATIENCE_SECONDS)
    seconds = time.monotonic() - start
    try:
        producer.commit_transaction(WAIT_SECONDS)
    except world.kafka.KafkaException as error:
        refusal = error.args[0]
    else:
        raise Broken("the producer could commit what had timed out")
    return f"aborted {seconds:.0f} s after a time-out of {TIMEOUT_MS / 1000:g} s; the commit was refused: {refusal.name().lstrip('_')}"
