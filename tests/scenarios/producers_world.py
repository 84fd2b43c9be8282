"""The world of the producer transcripts: one partition on a disk in memory, its producers, and what readers get.

    write PID/EPOCH SEQUENCE VALUE [VALUE ...] [txn] [v2] [guard=NAME]     a batch of a producer, in a transaction or not
    plain VALUE [VALUE ...]                       a batch without a producer
    ask NAME PID/EPOCH SEQUENCE                   what stands before asking the coordinator; NAME is for the write that follows
    mark PID/EPOCH commit|abort [coordinator=N] [v2]
    read [from=N] [uncommitted];   bounds;   find TIMESTAMP [uncommitted];   producers
    hold / release (the high watermark: records that are not synced);   restart (with a snapshot);   replay (without)
    isr N (replicas in sync; two are required where there are two);   resign (another broker leads);   lead;   set NAME=VALUE

Each new batch is a second younger than the one before; the same words again are the same bytes again. Output is one line for each answer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ottla.base.errors import ApiError
from ottla.base.types import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.verification import VerificationGuard
from ottla.storage.log import Log
from ottla.wire.records import CONTROL_COMMIT, Record, encode_batch, iter_batches, read_control_record, read_records
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.scenarios.transactions_world import Arguments, parse_identity

KEY = TopicPartition("t", 0)
READ_BYTES = 1 << 20


class World:
    def __init__(self) -> None:
        self.disk = MemDisk("/data")
        self.config = log_settings()
        self.lines: list[str] = []
        self.guards: dict[str, VerificationGuard | None] = {}
        self.sent: dict[tuple[str, ...], bytes] = {}
        self.leader_epoch = -1
        self.in_sync = [1]
        self.now_ms = 0
        self._open(was_clean=True)

    def run(self, command: str) -> list[str]:
        self.lines = []
        word, *rest = command.split()
        try:
            getattr(self, "do_" + word)(Arguments(rest))
        except ApiError as refusal:
            self.lines.append(refusal.code.name)
        return self.lines

    def _open(self, *, was_clean: bool) -> None:
        log = Log.open(self.disk, f"/data/{KEY}", KEY, self.config, now_ms=self.now_ms, was_clean=was_clean)
        self.flushes: list[int] = []
        self.is_holding = False
        self.partition = Partition(
            log, broker_id=1, is_flush_on_ack=True, request_flush=lambda _partition: self._flush(), is_verification_required=True
        )
        self._lead()

    def _lead(self) -> None:
        self.leader_epoch += 1
        self.partition.become_leader(
            leader_epoch=self.leader_epoch, partition_epoch=self.leader_epoch, replicas=self.in_sync, isr=self.in_sync, now_ms=self.now_ms
        )

    def _flush(self) -> None:
        if not self.is_holding:
            end = self.partition.log.log_end_offset
            self.partition.log.flush()
            self.partition.on_flushed(end)

    # Writing

    def _append(self, batch: bytes, is_v2: bool = False, guard: VerificationGuard | None = None) -> None:
        leader = self.partition.require_leading()
        result = leader.append(bytearray(batch), acks=-1, now_ms=self.now_ms, is_transaction_v2=is_v2, guard=guard)
        again = " again" if result.is_duplicate else ""
        self.lines.append(f"NONE at {result.base_offset}{again}")

    def _records(self, values: list[str]) -> list[Record]:
        self.now_ms += 1_000
        return [Record(0, self.now_ms, None, value.encode()) for value in values]

    def do_write(self, arguments: Arguments) -> None:
        (producer_id, epoch), sequence = parse_identity(arguments.words[0]), int(arguments.words[1])
        words = tuple(arguments.words)
        if words not in self.sent:
            self.sent[words] = encode_batch(
                self._records([word for word in words[2:] if word not in ("txn", "v2")]),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=arguments.has("txn"),
            )
        self._append(self.sent[words], arguments.has("v2"), self.guards.get(arguments.text("guard", "")))

    def do_plain(self, arguments: Arguments) -> None:
        self._append(encode_batch(self._records(arguments.words)))

    def do_ask(self, arguments: Arguments) -> None:
        name, identity, sequence = arguments.words
        producer_id, epoch = parse_identity(identity)
        leader = self.partition.require_leading()
        self.lines.append("is open" if leader.has_open_transaction(producer_id, epoch) else "must ask")
        self.guards[name] = leader.begin_verification(producer_id, epoch, int(sequence))

    def do_mark(self, arguments: Arguments) -> None:
        producer_id, epoch = parse_identity(arguments.words[0])
        version = 2 if arguments.has("v2") else 0
        offset = self.partition.require_leading().write_marker(
            producer_id, epoch, arguments.number("coordinator", 0), arguments.has("commit"), self.now_ms, version
        )
        self.lines.append("was there" if offset is None else f"NONE at {offset}")

    # Reading

    def do_read(self, arguments: Arguments) -> None:
        isolation = READ_UNCOMMITTED if arguments.has("uncommitted") else READ_COMMITTED
        read = self.partition.read(arguments.number("from", 0), READ_BYTES, isolation=isolation)
        data = memoryview(read.slice.read()) if read.slice is not None else memoryview(b"")
        for start, header in iter_batches(data):
            batch = data[start : start + header.size_bytes]
            if header.is_control:
                control: Any = read_control_record(batch)
                self.lines.append(f"{header.base_offset} {'commit' if control.kind == CONTROL_COMMIT else 'abort'} of {header.producer_id}")
            else:
                self.lines += [f"{record.offset} {bytes(record.value or b'').decode()}" for record in read_records(batch)]
        self.lines += [f"aborted: {producer_id} from {first}" for producer_id, first in read.aborted or ()]

    def do_bounds(self, arguments: Arguments) -> None:
        partition = self.partition
        self.lines.append(f"stable={partition.last_stable_offset} high={partition.high_watermark} end={partition.log.log_end_offset}")

    def do_find(self, arguments: Arguments) -> None:
        isolation = READ_UNCOMMITTED if arguments.has("uncommitted") else READ_COMMITTED
        timestamp, offset, _ = self.partition.list_offset(int(arguments.words[0]), isolation)
        self.lines.append(f"offset {offset} timestamp {timestamp}")

    def do_producers(self, arguments: Arguments) -> None:
        for entry in self.partition.log.producers.active():
            opened = f" open since {entry.transaction_first_offset}" if entry.transaction_first_offset >= 0 else ""
            self.lines.append(f"{entry.producer_id}/{entry.epoch} last={entry.last_sequence} by {entry.coordinator_epoch}{opened}")

    # The world

    def do_hold(self, arguments: Arguments) -> None:
        self.is_holding = True

    def do_release(self, arguments: Arguments) -> None:
        self.is_holding = False
        self._flush()

    def do_restart(self, arguments: Arguments) -> None:
        self.partition.log.close(clean=True)
        self._open(was_clean=True)

    def do_replay(self, arguments: Arguments) -> None:
        self._open(was_clean=False)

    def do_isr(self, arguments: Arguments) -> None:
        self.config = dataclasses.replace(self.config, min_insync_replicas=2)
        self.partition.log.config = self.config
        self.in_sync = list(range(1, 1 + int(arguments.words[0])))
        self.leader_epoch += 1
        self.partition.become_leader(
            leader_epoch=self.leader_epoch, partition_epoch=self.leader_epoch, replicas=[1, 2], isr=self.in_sync, now_ms=self.now_ms
        )

    def do_resign(self, arguments: Arguments) -> None:
        self.leader_epoch += 1
        self.partition.become_follower(
            leader_id=2, leader_epoch=self.leader_epoch, partition_epoch=self.leader_epoch, replicas=[1, 2], isr=[1, 2]
        )

    def do_lead(self, arguments: Arguments) -> None:
        self._lead()
