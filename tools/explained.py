"""Makes the data and the pictures of the pages "Kafka explained" from real runs: `python -m tools.explained [NAME ...]`, into docs/assets.

`record` and `transactions` show the same bytes and offsets in every run, and `tests/docs/test_explained.py` makes them again. `replicas`
and `groups` show times: a cluster with a hanging follower and a killed leader, and a group whose members join and are killed, once for
each protocol.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client import LATEST, connect
from ottla.client import TopicPartition as OwnPartition
from ottla.client.blocking.cluster import Cluster as Client
from ottla.client.blocking.producer import Producer as OwnProducer
from ottla.client.core.own_apis import describe_frames
from ottla.client.errors import ClientError
from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster, ClusterBroker
from ottla.wire.apis import KEYS
from ottla.wire.records import CONTROL_COMMIT
from tools.explained_pictures import (
    GroupRun,
    Point,
    ReplicaRun,
    TransactionStep,
    draw_groups,
    draw_record,
    draw_replicas,
    draw_transactions,
)  # fmt: skip

ASSETS = Path(__file__).resolve().parents[1] / "docs" / "assets"
TIMESTAMP_MS = 1356998400000
"""2013-01-01, the timestamp of the page's records."""
BROKER_ID = 0
"""The id of a single broker of `ottla.testing`."""
CRC_END = 21
"""Offset in a batch behind its CRC. The leader writes only before the CRC."""
LOOK_SECONDS = 0.02
RECORDS_PER_SECOND = 100
LAG_MS = 2000
SILENCE_SECONDS_MAX = 1.5
"""Longest time without a high watermark: a killed leader is replaced within a second."""
SESSION_MS = 6000
WORK_SECONDS = 0.4
"""What a member of the group does between two polls."""
GROUP_TOPIC, GROUP_PARTITIONS = "flights", 6


def wait_for(condition: Callable[[], bool], what: str, seconds_max: float = 60) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"explained: {what} did not happen within {seconds_max:g} s")
        time.sleep(LOOK_SECONDS)


# The path of a record


def record_copies() -> list[tuple[str, bytes]]:
    """Returns the second batch of a partition as it is in the Produce request, in the log file and in the Fetch answer."""
    with Broker(topics=["orders"]) as broker, Client(broker.bootstrap_server, timeout_s=30, with_extensions=True) as client:
        describe_frames(client, BROKER_ID)  # begins the recording
        for key, value in ((b"bob", b"bread"), (b"alice", b"apples")):
            with OwnProducer(client) as producer:
                producer.produce("orders", value, key, timestamp=TIMESTAMP_MS)
        broker.records("orders")
        pairs = describe_frames(client, BROKER_ID).pairs
        log = b"".join(path.read_bytes() for path in broker.data_dir.glob("orders-0/*.log"))
    first = 12 + struct.unpack_from(">i", log, 8)[0]
    stored = log[first:]
    produced = next(pair.request for pair in pairs if pair.api_key == KEYS["Produce"] and stored[CRC_END:] in (pair.request or b""))
    fetched = next(pair.response for pair in pairs if pair.api_key == KEYS["Fetch"] and stored[CRC_END:] in (pair.response or b""))
    sent, read = _batch_in(produced, stored), _batch_in(fetched, stored)
    return [("in the Produce request", sent), ("in the log file", stored), ("in the Fetch answer", read)]


def _batch_in(frame: bytes | None, stored: bytes) -> bytes:
    assert frame is not None
    start = frame.index(stored[CRC_END:]) - CRC_END
    return frame[start : start + len(stored)]


# A transaction


