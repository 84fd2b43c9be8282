"""`streams-group list|describe|reset-offsets|delete-offsets|delete` on a broker, and `kafka-streams-groups`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core.admin import create_topic
from ottla.client.core.cluster import GROUP
from ottla.client.core.group_admin import commit_offsets, committed_offsets
from ottla.testing.broker import Broker
from ottla.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, TaskIds, TopicInfo, Topology
from ottla.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from tests.cli.conftest import Ottla
from tests.clients.broker_process import eventually

PROCESS = "5a0d"


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_server, timeout_s=10) as cluster:
        yield cluster


class Member:
    """A member with the topology of a count, which reads `lines-...` and repartitions it."""

    def __init__(self, cluster: Cluster, group: str, lines: str) -> None:
        self.cluster, self.group, self.lines = cluster, group, lines
        self.words, self.totals = f"{group}-words", f"{group}-totals"
        self.epoch, self.tasks = 0, dict[str, list[int]]()
        create_topic(cluster, self.lines, partitions=2)
        with Producer(cluster) as producer:
            for _ in range(6):
                producer.produce(self.lines, b"a b", partition=0)
            producer.flush()

    def beat(self, epoch: int | None = None) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group, member_id="m", member_epoch=self.epoch if epoch is None else epoch, process_id=PROCESS
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms = 60_000
            request.topology = self.topology()
        owned = [TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in self.tasks.items()]
        request.active_tasks, request.standby_tasks, request.warmup_tasks = owned, [], []
        answer = self.cluster.run(self.cluster.core.ask_coordinator(GROUP, self.group, request))
        assert not answer.error_code, answer.error_message
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.tasks = {one.subtopology_id: one.partitions for one in answer.active_tasks}
        return answer

    def topology(self) -> Topology:
        return Topology(
            epoch=0,
            subtopologies=[
                Subtopology(subtopology_id="0", source_topics=[self.lines], repartition_sink_topics=[self.words]),
                Subtopology(
                    subtopology_id="1",
                    repartition_source_topics=[TopicInfo(name=self.words)],
                    state_changelog_topics=[TopicInfo(name=self.totals)],
                ),
            ],
        )

    def begin(self) -> Member:
        """Joins, and sends heartbeats until it has its tasks."""
        self.beat()
        eventually(lambda: self.beat() and sorted(self.tasks) == ["0", "1"])
        return self

    def leave(self) -> None:
        self.beat(-1)


@pytest.fixture
def member(cluster: Cluster) -> Member:
    number = uuid.uuid4().hex[:4]
    return Member(cluster, f"c-{number}", f"lines-{number}").begin()


def test_a_group_is_listed_and_described(ottla: Ottla, member: Member, cluster: Cluster) -> None:
    group = member.group
    commit_offsets(cluster, "other", {TopicPartition(member.lines, 0): 1})
    listed = [line.split() for line in ottla("streams-group", "list").out.splitlines()]
    assert [group, "Stable", "0"] in listed and "other" not in [line[0] for line in listed]
    rows = [line.split() for line in ottla("streams-group", "describe", group).out.splitlines()]
    assert [group, member.lines, "0", "-", "6", "6"] in rows and [group, member.words, "1", "-", "0", "0"] in rows
    (row,) = [line.split() for line in ottla("streams-group", "describe", group, "--members").out.splitlines()[1:]]
    assert (row[1], row[2], row[-3:]) == ("m", PROCESS, ["4", "0_0,0_1,1_0,1_1", "-"])
    (found,) = json.loads(ottla("streams-group", "describe", group, "-o", "json").out)["groups"]
    assert (found["state"], found["topology_epoch"], found["lag"]) == ("Stable", 0, 6)
    assert (found["source_topics"], found["repartition_topics"], found["changelog_topics"]) == (
        [member.lines],
        [member.words],
        [member.totals],
    )


def test_the_description_of_a_topology_is_shown(ottla: Ottla, member: Member, cluster: Cluster) -> None:
    group = member.group
    missing = ottla("streams-group", "topology", group)
    assert missing.code == 1 and f"no member of streams group '{group}' has described its topology" in missing.err
    nodes = [
        TopologyDescriptionNode(name="lines", node_type=1, source_topics=[member.lines], successors=["count"]),
        TopologyDescriptionNode(name="count", node_type=2, stores=["totals"], successors=["words"]),
        TopologyDescriptionNode(name="words", node_type=3, sink_topic=member.words),
    ]
    table = TopologyDescriptionGlobalStore(
        source=TopologyDescriptionNode(name="all", node_type=1, source_topics=[member.lines]),
        processor=TopologyDescriptionNode(name="fill", node_type=2, stores=["everything"]),
    )
    whole = TopologyDescription(
        subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes)], global_stores=[table]
    )
    request = StreamsGroupTopologyDescriptionUpdateRequest(group_id=group, member_id="m", topology_epoch=0, topology_description=whole)
    assert cluster.run(cluster.core.ask_coordinator(GROUP, group, request)).error_code == 0
    assert [line.split() for line in ottla("streams-group", "topology", group).out.splitlines()[1:]] == [
        [group, "0", "lines", "source", member.lines, "-", "count"],
        [group, "0", "count", "processor", "-", "totals", "words"],
        [group, "0", "words", "sink", member.words, "-", "-"],
        [group, "-", "all", "source", member.lines, "-", "-"],
        [group, "-", "fill", "processor", "-", "everything", "-"],
    ]
    assert "not found" in ottla("streams-group", "topology", "nothing-of-the-kind").err


def test_names_of_other_groups_are_refused_with_the_command_for_them(ottla: Ottla, member: Member, cluster: Cluster) -> None:
    commit_offsets(cluster, "plain", {TopicPartition(member.lines, 0): 1})
    refused = ottla("streams-group", "describe", "plain").err
    assert "group 'plain' is a classic group; see `ottla group describe plain`" in refused
    refused = ottla("group", "delete-offsets", member.group, "--all-topics").err
    assert "has committed no offsets" in refused
    assert "not found" in ottla("streams-group", "describe", "nothing-of-the-kind").err


def test_offsets_are_reset_and_deleted_when_the_members_have_left(ottla: Ottla, member: Member, cluster: Cluster) -> None:
    group, first = member.group, TopicPartition(member.lines, 0)
    assert "inactive" in ottla("streams-group", "reset-offsets", group, "--all-topics", "--to-latest").err
    member.leave()
    ottla("streams-group", "reset-offsets", group, "--all-topics", "--to-latest", "--execute")
    assert {one: found.offset for one, found in committed_offsets(cluster, group).items()} == {first: 6, TopicPartition(member.lines, 1): 0}
    ottla("streams-group", "delete-offsets", group, "--topic", member.lines, "--yes")
    assert committed_offsets(cluster, group) == {}
    ottla("streams-group", "delete", group, "--yes")
    assert group not in ottla("streams-group", "list").out


# kafka-streams-groups


def test_kafkas_tool(ottla: Ottla, member: Member) -> None:
    """Apache Kafka's tool prints the same about the same group, apart from the order of partitions."""
    group = f"{member.group:<15}"

    def lines(*words: str) -> list[str]:
        return ottla("kafka-streams-groups.sh", *words, "--group", member.group).out.splitlines()

    assert member.group in ottla("kafka-streams-groups", "--list").out.splitlines()
    assert f"{group} Stable" in ottla("kafka-streams-groups", "--list", "--state").out.splitlines()
    assert lines("--describe")[:2] == ["GROUP           TOPIC           PARTITION  OFFSET-LAG", f"{group} {member.lines:<15} 0          6"]
    (row,) = lines("--describe", "--members")[1:]
    assert row.startswith(f"{group} m      {PROCESS}    ") and row.endswith(" ACTIVE: 0:[0,1]; 1:[0,1]; ")
    assert lines("--describe", "--members", "--verbose")[1].endswith(" TARGET-ACTIVE: 0:[0,1]; 1:[0,1]; ")
    assert lines("--describe", "--state")[0] == "GROUP           COORDINATOR (ID)          STATE                     #MEMBERS"
    refused = ottla("kafka-streams-groups", "--delete", "--group", member.group, "--group", "nope")
    assert refused.code == 1
    assert f"GroupNotEmptyException: Streams group '{member.group}' is not EMPTY." in refused.out
    assert "Group 'nope' does not exist or is not a streams group." in refused.out
    member.leave()
    assert f"{group} {member.lines:<15} 0          0" in lines("--reset-offsets", "--to-earliest", "--all-input-topics", "--execute")
    assert "successful" in ottla("kafka-streams-groups", "--delete", "--group", member.group).out
