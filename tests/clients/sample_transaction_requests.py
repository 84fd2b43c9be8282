"""Sample requests about transactions, their producers and staged records; see `sample_requests.py`."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from ottla.wire.framing import load
from ottla.wire.messages import (
    attach_records,
    describe_producers,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.wire.schema import Request
from tests.clients.sample_world import NEVER_EXPIRES_MS, World, batch, plain
from tests.clients.wire_client import In, error_codes


def _init_producer_id(world: World, make: In, cls: Any) -> Any:
    return make(cls, transactional_id=world.fresh("transaction"), transaction_timeout_ms=NEVER_EXPIRES_MS)


def _add_partitions(world: World, make: In, _cls: Any) -> Any:
    return world.add_partitions(make, *world.transaction(), world.fresh_topic())


def _add_offsets(world: World, make: In, cls: Any) -> Any:
    name, producer_id, epoch = world.transaction()
    return make(cls, transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="group")


def _end_txn(world: World, make: In, cls: Any) -> Any:
    name, producer_id, epoch = world.transaction(world.fresh_topic())
    return make(cls, transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)


def _write_markers(world: World, make: In, cls: Any) -> Any:
    topic = make(write_txn_markers.WritableTxnMarkerTopic, name=world.topic, partition_indexes=[0])
    return make(cls, markers=[make(write_txn_markers.WritableTxnMarker, producer_id=7, transaction_result=True, topics=[topic])])


def _txn_offset_commit(world: World, make: In, cls: Any) -> Any:
    name, producer_id, epoch = world.transaction()
    world.client.ask(_add_offsets_of(name, producer_id, epoch, "group-of-" + name), 3)
    partition = make(txn_offset_commit.TxnOffsetCommitRequestPartition, partition_index=0, committed_offset=1)
    topic = make(txn_offset_commit.TxnOffsetCommitRequestTopic, name=world.topic, topic_id=world.topic_id, partitions=[partition])
    fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    return make(cls, group_id="group-of-" + name, topics=[topic], **fields)


def _add_offsets_of(name: str, producer_id: int, epoch: int, group: str) -> Request:
    return load(25)[0](transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=group)


def _describe_producers(world: World, make: In, cls: Any) -> Any:
    return make(cls, topics=[make(describe_producers.TopicRequest, name=world.topic, partition_indexes=[0])])


def _describe_transactions(world: World, make: In, cls: Any) -> Any:
    return make(cls, transactional_ids=[world.transaction(world.fresh_topic())[0]])


def _stage_records(world: World, _make: In, _cls: Any) -> Any:
    return world.stage(world.fresh("token").encode().ljust(16, b"-"), batch(is_transactional=True))


def _attach_records(world: World, _make: In, cls: Any) -> Any:
    name, producer_id, epoch = world.transaction(world.topic)
    token, records = name.encode().ljust(16, b"-"), batch(is_transactional=True)
    assert error_codes(world.client.ask(world.stage(token, records), 0)) == [0]
    chunk = attach_records.StagedChunk(attempt_id=1, chunk=0, records=3, length=len(records), crc=crc32c(records))
    topic = attach_records.AttachTopic(name=world.topic, partitions=[attach_records.AttachPartition(index=0, chunks=[chunk])])
    return cls(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, acks=-1, timeout_ms=5000, batch_token=token, topics=[topic]
    )


TRANSACTION_REQUESTS = {
    22: _init_producer_id,
    24: _add_partitions,
    25: _add_offsets,
    26: _end_txn,
    27: _write_markers,
    28: _txn_offset_commit,
    61: _describe_producers,
    65: _describe_transactions,
    66: plain(),
    20000: _stage_records,
    20001: _attach_records,
}
