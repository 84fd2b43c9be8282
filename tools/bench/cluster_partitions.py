"""Compares three brokers with thousands of partitions with three of Apache Kafka 3.9.1 on the same ZooKeeper, alternately, in one run.

usage: python -m tools.bench.cluster_partitions [--partitions 1,100,2000] [--rounds 3] [--without-kafka] [--losses idle,...]

For each number of partitions (three replicas each) it measures round trips with acks=all. With the largest number it also measures: the CPU
of idle brokers; the time without an acknowledgement when a leader is moved (a preferred election); the same time when the host of a leader
is lost (its process is suspended, so that no connection is closed or refused); and the time from kill -9 of the controller until every
partition has a running leader, and until a topic can be created.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.bench.brokers import cpu_seconds_of
from tools.bench.cluster import BROKERS, SESSION_MS, MeasuredCluster, Writer, running_clusters
from tools.bench.loads import LOADS
from tools.bench.report import header, machine, number

ROUND_TRIP = "round trip 100 B, acks=all"
IDLE_SECONDS, SETTLE_SECONDS = 20.0, 5.0
WAIT_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.02
IMPATIENT = {"socket.timeout.ms": 1_000, "topic.metadata.refresh.interval.ms": 500}
"""Options of a producer that waits at most a second for a response. With librdkafka's default of a minute, this timeout would be all that
is measured if a host does not answer.
"""
LOSSES = ("idle", "moved", "controller", "host")
Figures = dict[str, list[float]]
"""The figures of each cluster, one per round."""


def wait_for(is_true: Callable[[], bool], what: str) -> float:
    """Waits until `is_true()`, and returns the seconds. Raises RuntimeError after `WAIT_SECONDS_MAX`."""
    began = time.monotonic()
    while not is_true():
        if time.monotonic() - began > WAIT_SECONDS_MAX:
            raise RuntimeError(f"{what}: not within {WAIT_SECONDS_MAX:g} s")
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - began


def is_whole(admin: AdminClient) -> bool:
    """Whether every partition has a leader, and all its replicas are in sync."""
    try:
        topics = admin.list_topics(timeout=10).topics.values()
    except KafkaException:
        return False
    return all(part.leader > 0 and len(part.isrs) == len(part.replicas) for topic in topics for part in topic.partitions.values())


def fill(cluster: MeasuredCluster, count: int) -> None:
    """Creates partitions until there are `count` - 1, because the benchmark creates one more. Waits until all are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    present = sum(len(topic.partitions) for topic in admin.list_topics(timeout=30).topics.values())
    if count - 1 > present:
        name = f"filler-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(name, count - 1 - present, BROKERS)], request_timeout=WAIT_SECONDS_MAX)[name].result(WAIT_SECONDS_MAX)
    wait_for(lambda: is_whole(admin), f"{count} partitions of {cluster.name} are in sync")
    time.sleep(SETTLE_SECONDS)


def round_trips(clusters: Sequence[MeasuredCluster], count: int, rounds: int, scale: float) -> None:
    for cluster in clusters:
        fill(cluster, count)
    found = [{cluster.name: LOADS[ROUND_TRIP](cluster, scale) for cluster in clusters} for _ in range(rounds)]
    for figure in next(iter(found[0].values())):
        print_row(f"{ROUND_TRIP}, {count:,} partitions", figure, {name: [one[name][figure] for one in found] for name in found[0]})


def idle_cpu(cluster: MeasuredCluster) -> float:
    """Returns the percentage of a core that the busiest broker takes while no client sends requests."""
    before = {broker_id: cpu_seconds_of(pid) for broker_id, pid in cluster.pids.items()}
    time.sleep(IDLE_SECONDS)
    return max(cpu_seconds_of(pid) - before[broker_id] for broker_id, pid in cluster.pids.items()) / IDLE_SECONDS * 100


def come_back(cluster: MeasuredCluster, broker_id: int) -> None:
    cluster.start_again(broker_id)
    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    wait_for(lambda: is_whole(admin), f"broker {broker_id} of {cluster.name} is back")
    time.sleep(SETTLE_SECONDS)


def moved(cluster: MeasuredCluster) -> float:
    """Returns the milliseconds without an acknowledgement when the preferred replica is elected."""
    writer = Writer(cluster)
    time.sleep(2)
    preferred = writer.leader()
    os.kill(cluster.pids[preferred], signal.SIGTERM)
    come_back(cluster, preferred)
    assert writer.leader() != preferred
    elected: list[object] = []

    def elect() -> None:
        future = writer.admin.elect_leaders(ElectionType.PREFERRED, [Place(writer.topic, 0)])
        elected.append(future.result(30))

    seconds = writer.silence(elect)
    assert writer.leader() == preferred, elected
    return seconds * 1000