def transaction_steps() -> list[TransactionStep]:
    """Runs the program of docs/explained-transactions.md step by step."""
    steps: list[TransactionStep] = []
    with Broker(topics=["payments"]) as broker:
        owners: dict[int, str] = {}

        def begin(name: str, *values: str) -> Producer:
            producer = Producer({"bootstrap.servers": broker.bootstrap_server, "transactional.id": name, "log_level": 0})
            producer.init_transactions(30)
            producer.begin_transaction()
            for value in values:
                producer.produce("payments", value)
            producer.flush(30)
            return producer

        def note(title: str, name: str, *, ended: int) -> None:
            """Notes the contents of the log when it has the markers of all ended transactions. It waits for them, because a commit is
            answered before its markers are written.
            """
            wait_for(lambda: _step(broker, title, owners, name).marker_count == ended, "the marker of a transaction")
            steps.append(_step(broker, title, owners, name))

        one = begin("shop-1", "apples", "bread")
        note("shop-1 has written two records", "shop-1", ended=0)
        one.commit_transaction(30)
        note("shop-1 has committed", "shop-1", ended=1)
        begin("shop-2", "cheese").abort_transaction(30)
        note("shop-2 has written a record and aborted", "shop-2", ended=2)
        three = begin("shop-3", "dates")
        note("shop-3 has written a record", "shop-3", ended=2)
        begin("shop-4", "eggs").commit_transaction(30)
        note("shop-4 has written a record and committed", "shop-4", ended=3)
        three.abort_transaction(30)
        note("shop-3 has aborted", "shop-3", ended=4)
    return steps


def _step(broker: Broker, title: str, owners: dict[int, str], newest: str) -> TransactionStep:
    """Reads the log. A producer id that was not seen before belongs to `newest`."""
    partition = OwnPartition("payments", 0)
    with connect(broker.bootstrap_server) as client:
        stable = client.list_offsets({partition: LATEST})[partition].offset
        end = client.list_offsets({partition: LATEST}, isolation="read_uncommitted")[partition].offset
        entries: dict[int, tuple[str, str]] = {}
        for fetched in client.read(partition, 0, end, isolation="read_uncommitted"):
            for header, batch in fetched.batches:
                name = owners.setdefault(header.producer_id, newest)
                for record in fetched._replace(batches=((header, batch),)).records():
                    entries[record.offset] = (name, (record.value or b"").decode())
            for header, marker in fetched.markers:
                entries[header.base_offset] = (owners[header.producer_id], "COMMIT" if marker.kind == CONTROL_COMMIT else "ABORT")
    return TransactionStep(title, [entry for _, entry in sorted(entries.items())], stable)


# Replicas


def log_end(directory: Path) -> int:
    """Returns the log end offset that is in the files of a partition; a batch that is only partly written does not count."""
    end = 0
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position + 61 <= len(data):
            base_offset, length = struct.unpack_from(">qi", data, position)
            if length <= 0 or position + 12 + length > len(data):
                break
            end = base_offset + struct.unpack_from(">i", data, position + 23)[0] + 1
            position += 12 + length
    return end


