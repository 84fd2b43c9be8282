"""AddRaftVoter: adds a controller to the voters of the quorum.

Behaviour: always refused. The metadata store replaces the quorum, so the answer is Kafka's for a cluster with fixed voters
(`kraft.version` 0): UNSUPPORTED_VERSION. Another cluster's id gets INCONSISTENT_CLUSTER_ID, a negative voter id INVALID_REQUEST.

Version notes: 1 may answer before the change is committed (KIP-1186); no change is made here.

Not done: adding a voter. The listeners of the request are not checked, because no controller listener exists.
"""

from __future__ import annotations

from ottla.handlers.cluster.quorum_changes import refusal_of_change
from ottla.handlers.context import Broker, RequestContext
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


def handle(broker: Broker, request: RequestContext, body: AddRaftVoterRequest) -> AddRaftVoterResponse:
    refusal = refusal_of_change(broker, request, body, "Add")
    return AddRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)
