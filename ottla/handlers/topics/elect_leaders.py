"""ElectLeaders: elections on request.

Behaviour: a preferred election makes the preferred replica the leader. An unclean election elects a replica for a partition without a
leader, or with a leader whose log has failed. Records may be lost. Null selects all partitions; the answer then omits partitions that need
no election. The answer is sent when the brokers know the new leaders. It waits at most `timeout_ms` for brokers other than the
controller's.

Version notes: 0 has only preferred elections (KIP-183). 1 has the kind of election and a top-level error (KIP-460).
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.controller import api
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult

TOP_LEVEL_ERROR_SINCE = 1
KINDS = {int(kind): kind for kind in api.ElectionType}


def handle(broker: Broker, request: RequestContext, body: ElectLeadersRequest) -> ElectLeadersResponse | Pending:
    wanted = None
    if body.topic_partitions is not None:
        wanted = [(topic.topic, index) for topic in body.topic_partitions for index in topic.partitions]
    if not is_allowed_on_cluster(broker, request, AclOperation.ALTER):
        return _refused(request, wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kind = KINDS.get(body.election_type)
    if kind is None:
        return _refused(request, wanted, ErrorCode.INVALID_REQUEST, f"Unknown election type {body.election_type}")
    pending = Pending()

    def done(results: list[api.PartitionResult], error: ErrorCode) -> None:
        pending.complete(_response(request, results, error))

    broker.controller.elect_leaders(kind, wanted, done, timeout_ms=body.timeout_ms)
    return pending


def _response(request: RequestContext, results: list[api.PartitionResult], error: ErrorCode) -> ElectLeadersResponse:
    """Returns the answer. Version 0 has no error of the whole request."""
    topics: dict[str, ReplicaElectionResult] = {}
    for result in results:
        topic = topics.setdefault(result.topic, ReplicaElectionResult(topic=result.topic))
        topic.partition_result.append(PartitionResult(partition_id=result.partition, error_code=result.error, error_message=result.message))
    has_error = request.version >= TOP_LEVEL_ERROR_SINCE
    return ElectLeadersResponse(error_code=error if has_error else ErrorCode.NONE, replica_election_results=list(topics.values()))


def _refused(
    request: RequestContext, wanted: list[tuple[str, int]] | None, error: ErrorCode, message: str | None = None
) -> ElectLeadersResponse:
    results = [api.PartitionResult(topic=topic, partition=index, error=error, message=message) for topic, index in wanted or ()]
    return _response(request, results, error)
