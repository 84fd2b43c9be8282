"""Attacks by the extension that stages records: very many chunks, and manifests of very many chunks."""

from __future__ import annotations

from crc32c import crc32c

from ottla.wire.messages.attach_records import AttachPartition, AttachRecordsRequest, AttachTopic, StagedChunk
from ottla.wire.messages.stage_records import StagePartition, StageRecordsRequest, StageTopic
from tests.clients.sample_world import batch
from tests.clients.wire_client import error_codes
from tests.hostile.attacks import Target, attack

CHUNK = batch(is_transactional=True)
TOKEN = b"hostile-token-00"
NO_EXTENSIONS = "has no such API"


@attack("StageRecords of 20 tiny chunks of as many attempts, 200 times", not_on_kafka=NO_EXTENSIONS)
def tiny_chunks(target: Target) -> None:
    client = target.connect()
    client.ask_for_extensions()
    target.begin()
    for number in target.numbers(200):
        parts = [StagePartition(index=0, chunk=chunk, records=CHUNK) for chunk in range(20)]
        topics = [StageTopic(name=target.world.topic, partitions=parts)]
        assert not any(error_codes(client.ask(StageRecordsRequest(batch_token=TOKEN, attempt_id=number, topics=topics), 0)))


@attack("AttachRecords of 200,000 chunks of which one is there, 10 times", not_on_kafka=NO_EXTENSIONS)
def long_manifests(target: Target) -> None:
    client = target.connect()
    client.ask_for_extensions()
    staged = [StageTopic(name=target.world.topic, partitions=[StagePartition(index=0, chunk=0, records=CHUNK)])]
    assert not any(error_codes(client.ask(StageRecordsRequest(batch_token=TOKEN, attempt_id=1, topics=staged), 0)))
    name, producer_id, epoch = target.world.transaction(target.world.topic)
    chunks = [
        StagedChunk(attempt_id=1, chunk=number, records=3, length=len(CHUNK), crc=crc32c(CHUNK)) for number in target.numbers(200_000)
    ]
    topics = [AttachTopic(name=target.world.topic, partitions=[AttachPartition(index=0, base_sequence=0, chunks=chunks)])]
    identity = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "batch_token": TOKEN}
    request = AttachRecordsRequest(acks=-1, timeout_ms=5000, topics=topics, **identity)
    target.begin()
    for _ in range(10):
        assert any(error_codes(client.ask(request, 0)))
