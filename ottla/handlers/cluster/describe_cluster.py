"""DescribeCluster: the cluster's id, controller and brokers.

Behaviour: the answer has the cluster's id, the controller, and the live brokers with their addresses on the client's listener. Every client
gets it. Without DESCRIBE on the cluster, the bits of authorized operations are 0. Clients with our extensions that have this permission
also get the controller's epoch, and how many changes of in-sync sets this broker has made.

Version notes: 1 selects brokers or controllers (KIP-919). There is no separate listener for controllers, so a request for controllers gets
MISMATCHED_ENDPOINT_TYPE. 2 may ask for fenced brokers too (KIP-1073). No broker is fenced, because a broker that is not live is not
registered.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.authorized_operations import NOT_ASKED, cluster_operations
from ottla.handlers.broker_endpoints import live_brokers
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2
_MISMATCHED = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"


def handle(broker: Broker, request: RequestContext, body: DescribeClusterRequest) -> DescribeClusterResponse:
    if body.endpoint_type != BROKERS:
        is_known = body.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=_MISMATCHED if is_known else f"Unsupported endpoint type {body.endpoint_type}",
        )
    operations = cluster_operations(broker, request) if body.include_cluster_authorized_operations else NOT_ASKED
    response = DescribeClusterResponse(
        cluster_id=broker.metadata.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in live_brokers(broker, request)
        ],
        cluster_authorized_operations=operations,
    )
    if request.connection.has_extensions and is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE):
        response.ottla_controller_epoch = broker.metadata.controller_epoch
        counters = broker.isr_changes
        response.ottla_isr_expansions = counters.expansions if counters is not None else 0
        response.ottla_isr_shrinks = counters.shrinks if counters is not None else 0
    return response
