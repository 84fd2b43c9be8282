"""`group list|describe|lag|delete|delete-offsets` on a broker."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core import group_admin
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_server, timeout_s=10) as cluster:
        yield cluster


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def commit(cluster: Cluster, group: str, topic: str, offset: int, partition: int = 0) -> None:
    where = TopicPartition(topic, partition)
    assert group_admin.commit_offsets(cluster, group, {where: offset}) == {where: None}


def write(cluster: Cluster, topic: str, count: int, *, age_s: float = 0) -> None:
    moment = int((time.time() - age_s) * 1000)
    with Producer(cluster) as producer:
        for _ in range(count):
            producer.produce(topic, b"x", timestamp=moment)
        producer.flush()


def test_list_shows_type_state_and_protocol(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    commit(cluster, group, topic, 0)
    (row,) = [row for row in ottla("group", "list", "-o", "json").json()["groups"] if row["group"] == group]
    assert row["type"] == "Classic" and row["state"] == "Empty"
    assert group in ottla("group", "list", "--state", "empty").out
    assert group not in ottla("group", "list", "--state", "stable,dead").out
    assert group not in ottla("group", "list", "--type", "consumer").out
    assert ottla("group", "list", "--state", "Emty").code == 2


def test_describe_shows_members_partitions_and_lag(cluster: Cluster, broker: Broker, ottla: Ottla, topic: str, group: str) -> None:
    write(cluster, topic, 5)
    commit(cluster, group, topic, 2)
    with Cluster(broker.bootstrap_server, timeout_s=10, client_id="reader") as own, Consumer(own, group_id=group) as member:
        member.subscribe([topic])
        while not member.positions:
            member.poll(0.1)
        (described,) = ottla("group", "describe", group, "-o", "json").json()["groups"]
        assert described["state"] == "Stable" and described["lag"] == 3
        assert described["members"][0]["client_id"] == "reader" and described["members"][0]["assignment"] == [f"{topic}-0"]
        (offset,) = described["offsets"]
        assert (offset["current_offset"], offset["log_end_offset"], offset["lag"], offset["client_id"]) == (2, 5, 3, "reader")
        table = ottla("group", "describe", group).out.splitlines()
        assert " ".join(table[0].split()) == "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
        assert table[1].split()[:6] == [group, topic, "0", "2", "5", "3"]
        assert ottla("group", "describe", group, "--members").out.splitlines()[1].split()[-1] == "1"
        state = ottla("group", "describe", group, "--state").out.splitlines()[1].split()
        assert state[-2:] == ["Stable", "1"] and state[0] == group
        refused = ottla("group", "delete", group, "--yes")
        assert refused.code == 1 and "NON_EMPTY_GROUP" in refused.err
        subscribed = ottla("group", "delete-offsets", group, "--topic", topic, "--yes")
        assert subscribed.code == 1 and "GROUP_SUBSCRIBED_TO_TOPIC" in subscribed.out


def test_a_table_of_several_partitions_ends_in_their_sum(cluster: Cluster, broker: Broker, ottla: Ottla, topic: str, group: str) -> None:
    other = broker.create_topic(f"{topic}-other")
    for name, count in ((topic, 5), (other, 2)):
        write(cluster, name, count)
        commit(cluster, group, name, 1)
    for verb in ("describe", "lag"):
        *_, total = ottla("group", verb, group).out.splitlines()
        assert total.split()[:2] == [group, "TOTAL"] and "5" in total.split(), verb
        assert "TOTAL" not in ottla("group", verb, group, "-o", "csv").out + ottla("group", verb, group, "-o", "json").out
    assert "TOTAL" not in ottla("kafka-consumer-groups", "--describe", "--group", group).out


def test_describe_names_the_nearest_group(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    commit(cluster, group, topic, 0)
    result = ottla("group", "describe", f"{group}x")
    assert result.code == 1 and f"did you mean {group!r}?" in result.err
    assert ottla("group", "describe", group, "--members", "--state").code == 2
    assert ottla("group", "describe").code == 2


def test_lag_counts_to_both_ends_in_records_and_seconds(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    """Three records of a minute ago are committed, two are open: a reader of committed data is three behind, another five."""
    write(cluster, topic, 3, age_s=60)
    commit(cluster, group, topic, 0)
    with Producer(cluster, transactional_id=f"open-{group}") as producer:
        producer.begin()
        for _ in range(2):
            producer.produce(topic, b"x")
        producer.flush()
        found = ottla("group", "lag", group, "-o", "json").json()
        producer.abort()
    (row,) = found["offsets"]
    assert (row["current_offset"], row["last_stable_offset"], row["log_end_offset"]) == (0, 3, 5)
    assert (row["lag"], row["stable_lag"], found["lag"], found["stable_lag"]) == (5, 3, 5, 3)
    assert 59 <= row["lag_seconds"] <= 90


def test_describe_counts_to_the_last_stable_offset(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    """The lag of readers of committed data is shown beside the lag, with -v or in JSON."""
    write(cluster, topic, 3, age_s=60)
    commit(cluster, group, topic, 1)
    with Producer(cluster, transactional_id=f"open-{group}") as producer:
        producer.begin()
        producer.produce(topic, b"x")
        producer.flush()
        header, line = ottla("group", "describe", group, "-v").out.splitlines()
        (described,) = ottla("group", "describe", group, "-o", "json").json()["groups"]
        producer.abort()
    table = dict(zip(header.split(), line.split(), strict=True))
    assert (table["LAG"], table["LAST-STABLE-OFFSET"], table["STABLE-LAG"]) == ("3", "3", "2")
    assert 59 <= float(table["SECONDS"]) <= 90
    (row,) = described["offsets"]
    assert (row["lag"], row["last_stable_offset"], row["stable_lag"]) == (3, 3, 2) and 59 <= row["lag_seconds"] <= 90


def test_a_marker_at_the_end_does_not_count_as_lag(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    with Producer(cluster, transactional_id=f"done-{group}") as producer:
        producer.begin()
        producer.produce(topic, b"x", timestamp=int((time.time() - 60) * 1000))
        producer.commit()
    commit(cluster, group, topic, 1)
    (row,) = ottla("group", "lag", group, "-o", "json").json()["offsets"]
    assert (row["lag"], row["lag_seconds"]) == (1, 0.0)


def test_lag_is_nothing_at_the_end_and_counts_deleted_records(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    write(cluster, topic, 4, age_s=30)
    commit(cluster, group, topic, 4)
    (row,) = ottla("group", "lag", group, "-o", "json").json()["offsets"]
    assert (row["lag"], row["stable_lag"], row["lag_seconds"]) == (0, 0, 0)
    commit(cluster, group, topic, 1)
    ottla("topic", "trim", topic, "--before", "3", "--yes")
    (row,) = ottla("group", "lag", group, "-o", "json").json()["offsets"]
    assert row["lag"] == 3 and 29 <= row["lag_seconds"] <= 60, "the age is that of the oldest record that is still there"


def test_delete_and_delete_offsets(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    commit(cluster, group, topic, 0)
    assert ottla("group", "delete-offsets", group, "--topic", topic).code == 2, "not without --yes"
    assert ottla("group", "delete-offsets", group, "--topic", topic, "--yes").code == 0
    assert group_admin.committed_offsets(cluster, group) == {}
    commit(cluster, group, topic, 0)
    assert ottla("group", "delete", group).code == 2
    gone = ottla("group", "delete", group, "--yes", "-o", "json")
    assert gone.code == 0 and gone.json() == {"deleted": [group], "errors": {}}
    again = ottla("group", "delete", group, "--yes", "-o", "json")
    assert again.code == 1 and again.json()["errors"] == {group: "GROUP_ID_NOT_FOUND"}
    assert json.loads(again.err)["error"] == {"name": "GROUP_ID_NOT_FOUND", "message": "not deleted: 1 of 1 group"}
