"""Counts the work of requests to a coordinator, as `write_path.py` does: calls, calls of builtins, and instructions of Python.

usage: python -m tools.bench.coordinator_path [--requests 300] [--functions 0]

One broker, whose internal topics have one replica. A client sends one request at a time: Heartbeat of the only member of a classic group,
OffsetCommit of one partition, and transactions of AddPartitionsToTxn and EndTxn.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.client.addresses import Address
from ottla.client.blocking.connection import BlockingConnection
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tools.bench.brokers import launch
from tools.bench.write_path import Counts, WatchedBroker, count, report

TOPIC, GROUP, TRANSACTIONAL_ID = "coordinated", "group", "transactional-id"
RETRIED = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
RETRIES_MAX = 10_000


class Coordinated:
    """A client of the broker's coordinators: the only member of a group, and a transactional producer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = BlockingConnection(Address(host, int(port))).open()
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        self._connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        for key, kind in ((GROUP, 0), (TRANSACTIONAL_ID, 1)):
            self._ask(FindCoordinatorRequest(key=key, key_type=kind), 2)
        protocol = JoinGroupRequestProtocol(name="range")
        join = JoinGroupRequest(group_id=GROUP, session_timeout_ms=60_000, protocol_type="consumer", protocols=[protocol])
        joined = self._ask(join, 2)
        self._generation, self._member = joined.generation_id, joined.member_id
        assignments = [SyncGroupRequestAssignment(member_id=self._member, assignment=b"")]
        self._ask(SyncGroupRequest(group_id=GROUP, generation_id=self._generation, member_id=self._member, assignments=assignments), 3)
        first = self._ask(InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000), 3)
        self._producer = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}

    def heartbeat(self) -> None:
        self._ask(HeartbeatRequest(group_id=GROUP, generation_id=self._generation, member_id=self._member), 4)

    def commit(self) -> None:
        committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])]
        body = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=self._generation, member_id=self._member, topics=topics
        )
        self._ask(body, 8)

    def add_partition(self) -> None:
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
        body = AddPartitionsToTxnRequest(v3_and_below_transactional_id=TRANSACTIONAL_ID, v3_and_below_topics=topics)
        body.v3_and_below_producer_id, body.v3_and_below_producer_epoch = self._producer["producer_id"], self._producer["producer_epoch"]
        self._ask(body, 3)

    def run_transaction(self) -> None:
        self.add_partition()
        self._ask(EndTxnRequest(transactional_id=TRANSACTIONAL_ID, committed=True, **self._producer), 3)

    def _ask(self, body: Any, version: int) -> Any:
        for _ in range(RETRIES_MAX):
            answer = self._connection.request(body, version=version)
            code = code_of(answer)
            if code not in RETRIED:
                break
        if code:
            raise RuntimeError(f"{type(body).__name__} was refused: {code.name}")
        return answer


def code_of(answer: Any) -> ErrorCode:
    """Returns the error of an answer, or of its only partition."""
    if hasattr(answer, "topics"):
        return ErrorCode(answer.topics[0].partitions[0].error_code)
    if hasattr(answer, "results_by_topic_v3_and_below"):
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    return ErrorCode(answer.error_code)


def measure(requests: int) -> dict[str, Counts]:
    """Returns the work of one request, by what was measured."""
    with tempfile.TemporaryDirectory(prefix="ottla-coordinator-path-") as home:
        folder, file = str(Path(home) / "broker"), Path(home) / "counts.json"
        command = [sys.executable, "-m", "tools.bench.path_counter", str(file), "start", "--data-dir", folder, "--port", "0"]
        process = launch("ottla", [*command, "--set", "group.initial.rebalance.delay.ms=0", "--log-level", "warning"], folder)
        try:
            broker, client = WatchedBroker(process, file), Coordinated(process.address)
            asked: dict[str, Callable[[], None]] = {
                "Heartbeat": client.heartbeat,
                "OffsetCommit of one partition": client.commit,
                "AddPartitionsToTxn and EndTxn": client.run_transaction,
            }
            found = {name: count([broker], ask, requests)[0] for name, ask in asked.items()}
            client.add_partition()
            found["AddPartitionsToTxn of a partition that the transaction has"] = count([broker], client.add_partition, requests)[0]
            return found
        finally:
            process.stop()


if __name__ == "__main__":
    sys.exit(report(None, __doc__, measure))
