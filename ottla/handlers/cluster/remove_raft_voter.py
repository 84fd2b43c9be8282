"""RemoveRaftVoter: removes a controller from the voters of the quorum.

Behaviour: always refused. The metadata store replaces the quorum, so the answer is Kafka's for a cluster with fixed voters
(`kraft.version` 0): UNSUPPORTED_VERSION. Another cluster's id gets INCONSISTENT_CLUSTER_ID, a negative voter id INVALID_REQUEST.

Version notes: none.

Not done: removing a voter.
"""

from __future__ import annotations

from ottla.handlers.cluster.quorum_changes import refusal_of_change
from ottla.handlers.context import Broker, RequestContext
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


def handle(broker: Broker, request: RequestContext, body: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    refusal = refusal_of_change(broker, request, body, "Remove")
    return RemoveRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)
