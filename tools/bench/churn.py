"""Creates and deletes everything that clients can create and delete, repeatedly and with new names, and measures the broker's memory.

A round uses a connection with its own client id; a topic with records, a setting and a quota; a fetch session; offsets; a classic group, a
consumer group and a share group, each with a member that joins and leaves. Then it deletes all of them. Clients cannot delete transactional
ids (the broker forgets them after `transactional.id.expiration.ms`), so their number is fixed.

usage: python -m tools.bench.churn [seconds, 900 by default]

It prints the broker's memory every ten seconds. The exit code is 1 if the memory at the end exceeds its value after the second minute by
more than 5 MiB.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.wire.framing import load
from ottla.wire.messages import alter_client_quotas as quotas
from ottla.wire.messages import (
    create_topics,
    delete_topics,
    fetch,
    incremental_alter_configs,
    join_group,
    leave_group,
    offset_commit,
    produce,
)
from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import batch
from tests.clients.wire_client import WireClient
from tools.bench.report import number

MIB = 1 << 20
SECONDS = 900
SAMPLE_SECONDS = 10
SETTLED_SECONDS = 120
GROWTH_MIB_MAX = 5
TRANSACTIONAL_IDS = 50
QUICK = (
    "file.delete.delay.ms=1000", "group.consumer.session.timeout.ms=8000", "group.consumer.min.session.timeout.ms=1000",
    "group.share.session.timeout.ms=8000", "group.share.min.session.timeout.ms=1000", "group.consumer.min.heartbeat.interval.ms=100",
    "group.min.session.timeout.ms=1000", "group.initial.rebalance.delay.ms=0", "producer.id.expiration.ms=2000",
    "producer.id.expiration.check.interval.ms=500", "offsets.retention.check.interval.ms=86400000",
)  # fmt: skip
"""Data that a broker keeps for a time after deletion are kept for seconds here, so that the memory shows leaks. The check for expired
offsets does not run, because it also removes empty groups, and each group must exist when its round deletes it.
"""
AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.CONCURRENT_TRANSACTIONS,
}  # fmt: skip


class Round:
    """One round, with names that have not been used before."""

    def __init__(self, port: int, count: int) -> None:
        self.name = f"churn-{count}"
        self.count = count
        self.client = WireClient(port, timeout=60, client_id=self.name)

    def run(self) -> None:
        with self.client:
            self.make_topic()
            self.use_topic()
            self.use_classic_group()
            self.use_new_groups()
            self.use_transaction()
            self.drop()

    def make_topic(self) -> None:
        topic = create_topics.CreatableTopic(name=self.name, num_partitions=1, replication_factor=1)
        self.client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        setting = incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="100000")
        resource = incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=self.name, configs=[setting])
        self.client.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        self.set_quota(is_removed=False)

    def set_quota(self, *, is_removed: bool) -> None:
        entity = [quotas.EntityData(entity_type="client-id", entity_name=self.name)]
        operation = quotas.OpData(key="producer_byte_rate", value=1e9, remove=is_removed)
        self.client.ask(quotas.AlterClientQuotasRequest(entries=[quotas.EntryData(entity=entity, ops=[operation])]), 1)

    def use_topic(self) -> None:
        records = memoryview(batch(producer_id=10_000_000 + self.count, producer_epoch=0, base_sequence=0))
        data = produce.PartitionProduceData(index=0, records=records)
        topic = produce.TopicProduceData(name=self.name, partition_data=[data])
        request = produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        self.until_done(lambda: self.client.ask(request, 9).responses[0].partition_responses[0].error_code)
        wanted = fetch.FetchTopic(topic=self.name, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        self.client.ask(fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[wanted]), 12)

    def use_classic_group(self) -> None:
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(200))
        joining = join_group.JoinGroupRequest(
            group_id=self.name, session_timeout_ms=1000, rebalance_timeout_ms=1000, protocol_type="consumer", protocols=[protocol]
        )
        joined = self.until_done(lambda: self.client.ask(joining, 3))
        self.client.ask(load(14)[0](group_id=self.name, generation_id=joined.generation_id, member_id=joined.member_id), 2)
        offset = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [offset_commit.OffsetCommitRequestTopic(name=self.name, partitions=[offset])]
        self.client.ask(
            offset_commit.OffsetCommitRequest(
                group_id=self.name, generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id, topics=topics
            ), 8,
        )  # fmt: skip
        self.client.ask(leave_group.LeaveGroupRequest(group_id=self.name, member_id=joined.member_id), 1)

    def use_new_groups(self) -> None:
        """Joins and leaves a consumer group and a share group."""
        for key, version, group_id in ((68, 0, f"{self.name}-consumer"), (76, 1, f"{self.name}-share")):
            beat: dict[str, Any] = {"group_id": group_id, "member_id": "m", "subscribed_topic_names": [self.name]}
            if key == 68:
                beat |= {"rebalance_timeout_ms": 1000, "topic_partitions": []}
            joining = load(key)[0](member_epoch=0, **beat)
            self.until_done(lambda joining=joining, version=version: self.client.ask(joining, version))  # type: ignore[misc]
            self.client.ask(load(key)[0](group_id=group_id, member_id="m", member_epoch=-1), version)

    def use_transaction(self) -> None:
        name = f"id-{self.count % TRANSACTIONAL_IDS}"
        begin = load(22)[0](transactional_id=name, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1)
        self.until_done(lambda: self.client.ask(begin, 4))

    def drop(self) -> None:
        self.set_quota(is_removed=True)
        names = [self.name, f"{self.name}-consumer", f"{self.name}-share"]
        for name in names:
            deletion = load(42)[0](groups_names=[name])
            self.until_done(lambda deletion=deletion: self.client.ask(deletion, 2).results[0].error_code)  # type: ignore[misc]
        self.client.ask(delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=self.name)], timeout_ms=30_000), 6)

    def until_done(self, ask: Callable[[], Any]) -> Any:
        """Sends a request until the response is not a retriable error."""
        deadline = time.monotonic() + 60
        while True:
            answer = ask()
            code = answer if isinstance(answer, int) else answer.error_code
            if ErrorCode(code) not in AGAIN:
                assert not code, f"{ErrorCode(code).name} in {self.name}"
                return answer
            assert time.monotonic() < deadline, f"{ErrorCode(code).name} for a minute"
            time.sleep(0.02)


def churn(broker: BrokerProcess, seconds: float) -> Iterator[tuple[float, int, float]]:
    """Yields (seconds, rounds so far, MiB of the broker) every ten seconds."""
    began, sampled, count = time.monotonic(), 0.0, 0
    with WireClient(broker.port) as client:
        for kind in (0, 1):
            find = load(10)[0](key_type=kind, coordinator_keys=["churn"])
            client.ask(find, 4)
    while (elapsed := time.monotonic() - began) < seconds:
        if elapsed - sampled >= min(SAMPLE_SECONDS, seconds / 8):
            sampled = elapsed
            yield elapsed, count, broker.rss_bytes() / MIB
        Round(broker.port, count).run()
        count += 1
    yield elapsed, count, broker.rss_bytes() / MIB


def main(argv: Sequence[str]) -> int:
    seconds = float(argv[0]) if argv else SECONDS
    samples = []
    with tempfile.TemporaryDirectory(prefix="ottla-churn-") as folder:
        broker = BrokerProcess(Path(folder), (*SETTINGS, *QUICK)).start()
        try:
            print("| seconds | rounds | memory, MiB |\n| --- | --- | --- |")
            for elapsed, rounds, used in churn(broker, seconds):
                samples.append((elapsed, used))
                print(f"| {elapsed:.0f} | {rounds:,} | {number(used)} |", flush=True)
        finally:
            broker.stop()
    growth = growth_mib(samples, min(SETTLED_SECONDS, seconds / 3))
    print(f"\n{number(growth)} MiB more than when it had settled")
    return int(growth > GROWTH_MIB_MAX)


def growth_mib(samples: Sequence[tuple[float, float]], settled_seconds: float) -> float:
    """Returns the last sample less the first one after `settled_seconds`."""
    settled = next((used for elapsed, used in samples if elapsed >= settled_seconds), samples[-1][1])
    return samples[-1][1] - settled


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
