"""Hostile StageRecords and AttachRecords requests cause typed errors or a closed connection. They use limited memory and do not affect
other clients.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from ottla.base.errors import ErrorCode
from ottla.replication.stage_space import CHARGE_BYTES_MIN
from ottla.storage.stage_file import SUFFIX
from ottla.wire.apis import KEYS
from ottla.wire.codec import encoder
from ottla.wire.framing import write_request
from ottla.wire.messages.attach_records import AttachPartition, AttachRecordsRequest, AttachTopic, StagedChunk
from ottla.wire.messages.stage_records import StagePartition, StageRecordsRequest, StageTopic
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_world import World, batch
from tests.clients.wire_client import WireClient, error_codes
from tests.hostile.conftest import RSS_GROWTH_BYTES_MAX, serve

Connect = Callable[[], WireClient]
STAGE, ATTACH = KEYS["StageRecords"], KEYS["AttachRecords"]
I32_MAX = 2**31 - 1
TOKEN = b"hostile-token-00"
CHUNK = batch(is_transactional=True)


def stage(world: World, *parts: tuple[int, bytes], token: bytes = TOKEN, attempt: int = 1) -> StageRecordsRequest:
    partitions = [StagePartition(index=0, chunk=chunk, records=records) for chunk, records in parts]
    return StageRecordsRequest(batch_token=token, attempt_id=attempt, topics=[StageTopic(name=world.topic, partitions=partitions)])


def entry(**fields: int) -> StagedChunk:
    """Returns the manifest entry of `CHUNK` with these fields changed."""
    return StagedChunk(**{"attempt_id": 1, "chunk": 0, "records": 3, "length": len(CHUNK), "crc": crc32c(CHUNK), **fields})


def attach(world: World, chunks: list[StagedChunk], sequence: int = 0, **fields: Any) -> AttachRecordsRequest:
    name, producer_id, epoch = world.transaction(world.topic)
    topic = AttachTopic(name=world.topic, partitions=[AttachPartition(index=0, base_sequence=sequence, chunks=chunks)])
    identity = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "batch_token": TOKEN, **fields}
    return AttachRecordsRequest(acks=-1, timeout_ms=5000, topics=[topic], **identity)


def names(answer: Any) -> list[str]:
    return [ErrorCode(code).name for code in error_codes(answer)]


@pytest.mark.parametrize("key", [STAGE, ATTACH])
def test_the_keys_are_unknown_to_connections_that_have_not_asked(connect: Connect, honest: World, key: int) -> None:
    client = connect()
    request = honest.request(key, 0)
    client.send(write_request(key, 0, 7, "hostile", encoder(type(request), 0)(request)))
    assert client.receive() is None


LYING = {
    "no chunk": ([], "INVALID_REQUEST"),
    "a chunk twice": ([entry(), entry()], "INVALID_REQUEST"),
    "a chunk that is not there": ([entry(), entry(chunk=99)], "UNKNOWN_STAGE"),
    "another attempt": ([entry(attempt_id=-1)], "UNKNOWN_STAGE"),
    "a length that lies": ([entry(length=I32_MAX)], "UNKNOWN_STAGE"),
    "a length below zero": ([entry(length=-1)], "INVALID_REQUEST"),
    "a count that lies": ([entry(records=2)], "UNKNOWN_STAGE"),
    "a count below zero": ([entry(records=-3)], "INVALID_REQUEST"),
    "counts that overflow": ([entry(chunk=number, records=I32_MAX) for number in range(3)], "INVALID_REQUEST"),
    "a crc that lies": ([entry(crc=0)], "UNKNOWN_STAGE"),
}


@pytest.mark.parametrize("name", LYING)
def test_manifests_that_lie(connect: Connect, honest: World, name: str) -> None:
    chunks, code = LYING[name]
    client = connect()
    assert names(client.ask(stage(honest, (0, CHUNK)), 0)) == ["NONE"]
    assert names(client.ask(attach(honest, chunks), 0)) == [code]


@pytest.mark.parametrize("sequence", [-1, -(2**31), 1, I32_MAX])
def test_sequences_that_do_not_follow(connect: Connect, honest: World, sequence: int) -> None:
    client = connect()
    client.ask(stage(honest, (0, CHUNK)), 0)
    code = names(client.ask(attach(honest, [entry()], sequence), 1))
    assert code == ["INVALID_REQUEST" if sequence < 0 else "OUT_OF_ORDER_SEQUENCE_NUMBER"]


FOREIGN_PRODUCERS = [{"producer_id": -1}, {"producer_id": 2**62}, {"producer_epoch": -1}, {"producer_epoch": 32767}]


@pytest.mark.parametrize("fields", FOREIGN_PRODUCERS, ids=str)
def test_producers_that_do_not_exist(connect: Connect, honest: World, fields: dict[str, int]) -> None:
    client = connect()
    client.ask(stage(honest, (0, CHUNK)), 0)
    for version in (0, 1):
        (code,) = names(client.ask(attach(honest, [entry()], **fields), version))
        assert code not in ("NONE", "UNKNOWN_SERVER_ERROR")


def test_a_chunk_of_another_topic(connect: Connect, honest: World) -> None:
    client, other = connect(), honest.fresh_topic()
    client.ask(stage(honest, (0, CHUNK), token=b"of another topic"), 0)
    request = attach(honest, [entry()], batch_token=b"of another topic")
    request.topics[0].name = other
    assert names(client.ask(request, 1)) == ["UNKNOWN_STAGE"]


def test_chunks_out_of_order_and_with_gaps_are_the_clients_own_affair(connect: Connect, honest: World) -> None:
    client, token = connect(), b"out of order ..."
    parts = [(I32_MAX, CHUNK), (7, CHUNK), (0, CHUNK)]
    assert names(client.ask(stage(honest, *parts, token=token), 0)) == ["NONE"] * 3
    manifest = [entry(chunk=number) for number, _ in parts]
    answer = client.ask(attach(honest, manifest, batch_token=token), 1)
    assert names(answer) == ["NONE"] and answer.topics[0].partitions[0].base_offset >= 0


def test_a_manifest_of_very_many_chunks(connect: Connect, honest: World, attacked: BrokerProcess) -> None:
    """I46: a manifest with very many chunks does not make the broker's memory grow."""
    client = connect()
    client.socket.settimeout(60)
    client.ask(stage(honest, (0, CHUNK)), 0)
    before = attacked.rss_bytes()
    assert names(client.ask(attach(honest, [entry()] * 200_000), 0)) == ["INVALID_REQUEST"]
    assert attacked.rss_bytes() - before < RSS_GROWTH_BYTES_MAX
    serve(honest)


