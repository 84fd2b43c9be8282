"""`share-group list|describe|reset-offsets|delete-offsets|delete` on a broker, and `kafka-share-groups`."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.core import share_admin
from ottla.client.core.admin import GROUP_RESOURCE, alter_configs
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_server, timeout_s=10) as cluster:
        yield cluster


@pytest.fixture
def group(cluster: Cluster) -> str:
    """A name of a group that begins with the first record."""
    name = f"share-{uuid.uuid4().hex[:12]}"
    alter_configs(cluster, GROUP_RESOURCE, name, changes={"share.auto.offset.reset": "earliest"})
    return name


def write(cluster: Cluster, topic: str, count: int) -> None:
    with Producer(cluster) as producer:
        for number in range(count):
            producer.produce(topic, b"%d" % number)
        producer.flush()


def read(cluster: Cluster, group: str, topic: str, count: int) -> list[tuple[int, int]]:
    """Takes records and accepts them: offsets and numbers of deliveries."""
    found: list[tuple[int, int]] = []
    with ShareConsumer(cluster, group, max_wait_ms=50) as consumer:
        consumer.subscribe([topic])
        for _ in range(100):
            found += [(delivery.record.offset, delivery.number) for delivery in consumer.poll(0.2)]
            if len(found) >= count:
                break
        consumer.commit()
    return found


class Member(threading.Thread):
    """A member that stays until it is stopped."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.broker, self.group, self.topic = broker, group, topic
        self.stopping, self.has_joined = threading.Event(), threading.Event()

    def run(self) -> None:
        with Cluster(self.broker.bootstrap_server, client_id="sharer") as cluster, ShareConsumer(cluster, self.group) as consumer:
            consumer.subscribe([self.topic])
            while not self.stopping.is_set():
                consumer.poll(0.05)
                if consumer.assignment:
                    self.has_joined.set()

    def __enter__(self) -> Member:
        self.start()
        assert self.has_joined.wait(15)
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join(15)


def described(ottla: Ottla, group: str) -> dict[str, Any]:
    (found,) = ottla("share-group", "describe", group, "-o", "json").json()["groups"]
    assert isinstance(found, dict)
    return found