class Watch(threading.Thread):
    """Calls a function again and again until `stop`, and keeps its results that are not None with their times."""

    def __init__(self, look: Callable[[], Any], began: float) -> None:
        super().__init__(daemon=True)
        self._look = look
        self._began = began
        self._is_over = threading.Event()
        self.seen: list[tuple[float, Any]] = []
        self.start()

    def run(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            found = self._look()
            if found is not None:
                self.seen.append((time.monotonic() - self._began, found))

    def stop(self) -> None:
        self._is_over.set()
        self.join(30)


class ReplicaWatch:
    """Observes one partition while faults happen: the ends of its logs, the high watermark, the leader and the in-sync replicas."""

    def __init__(self, cluster: Cluster, calm: ClusterBroker, topic: str) -> None:
        """`calm` is a broker without faults."""
        self.began = time.monotonic()
        quick: dict[str, Any] = {
            "bootstrap.servers": cluster.direct_server, "log_level": 0, "topic.metadata.refresh.fast.interval.ms": 50,
            "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100,
        }  # fmt: skip
        self._reader, self._admin = (connect(calm.address, timeout_s=0.5) for _ in range(2))
        self._topic = topic
        self._published = 0
        self.faults: list[tuple[float, str]] = []
        self._producer = Producer({
            **quick, "acks": "all", "linger.ms": 0, "enable.idempotence": False, "max.in.flight.requests.per.connection": 100_000,
        })  # fmt: skip
        self.ends = {
            broker.broker_id: Watch(lambda home=broker.process.data_dir / f"{topic}-0": log_end(home), self.began)  # type: ignore[misc]
            for broker in cluster.brokers
        }
        self.high_watermark = Watch(self._high_watermark, self.began)
        self.states = Watch(self._state, self.began)
        self._publisher = Watch(self._publish, self.began)

    def now(self) -> float:
        return time.monotonic() - self.began

    def _publish(self) -> None:
        while self._published < self.now() * RECORDS_PER_SECOND:
            self._producer.produce(self._topic, b"%d" % self._published, partition=0)
            self._published += 1
        self._producer.poll(0)

    def _high_watermark(self) -> int | None:
        partition = OwnPartition(self._topic, 0)
        try:
            return self._reader.list_offsets({partition: LATEST}, isolation="read_uncommitted")[partition].offset
        except ClientError:
            return None

    def _state(self) -> tuple[int, tuple[int, ...]] | None:
        try:
            (partition,) = self._admin.describe_topic(self._topic).partitions
        except ClientError:
            return None
        return partition.leader, tuple(sorted(partition.in_sync_replicas))

    def in_sync(self) -> tuple[int, ...]:
        return self.states.seen[-1][1][1] if self.states.seen else ()

    def note(self, what: str) -> None:
        self.faults.append((self.now(), what))

    def stop(self) -> ReplicaRun:
        self._publisher.stop()
        seconds = self.now()
        for watch in (*self.ends.values(), self.high_watermark, self.states):
            watch.stop()
        for client in (self._reader, self._admin):
            client.close()
        moments = [0.0, *(moment for moment, _ in self.high_watermark.seen), seconds]
        silence = max(after - before for before, after in pairwise(moments))
        if silence > SILENCE_SECONDS_MAX:
            sys.exit(f"explained: no high watermark for {silence:.1f} s, so the picture would not be true; run it again")
        states = [(moment, *state) for moment, state in self.states.seen]
        changes = [state for before, state in zip([None, *states], states, strict=False) if before is None or before[1:] != state[1:]]
        ends: dict[int, list[Point]] = {number: watch.seen for number, watch in self.ends.items()}
        return ReplicaRun(ends, self.high_watermark.seen, changes, self.faults, seconds)


def replica_run() -> ReplicaRun:
    """Runs three replicas with a hanging follower and a killed leader. The controller is a broker without faults."""
    with Cluster(3, settings={"replica.lag.time.max.ms": str(LAG_MS), "min.insync.replicas": "2"}) as cluster:
        calm = cluster.controller()
        leader, follower = (broker for broker in cluster.brokers if broker is not calm)
        replicas = [broker.broker_id for broker in (leader, follower, calm)]
        admin = AdminClient({"bootstrap.servers": cluster.direct_server})
        admin.create_topics([NewTopic("orders", num_partitions=1, replica_assignment=[replicas])])["orders"].result(30)
        watch = ReplicaWatch(cluster, calm, "orders")
        wait_for(lambda: len(watch.in_sync()) == 3, "three replicas in sync")
        _cause_faults(watch, leader, follower)
        return watch.stop()


def _cause_faults(watch: ReplicaWatch, leader: ClusterBroker, follower: ClusterBroker) -> None:
    time.sleep(1.5)
    watch.note(f"broker {follower.broker_id} hangs")
    follower.pause()
    wait_for(lambda: follower.broker_id not in watch.in_sync(), "the removal of the hanging follower")
    time.sleep(1)
    watch.note("continues")
    follower.resume()
    wait_for(lambda: len(watch.in_sync()) == 3, "three replicas in sync")
    time.sleep(1.5)
    watch.note(f"broker {leader.broker_id} is killed")
    leader.kill()
    time.sleep(2)
    watch.note("is started")
    leader.start()
    wait_for(lambda: len(watch.in_sync()) == 3, "three replicas in sync")
    time.sleep(1)


# A rebalance


def member(bootstrap: str, protocol: str, name: str) -> None:
    """Reads as a member of the group, and prints a line for each change of its partitions."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": f"readers-{protocol}", "client.id": name, "log_level": 0}
    if protocol == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {"partition.assignment.strategy": "range", "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
    consumer = Consumer(settings)

    def reporter(what: str) -> Callable[[Any, list[TopicPartition]], None]:
        def report(_: Any, partitions: list[TopicPartition]) -> None:
            numbers = [partition.partition for partition in partitions]
            print(json.dumps({"at": time.monotonic(), "member": name, "what": what, "partitions": numbers}), flush=True)

        return report

    consumer.subscribe([GROUP_TOPIC], on_assign=reporter("gets"), on_revoke=reporter("gives"), on_lost=reporter("gives"))
    while True:
        consumer.poll(0.1)
        time.sleep(WORK_SECONDS)


class Member:
    """A member as a process, and its reports."""

    def __init__(self, bootstrap: str, protocol: str, name: str) -> None:
        self.name = name
        self.reports: list[dict[str, Any]] = []
        words = [sys.executable, "-m", "tools.explained", "--member", bootstrap, protocol, name]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        self.reports.extend(json.loads(line) for line in self.process.stdout)

    def owned(self) -> set[int]:
        found: set[int] = set()
        for line in list(self.reports):
            found = found | set(line["partitions"]) if line["what"] == "gets" else found - set(line["partitions"])
        return found


def group_run(protocol: str, title: str) -> GroupRun:
    """Runs a group: three members join one after the other, and the first one is killed."""
    settings = {
        "group.consumer.session.timeout.ms": SESSION_MS, "group.consumer.min.session.timeout.ms": SESSION_MS,
        "group.consumer.heartbeat.interval.ms": 300, "group.consumer.min.heartbeat.interval.ms": 300, "group.initial.rebalance.delay.ms": 0,
    }  # fmt: skip
    with Broker(topics=[f"{GROUP_TOPIC}:{GROUP_PARTITIONS}"], settings=settings) as broker:
        began = time.monotonic()
        events: list[tuple[float, str]] = []
        members: list[Member] = []

        def settled(count: int) -> bool:
            shares = [len(one.owned()) for one in members[-count:]]
            return sum(shares) == GROUP_PARTITIONS and min(shares) > 0

        for name in ("anna", "ben", "cleo"):
            events.append((time.monotonic() - began, f"{name} joins"))
            members.append(Member(broker.bootstrap_server, protocol, name))
            wait_for(lambda: settled(len(members)), f"an assignment with {name}")
            time.sleep(1.5)
        killed_at = time.monotonic()
        events.append((killed_at - began, "anna is killed"))
        members[0].process.kill()
        wait_for(lambda: settled(2), "an assignment without the killed member")
        time.sleep(1)
        ended_at = time.monotonic()
        for one in members:
            one.process.kill()
            one.process.wait()
    ends = [killed_at, ended_at, ended_at]
    owned = [span for one, end in zip(members, ends, strict=True) for span in _spans(one, began, end)]
    return GroupRun(title, owned, events, ended_at - began)


def _spans(one: Member, began: float, end: float) -> list[tuple[str, int, float, float]]:
    spans: list[tuple[str, int, float, float]] = []
    since: dict[int, float] = {}
    for line in [*one.reports, {"at": end, "what": "gives", "partitions": list(range(GROUP_PARTITIONS))}]:
        for partition in line["partitions"]:
            if line["what"] == "gets":
                since.setdefault(partition, line["at"])
            elif partition in since:
                spans.append((one.name, partition, since.pop(partition) - began, line["at"] - began))
    return spans


PICTURES: dict[str, Callable[[], str]] = {
    "record": lambda: draw_record(record_copies()),
    "replicas": lambda: draw_replicas(replica_run()),
    "transactions": lambda: draw_transactions(transaction_steps()),
    "groups": lambda: draw_groups([group_run("classic", "classic protocol, range"), group_run("consumer", "consumer protocol (KIP-848)")]),
}


def main(names: list[str]) -> None:
    for name in names or list(PICTURES):
        path = ASSETS / f"explained-{name}.svg"
        path.write_text(PICTURES[name](), encoding="utf-8")
        print(f"{path} {os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--member"]:
        member(*sys.argv[2:])
    else:
        main(sys.argv[1:])
