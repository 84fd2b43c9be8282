"""Refuses changes of the controller quorum, as Kafka refuses them where `kraft.version` is 0: the voters are fixed."""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest


def refusal_of_change(broker: Broker, request: RequestContext, body: AddRaftVoterRequest | RemoveRaftVoterRequest, verb: str) -> ApiError:
    """Returns the error of a request to add or remove a voter (`verb`), found in Kafka's order: permission, cluster id, voter, feature."""
    try:
        require_on_cluster(broker, request, AclOperation.ALTER)
    except ApiError as refusal:
        return refusal
    cluster_id = broker.metadata.cluster_id
    if body.cluster_id is not None and body.cluster_id != cluster_id:
        text = f'The given id "{body.cluster_id}" doesn\'t match the cluster id "{cluster_id}"'
        return ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    if body.voter_id < 0:
        return ApiError(ErrorCode.INVALID_REQUEST, f"{verb} voter request didn't include a valid voter")
    participle = {"Add": "adding", "Remove": "removing"}[verb]
    text = f"Cluster doesn't support {participle} voter because the kraft.version feature is 0"
    return ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
