"""StreamsGroupHeartbeat: the membership in a streams group, whose tasks the coordinator assigns (KIP-1071).

Behaviour: epoch 0 joins, -1 leaves, -2 leaves for a restart (static members). The answer has the member's epoch, and its tasks unless the
member has them already. A topology with internal topics of the broker or invalid names gets STREAMS_INVALID_TOPOLOGY. A topology with a
topic that the principal may not describe gets TOPIC_AUTHORIZATION_FAILED. Missing changelog and repartition topics are created with the
principal's permissions. The status MISSING_INTERNAL_TOPICS names the topics that the principal may not create, and the reason of a failed
creation. The answer is UNSUPPORTED_VERSION while the feature `streams.version` is at level 0, or if `group.coordinator.rebalance.protocols`
excludes the protocol. See `groups/streams/heartbeat.py`.

Version notes: 1 has the request for a description of the topology, and the status MISSING_CLIENT_TAGS. From 1 on, the answer has the
acceptable recovery lag; in 0 its field is always 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import INTERNAL_TOPICS
from ottla.controller.api import NewTopic, TopicResult
from ottla.controller.topic_names import why_invalid
from ottla.groups.answers import StreamsBeat, refuse_streams_beat
from ottla.groups.commands import StreamsHeartbeat
from ottla.groups.streams.group import ACTIVE, STANDBY, WARMUP, StreamsState, TaskKey, TaskRole
from ottla.groups.streams.heartbeat import streams_heartbeat
from ottla.groups.streams.records import read_topology
from ottla.groups.streams.topology import MISSING_INTERNAL_TOPICS, InternalTopic, Topology
from ottla.handlers.advertised_levels import require_streams_groups
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import ask_about_topics, caller_of
from ottla.handlers.rights import may_create
from ottla.handlers.topics.mutation_quota import MutationQuota
from ottla.wire.messages.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicPartition,
)

if TYPE_CHECKING:
    from ottla.groups.shard import GroupShard
    from ottla.machine.contract import Decision, Reply

KAFKA_4_4_SINCE = 1
STRICT_SINCE = 0
"""Since this version a topic that exceeds the quota of partition changes is not created; a later heartbeat creates it."""


def handle(broker: Broker, request: RequestContext, body: StreamsGroupHeartbeatRequest) -> Any:
    try:
        require_streams_groups(broker)
        topology = None if body.topology is None else read_topology(body.topology)
        topics = () if topology is None else _checked_topics(topology)
        command = command_of(request, body, topology)
    except ApiError as error:
        return respond(refuse_streams_beat(error.code, error.message))
    state: StreamsState | None = None

    def run(shard: GroupShard, reply: Reply, now_ms: int) -> Decision:
        nonlocal state
        decision = streams_heartbeat(shard, command, reply, now_ms)
        state = shard.streams_state(body.group_id) if body.group_id in shard.streams_states else None
        return decision

    def answer(beat: StreamsBeat) -> StreamsGroupHeartbeatResponse:
        response = respond(beat)
        if beat.missing and state is not None:
            _create_topics(broker, request, beat.missing, state, response)
        return response

    return ask_about_topics(broker, request, body.group_id, topics, run, answer, refuse=refuse_streams_beat)


def _checked_topics(topology: Topology) -> tuple[str, ...]:
    names = topology.all_topics()
    internal = sorted(INTERNAL_TOPICS.intersection(names))
    if internal:
        message = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    invalid = [name for name in names if why_invalid(name)]
    if invalid:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names.")
    return names


def command_of(request: RequestContext, body: StreamsGroupHeartbeatRequest, topology: Topology | None) -> StreamsHeartbeat:
    return StreamsHeartbeat(
        body.group_id,
        caller_of(request),
        body.member_id,
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        body.rebalance_timeout_ms,
        topology,
        _owned(body),
        body.process_id,
        None if body.user_endpoint is None else (body.user_endpoint.host, body.user_endpoint.port),
        body.endpoint_information_epoch,
        None if body.client_tags is None else tuple((tag.key, tag.value) for tag in body.client_tags),
        _offsets(body.task_offsets),
        _offsets(body.task_end_offsets),
        body.shutdown_application,
        request.version >= KAFKA_4_4_SINCE,
    )


def _owned(body: StreamsGroupHeartbeatRequest) -> dict[TaskKey, frozenset[int]] | None:
    """Returns the tasks that the member reports as its own; None if it reports none of the three kinds."""
    reported = (body.active_tasks, body.standby_tasks, body.warmup_tasks)
    if all(tasks is None for tasks in reported):
        return None
    owned: dict[TaskKey, frozenset[int]] = {}
    for role, tasks in zip(TaskRole, reported, strict=True):
        if tasks is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "If one task-type is non-null, all must be non-null.")
        owned.update((TaskKey(role, task.subtopology_id), frozenset(task.partitions)) for task in tasks)
    return owned


def _offsets(reported: Iterable[Any] | None) -> dict[tuple[str, int], int] | None:
    return None if reported is None else {(one.subtopology_id, one.partition): one.offset for one in reported}


def respond(beat: StreamsBeat) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse(
        error_code=beat.error,
        error_message=beat.message,
        member_id=beat.member_id,
        member_epoch=beat.member_epoch,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        status=[Status(status_code=code, status_detail=detail) for code, detail in beat.statuses],
        endpoint_information_epoch=beat.endpoint_epoch,
        topology_description_required=beat.must_describe,
        task_offset_interval_ms=beat.task_offset_interval_ms,
        acceptable_recovery_lag=beat.acceptable_recovery_lag,
    )
    if beat.tasks is not None:
        response.active_tasks = _tasks(beat, ACTIVE)
        response.standby_tasks = _tasks(beat, STANDBY)
        response.warmup_tasks = _tasks(beat, WARMUP)
    if beat.endpoints is not None:
        response.partitions_by_user_endpoint = [
            EndpointToPartitions(
                user_endpoint=Endpoint(host=one.endpoint[0], port=one.endpoint[1]),
                active_partitions=[TopicPartition(topic=topic, partitions=list(mine)) for topic, mine in one.active],
                standby_partitions=[TopicPartition(topic=topic, partitions=list(mine)) for topic, mine in one.standby],
            )
            for one in beat.endpoints
        ]
    return response


def _tasks(beat: StreamsBeat, role: TaskRole) -> list[TaskIds]:
    assert beat.tasks is not None
    return [TaskIds(subtopology_id=key.subtopology, partitions=list(mine)) for key, mine in beat.tasks.items() if key.role is role]


# Internal topics


def _create_topics(
    broker: Broker, request: RequestContext, missing: Sequence[InternalTopic], state: StreamsState, response: StreamsGroupHeartbeatResponse
) -> None:
    """Starts the creation of missing internal topics that no earlier heartbeat is creating. The next heartbeats find them, or get the
    reason why the last attempt failed.
    """
    wanted = [topic for topic in missing if topic.name not in state.creating]
    refused = [topic.name for topic in wanted if not may_create(broker, request, topic.name)]
    if refused:
        _add_detail(response, f"; Unauthorized to CREATE on topics {', '.join(refused)}.")
    failed = [f"{topic.name} ({state.failures[topic.name]})" for topic in missing if topic.name in state.failures]
    if failed:
        _add_detail(response, f"; Creation failed: {', '.join(failed)}.")
    quota = MutationQuota(broker, request, strict_since=STRICT_SINCE)
    topics = [
        NewTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor or -1,
            configs=dict(topic.configs),
        )
        for topic in wanted
        if topic.name not in refused and quota.admits(topic.name, topic.partitions)
    ]
    if not topics:
        return
    state.creating.update(topic.name for topic in topics)

    def created(results: list[TopicResult]) -> None:
        quota.settle(results)
        state.creating.difference_update(topic.name for topic in topics)
        for result in results:
            state.failures.pop(result.name, None)
            if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                state.failures[result.name] = result.message or result.error.name

    broker.controller_link.create_topics(topics, False, created)


def _add_detail(response: StreamsGroupHeartbeatResponse, text: str) -> None:
    status = next(status for status in response.status or () if status.status_code == MISSING_INTERNAL_TOPICS)
    status.status_detail += text
