"""Members of streams groups (KIP-1071): threads of a few processes, with a topology whose internal topics the broker creates.

The simulated application reads the world's topic, repartitions it and counts with a state store. A member reads and commits the partitions
of its active tasks, as a consumer does. It only reports its standby tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.groups.streams.group import ACTIVE, STANDBY, TaskKey
from ottla.handlers.streams_groups import streams_group_heartbeat
from ottla.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, TaskIds, TopicInfo, Topology
from tests.sim.group_members import REBALANCE_MS, TOPIC, ConsumerMember

if TYPE_CHECKING:
    from tests.sim.group_world import GroupWorld

PROCESSES = 3
REPLICAS = 3
SOURCE, COUNT = "0", "1"


def repartition_topic(group_id: str) -> str:
    return f"{group_id}-words"


def topology_of(group_id: str) -> Topology:
    words = repartition_topic(group_id)
    totals = TopicInfo(name=f"{group_id}-totals", replication_factor=REPLICAS)
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(subtopology_id=SOURCE, source_topics=[TOPIC], repartition_sink_topics=[words]),
            Subtopology(
                subtopology_id=COUNT,
                repartition_source_topics=[TopicInfo(name=words, replication_factor=REPLICAS)],
                state_changelog_topics=[totals],
            ),
        ],
    )


class StreamsMember(ConsumerMember):
    """See above."""

    api = streams_group_heartbeat
    punctual = 0.2
    request = StreamsGroupHeartbeatRequest

    def __init__(self, world: GroupWorld, group_id: str, name: str, transactional_id: str = "") -> None:
        super().__init__(world, group_id, name, transactional_id)
        self.process_id = f"p{int(name[1:]) % PROCESSES}"
        self._tasks: tuple[list[TaskIds], list[TaskIds]] = [], []
        """The active and the standby tasks."""

    def _drop_all(self) -> None:
        super()._drop_all()
        self._tasks = [], []

    def tasks(self) -> set[tuple[TaskKey, int]]:
        """The tasks that were assigned to the member and that it has not given up."""
        roles = zip((ACTIVE, STANDBY), self._tasks, strict=True)
        return {(TaskKey(role, task.subtopology_id), index) for role, mine in roles for task in mine for index in task.partitions}

    def _given(self, answer: Any) -> list[TopicPartition] | None:
        if answer.active_tasks is None:
            return None
        self._tasks = answer.active_tasks, answer.standby_tasks
        topics = {SOURCE: TOPIC, COUNT: repartition_topic(self.group_id)}
        return sorted(TopicPartition(topics[task.subtopology_id], index) for task in answer.active_tasks for index in task.partitions)

    def _heartbeat(self) -> StreamsGroupHeartbeatRequest:
        active, standby = self._tasks
        body = StreamsGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.instance_id,
            active_tasks=active,
            standby_tasks=standby,
            warmup_tasks=[],
        )
        if self.generation == 0:
            body.rebalance_timeout_ms, body.process_id, body.topology = REBALANCE_MS, self.process_id, topology_of(self.group_id)
        return body
