"""Each reason why a reader is behind, a client cannot write or a replica is not in sync, made on purpose and found with its evidence."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.analysis.why import (
    BAD,
    FINE,
    NOTE,
    UNKNOWN,
    Reason,
    _of_replica,
    _replica_lags,
    of_assignment,
    why_partition,
    why_reader,
    why_writer,
)
from ottla.base.acls import AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core import acl_admin, admin, group_admin, quota_admin
from ottla.client.core.group_admin import GroupDescription, GroupMember
from ottla.client.errors import KafkaError
from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster as ClusterOfBrokers
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic
from ottla.wire.messages.metadata import MetadataResponsePartition

SETTINGS = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_server) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic with one partition and ten records."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin.create_topic(cluster, name, partitions=1)
    write(cluster, name, 10)
    return name


def write(cluster: Cluster, topic: str, count: int) -> None:
    with Producer(cluster) as producer:
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush()


def commit(cluster: Cluster, group: str, topic: str, offset: int, member: Consumer | None = None) -> None:
    if member is None:
        assert not any(group_admin.commit_offsets(cluster, group, {TopicPartition(topic, 0): offset}).values())
    else:
        member.commit({TopicPartition(topic, 0): offset})


def causes(reasons: list[Reason]) -> list[str]:
    return [reason.cause for reason in reasons]


# A reader


def test_an_unknown_group_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        why_reader(cluster, "nothing")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_has_read_all(cluster: Cluster, topic: str) -> None:
    commit(cluster, f"{topic}-done", topic, 10)
    (reason,) = why_reader(cluster, f"{topic}-done")
    assert (reason.cause, reason.level) == ("no traffic", FINE)


def test_a_group_without_members(cluster: Cluster, topic: str) -> None:
    commit(cluster, f"{topic}-idle", topic, 4)
    (reason,) = why_reader(cluster, f"{topic}-idle")
    assert (reason.cause, reason.level) == ("no member", BAD) and "6 records wait" in reason.sentence


def test_an_open_transaction(cluster: Cluster, topic: str) -> None:
    with Producer(cluster, transactional_id=topic) as producer:
        producer.begin()
        producer.produce(topic, b"open", partition=0)
        producer.flush()
        commit(cluster, f"{topic}-held", topic, 10)
        (reason, idle) = why_reader(cluster, f"{topic}-held")
        commit(cluster, f"{topic}-far", topic, 2)
        assert causes(why_reader(cluster, f"{topic}-far")) == ["no member"], "it has not reached the transaction yet"
        producer.abort()
    assert reason.cause == "open transaction" and reason.subject == f"{topic}-0" and idle.cause == "no member"
    assert f"transactional id {topic}" in reason.evidence and reason.mend == f"ottla txn abort --transactional-id {topic}"


def test_records_that_were_deleted_and_an_offset_that_does_not_exist(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-late"
    commit(cluster, group, topic, 2)
    admin.delete_records(cluster, {TopicPartition(topic, 0): 5})
    found = why_reader(cluster, group)
    assert causes(found) == ["deleted records", "no member"]
    assert "3 records were deleted" in found[0].sentence and "--to-earliest --execute" in found[0].mend
    commit(cluster, group, topic, 99)
    assert causes(why_reader(cluster, group)) == ["offset beyond the end"]


@contextmanager
def member_behind(cluster: Cluster, group: str, topic: str) -> Iterator[Consumer]:
    """A member that reads the topic. The committed offset is 1."""
    commit(cluster, group, topic, 1)
    with Consumer(cluster, group_id=group, auto_offset_reset="earliest") as member:
        member.subscribe([topic])
        while not member.poll(1.0):
            pass
        yield member


def test_members_that_stand_still_are_slow_and_catch_up(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    with member_behind(cluster, group, topic) as member:
        (stopped,) = why_reader(cluster, group, wait=lambda seconds: None)
        assert stopped.cause == "stopped member" and "stuck at offset 1." in stopped.sentence and "-o 1 -n 1" in stopped.mend

        def a_little(seconds: float) -> None:
            commit(cluster, group, topic, 2, member)
            write(cluster, topic, 5)

        (slow,) = why_reader(cluster, group, wait=a_little)
        assert slow.cause == "slow member" and "1 record committed, 5 written; lag 13" in slow.evidence
        (fast,) = why_reader(cluster, group, wait=lambda seconds: commit(cluster, group, topic, 10, member), look_s=8)
        assert (fast.cause, fast.level) == ("catching up", FINE) and "in about 5 s" in fast.sentence
        client = group_admin.describe_group(cluster, group).members[0].client_id
        quota_admin.alter_quotas(cluster, ((quota_admin.CLIENT_ID, client),), changes={"consumer_byte_rate": 1_000_000})
        assert causes(why_reader(cluster, group, wait=lambda seconds: None)) == ["stopped member", "quota"]
        quota_admin.alter_quotas(cluster, ((quota_admin.CLIENT_ID, client),), changes={}, deletions=["consumer_byte_rate"])


def test_a_member_that_keeps_its_lag_never_catches_up(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    with member_behind(cluster, group, topic) as member:

        def as_much(seconds: float) -> None:
            commit(cluster, group, topic, 4, member)
            write(cluster, topic, 3)

        (constant,) = why_reader(cluster, group, wait=as_much)
        assert (constant.cause, constant.level) == ("constant lag", NOTE) and "3 records committed, 3 written; lag 9" in constant.evidence


def test_a_member_that_has_committed_nothing_has_not_read_all(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    with Consumer(cluster, group_id=group, auto_offset_reset="earliest") as member:
        member.subscribe([topic])
        while not member.poll(1.0):
            pass
        (nothing,) = why_reader(cluster, group, wait=lambda seconds: None)
        assert (nothing.cause, nothing.level, nothing.evidence) == ("nothing committed", NOTE, "first offset 0, end 10")
        (fast,) = why_reader(cluster, group, wait=lambda seconds: commit(cluster, group, topic, 5, member), look_s=8)
        assert fast.cause == "catching up" and "in about 8 s" in fast.sentence


def described(*assignments: int, state: str = "Stable") -> GroupDescription:
    places = (tuple(TopicPartition("t", 10 * number + each) for each in range(count)) for number, count in enumerate(assignments))
    members = tuple(GroupMember(f"m{number}", None, f"c{number}", "/host", place) for number, place in enumerate(places))
    return GroupDescription("g", "Classic", state, "consumer", "range", 0, members)


def test_assignments() -> None:
    assert of_assignment(described(2, 3), {}) == []
    (uneven,) = of_assignment(described(1, 4), {})
    assert uneven.cause == "uneven assignment" and "c1 at host has 4 partitions, c0 at host has 1." in uneven.sentence
    (alone,) = of_assignment(described(1, 1), {TopicPartition("t", 5): 7})
    assert (alone.cause, alone.level) == ("not assigned", NOTE)
    assert causes(of_assignment(described(0, state="PreparingRebalance"), {TopicPartition("t", 5): 7})) == ["rebalance"]


# A writer


def test_a_client_that_may_write(cluster: Cluster, topic: str) -> None:
    (reason,) = why_writer(cluster, topic)
    assert (reason.cause, reason.level) == ("nothing found", FINE)


def test_a_topic_that_does_not_exist(cluster: Cluster) -> None:
    (reason,) = why_writer(cluster, "nothing")
    assert (reason.cause, reason.mend) == ("no topic", "ottla topic create nothing")


def test_acls(cluster: Cluster, topic: str) -> None:
    def rule(permission: Permission) -> Binding:
        return Binding(Pattern(ResourceType.TOPIC, topic, PatternType.LITERAL), Rule("User:eve", "*", AclOperation.WRITE, permission))

    (lacking,) = why_writer(cluster, topic, user="eve")
    assert lacking.cause == "ACL" and lacking.mend == f"ottla acl add --allow-principal User:eve --producer --topic {topic}"
    acl_admin.create_acls(cluster, [rule(Permission.ALLOW)])
    assert causes(why_writer(cluster, topic, user="eve")) == ["nothing found"]
    acl_admin.create_acls(cluster, [rule(Permission.DENY)])
    (denied,) = why_writer(cluster, topic, user="eve")
    assert "forbids User:eve" in denied.sentence and "DENY WRITE for User:eve from host *" in denied.evidence


def test_full_and_failed_disks(cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1 << 30
    disks = [(100 * gib, gib // 2, 0), (100 * gib, 2 * gib, 0), (gib, gib // 2, 0), (100 * gib, -1, ErrorCode.KAFKA_STORAGE_ERROR)]
    found = [
        SimpleNamespace(log_dir=f"/{number}", total_bytes=total, usable_bytes=free, error_code=int(error), topics=[])
        for number, (total, free, error) in enumerate(disks)
    ]
    monkeypatch.setattr(admin, "describe_log_dirs", lambda *_: found)
    reasons = [reason for reason in why_writer(cluster, topic) if reason.level == BAD]
    causes = [(reason.subject, reason.cause, reason.evidence) for reason in reasons]
    assert causes == [
        ("broker 0, /0", "full disk", "536,870,912 of 107,374,182,400 bytes are free"),
        ("broker 0, /3", "failed disk", "KAFKA_STORAGE_ERROR"),
    ]


def test_what_brokers_do_not_answer_is_not_fine(cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")

    monkeypatch.setattr(acl_admin, "describe_acls", refused)
    unknown, found = why_writer(cluster, topic, user="eve")
    assert (unknown.level, found.level) == (UNKNOWN, FINE) and "ACL" not in found.sentence
    monkeypatch.undo()
    monkeypatch.setattr(admin, "describe_configs", lambda *_: {topic: ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")})
    unknown, found = why_writer(cluster, topic)
    assert unknown.level == UNKNOWN and "enough replicas" not in found.sentence
    assert found.evidence == "min.insync.replicas not known, max.message.bytes not known"


def test_quotas_by_default_of_a_named_and_an_unnamed_half(cluster: Cluster, topic: str) -> None:
    names = ((topic, None), (None, topic), (None, None))
    entities = [((quota_admin.USER, user), (quota_admin.CLIENT_ID, client)) for user, client in names]
    for entity in entities:
        quota_admin.alter_quotas(cluster, entity, changes={"producer_byte_rate": 1000})
    try:
        found = why_writer(cluster, topic, user=topic, client=topic)
        subjects = {frozenset(reason.subject.split(", ")) for reason in found if reason.cause == "quota"}
        halves = [(f"user {user or '(default)'}", f"client-id {client or '(default)'}") for user, client in names]
        assert subjects == set(map(frozenset, halves))
    finally:
        for entity in entities:
            quota_admin.alter_quotas(cluster, entity, changes={}, deletions=["producer_byte_rate"])


def test_too_few_replicas_quotas_and_fencing(cluster: Cluster, topic: str) -> None:
    admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, changes={"min.insync.replicas": "2"})
    (few,) = why_writer(cluster, topic)
    assert few.cause == "min.insync.replicas" and few.mend == f"ottla topic config {topic} --set min.insync.replicas=1"
    admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, deletions=["min.insync.replicas"])
    quota_admin.alter_quotas(cluster, ((quota_admin.CLIENT_ID, topic),), changes={"producer_byte_rate": 1000})
    assert causes(why_writer(cluster, topic, client=topic)) == ["quota", "nothing found"]
    with Producer(cluster, transactional_id=topic) as producer:
        producer.begin()
        producer.abort()
        (fenced, _) = why_writer(cluster, topic, transactional_id=topic)
    assert (fenced.cause, fenced.level) == ("fencing", NOTE) and "state" in fenced.evidence
    assert causes(why_writer(cluster, topic, transactional_id=f"{topic}-other")) == ["not known", "nothing found"]


# A partition


def test_a_topic_in_sync(cluster: Cluster, topic: str) -> None:
    assert causes(why_partition(cluster, topic)) == ["in sync"]
    assert causes(why_partition(cluster, "nothing")) == ["no topic"]
    with pytest.raises(ApiError, match="no partition 7"):
        why_partition(cluster, topic, 7)


def test_lags_of_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    place, one = TopicPartition("t", 0), MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1])
    refused = _of_replica(place, 2, one, True, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no"), False)
    assert (refused.cause, refused.level) == ("not known", UNKNOWN) and "CLUSTER_AUTHORIZATION_FAILED: no" in refused.evidence
    assert "7 records behind" in _of_replica(place, 2, one, True, 7, False).sentence
    assert "behind" not in _of_replica(place, 2, one, True, 0, False).sentence
    copies = [DescribeLogDirsPartition(partition_index=0, offset_lag=lag, is_future_key=lag != 7) for lag in (7, 9)]
    found = DescribeLogDirsResult(log_dir="/d", topics=[DescribeLogDirsTopic(name="t", partitions=copies)])
    monkeypatch.setattr(admin, "describe_log_dirs", lambda *_: [found])
    assert _replica_lags(cast(Cluster, SimpleNamespace(partitions=lambda _: [0])), "t", [2]) == {(2, 0): 7}


@pytest.mark.usefixtures("need_zookeeper")
def test_a_broker_that_is_down() -> None:
    with ClusterOfBrokers(2) as brokers, Cluster(brokers.bootstrap_server) as cluster:
        admin.create_topic(cluster, "pair", replication_factor=2, partitions=1, configs={"min.insync.replicas": "2"})
        assert causes(why_writer(cluster, "pair")) == ["nothing found"]
        leader = cluster.leader(TopicPartition("pair", 0))
        (other,) = [broker for broker in brokers.brokers if broker.broker_id != leader]
        other.stop()
        while (reasons := why_partition(cluster, "pair"))[0].cause != "broker down":
            assert reasons[0].level != BAD or reasons[0].cause in ("slow follower", "no replica", "failed replica"), reasons
        assert reasons[0].mend == f"start broker {other.broker_id}" and reasons[0].level == BAD
        (few,) = why_writer(cluster, "pair")
        assert few.cause == "min.insync.replicas" and few.mend == f"start broker {other.broker_id}"


@pytest.mark.usefixtures("need_zookeeper")
def test_a_partition_whose_only_replica_is_down_is_not_in_sync() -> None:
    """The broker remains in the in-sync set, because a leader must be chosen from it."""
    with ClusterOfBrokers(2) as brokers, Cluster(brokers.controller().address) as cluster:
        (other,) = [broker for broker in brokers.brokers if broker is not brokers.controller()]
        admin.create_topic(cluster, "lonely", assignments={0: [other.broker_id]})
        other.stop()
        (reason,) = why_partition(cluster, "lonely")
        while other.broker_id in cluster.metadata.brokers:
            (reason,) = why_partition(cluster, "lonely")
        assert (reason.subject, reason.cause, reason.level) == ("lonely-0", "offline", BAD)
        assert reason.mend == f"start broker {other.broker_id}"