def test_a_flood_of_tiny_chunks_ends_at_the_quota(own_broker: BrokerProcess) -> None:
    """I46: a client may invent any number of tokens and attempts, but the size of its staged chunks is limited by the quota."""
    own_broker.settings.append(f"ottla.stage.bytes.max={64 * CHARGE_BYTES_MIN}")
    own_broker.start()
    with WireClient(own_broker.port) as client:
        world = World(client)
        answers: list[str] = []
        for number in range(100):
            token = b"flood" + number.to_bytes(11, "big")
            answers += names(client.ask(stage(world, (number, CHUNK), token=token, attempt=number), 0))
        assert answers == ["NONE"] * 64 + ["THROTTLING_QUOTA_EXCEEDED"] * 36
        assert len(staged_files(own_broker)) == 64
        serve(world)


def test_a_restart_removes_what_was_staged(own_broker: BrokerProcess) -> None:
    broker = own_broker.start()
    with WireClient(broker.port) as client:
        world = World(client)
        assert names(client.ask(stage(world, (0, CHUNK)), 0)) == ["NONE"]
        assert len(staged_files(broker)) == 1
        broker.kill()
        assert len(staged_files(broker)) == 1
    broker.start()
    assert staged_files(broker) == []
    with WireClient(broker.port) as client:
        world.client = client
        assert names(client.ask(attach(world, [entry()]), 0)) == ["UNKNOWN_STAGE"]
        assert names(client.ask(stage(world, (0, CHUNK)), 0)) == ["NONE"]
    broker.stop()
    assert staged_files(broker) == []


def staged_files(broker: BrokerProcess) -> list[Path]:
    return sorted(broker.data.rglob(f"*{SUFFIX}"))
