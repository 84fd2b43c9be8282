"""Checks that a batch is written once when its producer has to send it twice, after a connection was cut before the answer."""

from __future__ import annotations

from ottla.base.counted import counted
from ottla.cli.check.eos.proxy import CutAnswers, Proxy
from ottla.cli.check.eos.verdict import Broken, NotSupported
from ottla.cli.check.eos.world import World
from ottla.client.addresses import parse_addresses

PRODUCE = 0
BATCHES = 12
BATCH_RECORDS = 5
CUT_EVERY = 3


def retry_writes_once(world: World) -> str:
    if not world.is_plaintext:
        raise NotSupported("the proxy that cuts connections cannot look into TLS")
    topic = world.topic("retry")
    cut = CutAnswers(PRODUCE, CUT_EVERY)
    wanted = [f"{batch}-{number}" for batch in range(BATCHES) for number in range(BATCH_RECORDS)]
    with Proxy(parse_addresses(world.bootstrap), cut) as proxy:
        producer = world.producer(bootstrap_servers=proxy.address)
        for start in range(0, len(wanted), BATCH_RECORDS):
            world.write(producer, topic, *wanted[start : start + BATCH_RECORDS])
    if not cut.cuts:
        raise Broken("no Produce request came through the proxy")
    world.expect(topic, wanted)
    return f"{counted(len(wanted), 'record')}, once each and in order, though {cut.cuts} answers were lost with their connections"