def host_lost(cluster: MeasuredCluster) -> float:
    """Returns the seconds without an acknowledgement when the leader's host stops answering."""
    writer = Writer(cluster, **IMPATIENT)
    time.sleep(2)
    leader = writer.leader()
    pid = cluster.pids[leader]
    try:
        return writer.silence(lambda: os.kill(pid, signal.SIGSTOP))
    finally:
        os.kill(pid, signal.SIGKILL)
        come_back(cluster, leader)


def controller_lost(cluster: MeasuredCluster) -> tuple[float, float]:
    """Kills the controller with -9. Returns the seconds until every partition has a running leader, and until a topic can be created."""
    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    victim = int(admin.list_topics(timeout=30).controller_id)
    survivors = [address for address, broker in zip(cluster.address.split(","), sorted(cluster.pids), strict=True) if broker != victim]
    admin = AdminClient({"bootstrap.servers": ",".join(survivors), "log_level": 0})
    admin.list_topics(timeout=30)
    began = time.monotonic()
    os.kill(cluster.pids[victim], signal.SIGKILL)

    def are_led() -> bool:
        try:
            topics = admin.list_topics(timeout=2).topics.values()
        except KafkaException:
            return False
        return all(part.leader not in (-1, victim) for topic in topics for part in topic.partitions.values())

    def is_created() -> bool:
        name = f"after-{uuid.uuid4().hex[:8]}"
        try:
            admin.create_topics([NewTopic(name, 1, BROKERS - 1)], operation_timeout=1)[name].result(10)
        except KafkaException:
            return False
        return True

    wait_for(are_led, "leaders after the controller was killed")
    led = time.monotonic() - began
    wait_for(is_created, "a topic after the controller was killed")
    created = time.monotonic() - began
    come_back(cluster, victim)
    return led, created


def losses(clusters: Sequence[MeasuredCluster], count: int, rounds: int, asked: Sequence[str]) -> None:
    if "idle" in asked:
        print_row(f"idle broker, {count:,} partitions", "% of a core", {cluster.name: [idle_cpu(cluster)] for cluster in clusters})
    if "moved" in asked:
        print_row("leader moved (preferred election)", "ms without an acknowledgement", in_turn(clusters, rounds, moved))
    if "controller" in asked:
        lost = [{cluster.name: controller_lost(cluster) for cluster in clusters} for _ in range(rounds)]
        for index, what in enumerate(("s until all partitions are led", "s until a topic is created")):
            found = {name: [one[name][index] for one in lost] for name in lost[0]}
            print_row(f"kill -9 of the controller, {count:,} partitions", what, found)
    if "host" in asked:
        print_row("host of the leader lost", "s without an acknowledgement", in_turn(clusters, rounds, host_lost))


def in_turn(clusters: Sequence[MeasuredCluster], rounds: int, measure: Callable[[MeasuredCluster], float]) -> Figures:
    found: Figures = {cluster.name: [] for cluster in clusters}
    for _ in range(rounds):
        for cluster in clusters:
            found[cluster.name].append(measure(cluster))
    return found


def print_row(what: str, figure: str, found: Figures) -> None:
    medians = [statistics.median(values) for values in found.values()]
    ratio = f" | {medians[0] / medians[1]:.2f}" if len(medians) == 2 else ""
    print(f"| {what} | {figure} | {' | '.join(map(number, medians))}{ratio} |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="1,100,2000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--losses", default=",".join(LOSSES), help="what is measured after the round trips; none if it is empty")
    args = parser.parse_args(argv)
    print(f"{machine()}; three brokers, three replicas, min.insync.replicas=2, ZooKeeper session {SESSION_MS} ms; {args.rounds} rounds\n")
    counts = [int(count) for count in args.partitions.split(",")]
    with running_clusters(has_kafka=not args.without_kafka) as clusters:
        print(header([cluster.name for cluster in clusters]), flush=True)
        for count in counts:
            round_trips(clusters, count, args.rounds, args.scale)
        losses(clusters, counts[-1], args.rounds, args.losses.split(","))
    return 0


if __name__ == "__main__":
    sys.exit(main())
