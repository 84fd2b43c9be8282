"""`streams-group list|describe|reset-offsets|delete-offsets|delete` on a broker, and `kafka-streams-groups`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.cli.kafka_tools.streams_groups import is_inferred
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

    def __init__(self, cluster: Cluster, group: str, lines: str, words: str = "-words", totals: str = "-totals") -> None:
        self.cluster, self.group, self.lines = cluster, group, lines
        self.words, self.totals = group + words, group + totals
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

    def describe(self) -> None:
        """Sends the description of its topology, with a global store."""
        nodes = [
            TopologyDescriptionNode(name="lines", node_type=1, source_topics=[self.lines], successors=["count"]),
            TopologyDescriptionNode(name="count", node_type=2, stores=["totals"], successors=["words"]),
            TopologyDescriptionNode(name="words", node_type=3, sink_topic=self.words),
        ]
        table = TopologyDescriptionGlobalStore(
            source=TopologyDescriptionNode(name="all", node_type=1, source_topics=[self.lines], successors=["fill"]),
            processor=TopologyDescriptionNode(name="fill", node_type=2, stores=["everything"]),
        )
        whole = TopologyDescription(
            subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes)], global_stores=[table]
        )
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=self.group, member_id="m", topology_epoch=0, topology_description=whole
        )
        assert self.cluster.run(self.cluster.core.ask_coordinator(GROUP, self.group, request)).error_code == 0


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
    member.describe()
    assert [line.split() for line in ottla("streams-group", "topology", group).out.splitlines()[1:]] == [
        [group, "0", "lines", "source", member.lines, "-", "count"],
        [group, "0", "count", "processor", "-", "totals", "words"],
        [group, "0", "words", "sink", member.words, "-", "-"],
        [group, "-", "all", "source", member.lines, "-", "fill"],
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


# kafka-streams-groups; tests/clients/test_streams_tools.py compares its output with that of Kafka's tool


def test_kafkas_tool(ottla: Ottla, member: Member) -> None:
    group = f"{member.group:<15}"

    def lines(*words: str) -> list[str]:
        return ottla("kafka-streams-groups.sh", *words, "--group", member.group).out.splitlines()

    assert f"{group} Stable" in ottla("kafka-streams-groups", "--list", "--state").out.splitlines()
    assert lines("--describe")[:2] == ["GROUP           TOPIC           PARTITION  OFFSET-LAG", f"{group} {member.lines:<15} 0          6"]
    member.leave()
    commit_offsets(member.cluster, member.group, {TopicPartition(member.lines, 0): 4})
    reset = lines("--reset-offsets", "--to-earliest", "--all-input-topics", "--execute")
    assert f"{member.group:<30} {member.lines:<30} 0          0              " in reset
    assert "successful" in ottla("kafka-streams-groups", "--delete", "--group", member.group).out


def test_kafkas_tool_shows_the_topology_as_kafka_streams_does(ottla: Ottla, member: Member) -> None:
    shown = ottla("kafka-streams-groups", "--describe", "--topology", "--group", member.group)
    assert (shown.code, shown.out) == (1, f"\nError: No topology description is stored for streams group '{member.group}'.\n")
    member.describe()
    shown = ottla("kafka-streams-groups", "--describe", "--topology", "--group", member.group)
    assert (shown.code, shown.out) == (0, TOPOLOGY.format(lines=member.lines, words=member.words))
    assert "[members], [offsets], [state], [topology]" in ottla(
        "kafka-streams-groups", "--describe", "--topology", "--members", "--group", member.group
    ).err


TOPOLOGY = """Topologies:
   Sub-topology: 0
    Source: lines (topics: [{lines}])
      --> count
    Processor: count (stores: [totals])
      --> words
      <-- lines
    Sink: words (topic: {words})
      <-- count

   Sub-topology: 1 for global store (will not generate tasks)
    Source: all (topics: [{lines}])
      --> fill
    Processor: fill (stores: [everything])
      --> none
      <-- all


"""


def test_kafkas_tool_deletes_internal_topics(ottla: Ottla, cluster: Cluster) -> None:
    """Those that are named, or all whose names Kafka Streams could have made; never another topic of the cluster."""
    number = uuid.uuid4().hex[:4]
    member = Member(cluster, f"d-{number}", f"in-{number}", "-words-repartition").begin()
    member.leave()
    commit_offsets(cluster, member.group, {TopicPartition(member.lines, 0): 4})

    def run(*words: str) -> Any:
        return ottla("kafka-streams-groups", *words, "--group", member.group)

    reset = ("--reset-offsets", "--to-earliest", "--all-input-topics", "--execute")
    refused = run(*reset, "--delete-internal-topic", member.lines)
    assert refused.code == 1 and f"'{member.lines}' is not an internal topic of the group '{member.group}'." in refused.out
    assert committed_offsets(cluster, member.group)[TopicPartition(member.lines, 0)].offset == 4, "nothing was changed"
    assert run(*reset, "--delete-internal-topic", member.words).code == 0
    assert run(*reset, "--delete-internal-topic", member.words).code == 1, "it does not exist any more"
    assert {member.lines, member.totals} <= set(cluster.topic_names()) and member.words not in cluster.topic_names()
    create_topic(cluster, member.words, partitions=2)
    deleted = run("--delete", "--delete-all-internal-topics")
    assert f"The internal topic '{member.totals}' is not inferred as internal" in deleted.out
    assert f"Deletion of associated internal topics of the streams groups ('{member.group}') was successful." in deleted.out
    assert {member.lines, member.totals} <= set(cluster.topic_names()) and member.words not in cluster.topic_names()


@pytest.mark.parametrize(
    ("topic", "is_internal"),
    [
        ("app-totals-changelog", True),
        ("app-words-repartition", True),
        ("app-x-subscription-response-topic", True),
        ("app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000007-topic", True),
        ("app-a-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-x-topic", False),
        ("other-totals-changelog", False),
        ("app-orders", False),
    ],
)
def test_topics_that_look_internal(topic: str, is_internal: bool) -> None:
    assert is_inferred(topic, "app") is is_internal