def test_a_group_and_its_member(cluster: Cluster, broker: Broker, ottla: Ottla, topic: str, group: str) -> None:
    write(cluster, topic, 3)
    with Member(broker, group, topic):
        found = described(ottla, group)
        assert (found["group"], found["type"], found["state"], found["assignor"]) == (group, "Share", "Stable", "simple")
        (member,) = found["members"]
        assert member["client_id"] == "sharer" and member["assignment"] == [f"{topic}-0"] and member["partition_count"] == 1
        members = ottla("share-group", "describe", group, "--members").out.splitlines()
        assert members[0].split() == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
        assert members[1].split()[3:] == ["sharer", "1", f"{topic}-0"]
        state = ottla("share-group", "describe", group, "--state", "-v").out.splitlines()
        assert " ".join(state[0].split()) == "GROUP COORDINATOR (ID) STATE GROUP-EPOCH ASSIGNMENT-EPOCH #MEMBERS"
        assert state[1].split()[3] == "Stable" and state[1].split()[-1] == "1"
        assert group in ottla("share-group", "list", "--state", "stable").out
        assert group not in ottla("share-group", "list", "--state", "Empty,dead").out
        for verb in (["delete", "--yes"], ["delete-offsets", "--yes", "--topic", topic]):
            refused = ottla("share-group", verb[0], group, *verb[1:])
            assert refused.code == 1 and "NON_EMPTY_GROUP" in refused.err
        active = ottla("share-group", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
        assert active.code == 1 and "is in state Stable" in active.err
    assert described(ottla, group)["state"] == "Empty"
    assert "has no active members" in ottla("share-group", "describe", group).err


def test_groups_of_all_kinds_are_listed_with_their_type(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    write(cluster, topic, 1)
    read(cluster, group, topic, 1)
    rows = ottla("group", "list", "-o", "json").json()["groups"]
    assert [(row["type"], row["protocol"], row["state"]) for row in rows if row["group"] == group] == [("Share", "share", "Empty")]
    assert group in ottla("group", "list", "--type", "share").out and group not in ottla("group", "list", "--type", "classic").out
    (line,) = [line for line in ottla("kafka-groups", "--list", "--share").out.splitlines() if line.startswith(group)]
    assert line.split() == [group, "Share", "share"]
    assert group not in ottla("kafka-groups", "--list", "--consumer").out
    other = ottla("group", "describe", group)
    assert other.code == 1 and f"see `ottla share-group describe {group}`" in other.err


def test_offsets_are_shown_moved_and_deleted(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    write(cluster, topic, 10)
    assert len(read(cluster, group, topic, 10)) == 10
    assert described(ottla, group)["lag"] == 0
    plan = ottla("share-group", "reset-offsets", group, "--all-topics", "--to-earliest")
    assert plan.code == 0 and plan.out.splitlines()[1].split()[:4] == [group, topic, "0", "0"] and "nothing was changed" in plan.err
    assert described(ottla, group)["lag"] == 0
    done = ottla("share-group", "reset-offsets", group, "--topic", f"{topic}:0", "--to-offset", "7", "--execute", "-o", "json")
    (moved,) = done.json()["offsets"]
    assert (moved["new_offset"], moved["error"]) == (7, None)
    (offset,) = described(ottla, group)["offsets"]
    assert (offset["start_offset"], offset["lag"]) == (7, 3)
    table = ottla("share-group", "describe", group).out.splitlines()
    assert table[0].split() == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"] and table[1].split()[2:] == ["0", "7", "3"]
    assert read(cluster, group, topic, 3) == [(7, 1), (8, 1), (9, 1)]
    assert ottla("share-group", "delete-offsets", group, "--topic", topic, "--yes").out.splitlines()[1].split() == [
        group,
        topic,
        "Successful",
    ]
    assert described(ottla, group)["offsets"] == []
    assert ottla("share-group", "delete", group, "--yes").code == 0
    assert ottla("share-group", "describe", group).code == 1


def test_a_group_can_begin_with_a_reset(cluster: Cluster, ottla: Ottla, topic: str) -> None:
    name = f"share-{uuid.uuid4().hex[:12]}"
    write(cluster, topic, 4)
    assert ottla("share-group", "reset-offsets", name, "--topic", topic, "--to-offset", "2", "--execute").code == 0
    assert read(cluster, name, topic, 2) == [(2, 1), (3, 1)]


def test_a_group_continues_where_a_consumer_group_is(cluster: Cluster, ottla: Ottla, topic: str, tmp_path: Path) -> None:
    """By the file that the consumer group's tool exports (KIP-1323)."""
    write(cluster, topic, 5)
    consumers = f"readers-{uuid.uuid4().hex[:12]}"
    assert ottla("group", "reset-offsets", consumers, "--topic", topic, "--to-offset", "3", "--execute").code == 0
    chosen = ("--reset-offsets", "--group", consumers, "--topic", topic, "--to-current")
    plan = ottla("kafka-consumer-groups", *chosen, "--export", "--dry-run")
    file = tmp_path / "offsets.csv"
    file.write_text(plan.out)
    name = f"share-{uuid.uuid4().hex[:12]}"
    moved = ottla("kafka-share-groups", "--reset-offsets", "--group", name, "--from-file", str(file), "--execute")
    assert moved.code == 0 and moved.out.split()[-4:] == [name, topic, "0", "3"], moved
    assert read(cluster, name, topic, 2) == [(3, 1), (4, 1)]


def test_what_is_not_there_is_refused_with_the_nearest_name(cluster: Cluster, ottla: Ottla, topic: str, group: str) -> None:
    write(cluster, topic, 1)
    read(cluster, group, topic, 1)
    for words in (["describe"], ["delete", "--yes"], ["delete-offsets", "--topic", topic, "--yes"]):
        refused = ottla("share-group", words[0], group[:-1], *words[1:])
        assert refused.code == 1 and f"did you mean '{group}'?" in refused.err and refused.err.count("\n") == 1
    error = json.loads(ottla("share-group", "describe", "missing", "-o", "json").err)["error"]
    assert error["name"] == "GROUP_ID_NOT_FOUND"
    missing = ottla("share-group", "reset-offsets", group, "--topic", "no-such-topic", "--to-latest")
    assert missing.code == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in missing.err


def test_a_consumer_group_is_not_a_share_group(cluster: Cluster, ottla: Ottla, topic: str) -> None:
    from ottla.client.core.group_admin import commit_offsets

    name = f"group-{uuid.uuid4().hex[:12]}"
    commit_offsets(cluster, name, {TopicPartition(topic, 0): 0})
    for words in (["describe"], ["delete", "--yes"], ["reset-offsets", "--topic", topic, "--to-latest", "--execute"]):
        refused = ottla("share-group", words[0], name, *words[1:])
        assert refused.code == 1 and f"is a classic group; see `ottla group describe {name}`" in refused.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "--state", "Emty"], "Invalid state list"),
        (["describe"], "name groups"),
        (["describe", "g", "--members", "--state"], "exclude each other"),
        (["delete", "g"], "not found"),
        (["delete-offsets", "g"], "--topic TOPIC"),
        (["reset-offsets", "g", "--topic", "t"], "give a target"),
        (["reset-offsets", "g", "--to-latest"], "give topics"),
    ],
)
def test_wrong_usage(ottla: Ottla, words: list[str], message: str) -> None:
    result = ottla("share-group", *words)
    assert result.code in (1, 2) and message in result.err and result.err.count("\n") == 1


# kafka-share-groups


def test_the_tool_prints_as_kafka_s_does(cluster: Cluster, broker: Broker, ottla: Ottla, topic: str, group: str) -> None:
    def tool(*words: str) -> list[str]:
        return ottla("kafka-share-groups.sh", *words, "--group", group).out.splitlines()

    write(cluster, topic, 4)
    read(cluster, group, topic, 4)
    assert group in ottla("kafka-share-groups", "--list").out.splitlines()
    assert tool("--describe")[0] == "" and tool("--describe")[1].split() == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    with Member(broker, group, topic):
        member = tool("--describe", "--members", "--verbose")
        assert member[1].split() == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT"]
        assert member[2].split()[-1] == f"{topic}:0"
        assert "org.apache.kafka.common.errors.GroupNotEmptyException" in "\n".join(tool("--delete"))
        assert tool("--delete-offsets", "--topic", topic)[1] == "Error: The group is not empty."
    assert tool("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")[2].split() == [group, topic, "0", "0"]
    assert share_admin.share_offsets(cluster, group)[TopicPartition(topic, 0)].lag == 4
    assert tool("--delete-offsets", "--topic", topic)[2].split() == [topic, "Successful"]
    assert tool("--describe")[1] == f"Share group '{group}' has no offset information."
    assert tool("--delete") == [f"Deletion of requested share groups ('{group}') was successful."]
    assert "GroupIdNotFoundException" in tool("--describe")[1]
