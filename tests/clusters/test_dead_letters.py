"""Dead letters in a cluster: the dead-letter topic's leader is another broker than the leader of the records, and both are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clients.dead_letters import DLQ, TOPIC, Rejecting, is_done, letter_count, letters, prepare_group
from tests.clusters.cluster import WAIT_SECONDS, Cluster
from tests.clusters.conftest import running

RECORDS = 600
REPLICAS = {TOPIC: [1, 2, 3], DLQ: [2, 3, 1]}
"""The first one leads."""
SETTINGS = {
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.max.delivery.count.limit": 25,
    "share.coordinator.state.topic.num.partitions": 3,
}


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("letters"), zookeeper, **SETTINGS)) as made:
        admin = made.admin()  # kept in a variable, because a client without references is closed
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        for name, replicas in REPLICAS.items():
            topic = NewTopic(name, 1, replica_assignment=[replicas], config=enabled if name == DLQ else {})
            admin.create_topics([topic])[name].result(WAIT_SECONDS)
            made.wait_until_healthy(name)
        yield made


def test_each_rejected_record_arrives_although_both_leaders_are_killed(cluster: Cluster) -> None:
    """Each rejected record is in the dead-letter topic although both leaders are killed. A record may be copied twice if a broker dies
    between the copy and the stored note about it, as KIP-1191 permits; no other record is copied twice.
    """
    assert [cluster.leader_of(name) for name in (TOPIC, DLQ)] == [1, 2]
    prepare_group(cluster.addresses, RECORDS, **{"share.delivery.count.limit": "25"})
    member = Rejecting(cluster.addresses)
    try:
        for number, name in enumerate((DLQ, TOPIC), 1):
            victim, goal = cluster.leader_of(name), RECORDS * number // 8
            copied = eventually(lambda: (count := letter_count(cluster.addresses)) > goal and count, WAIT_SECONDS)  # noqa: B023 - in this round
            assert copied < RECORDS // 2, "others are copied after the crash"
            cluster.brokers[victim].kill()
            eventually(lambda: cluster.leader_of(name) != victim, WAIT_SECONDS)  # noqa: B023 - called in this round
            cluster.brokers[victim].start()
            for topic in (TOPIC, DLQ):
                cluster.wait_until_healthy(topic)
        eventually(lambda: is_done(cluster.addresses), 2 * WAIT_SECONDS)
    finally:
        member.is_over = True
        member.thread.join()
    found = letters(cluster.addresses)
    copies = Counter(int(letter.headers["__dlq.errors.offset"]) for letter in found)
    assert set(copies) == set(range(0, RECORDS, 2))
    assert all(letter.value == b"v" + letter.headers["__dlq.errors.offset"].encode() for letter in found)
    doubled = sum(copies.values()) - len(copies)
    print(f"{doubled} copied again")
    assert doubled <= len(copies) // 2, "only copies in progress while a broker died"
