"""ListConfigResources: the resources that DescribeConfigs can describe.

Behaviour: lists every topic, every live broker, the loggers of every live broker, and the groups and client-metrics subscriptions that have
stored settings. A request without types lists all types.

Version notes: 0 was ListClientMetricsResources (KIP-714) and lists only client-metrics subscriptions. 1 has the types (KIP-1142).
"""

from __future__ import annotations

from ottla.base.cluster_metadata import CONFIG_BROKER, CONFIG_BROKER_LOGGER, CONFIG_CLIENT_METRICS, CONFIG_GROUP, CONFIG_TOPIC
from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.list_config_resources import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse

TYPES = (CONFIG_TOPIC, CONFIG_BROKER, CONFIG_BROKER_LOGGER, CONFIG_CLIENT_METRICS, CONFIG_GROUP)


def handle(broker: Broker, request: RequestContext, body: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if not is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kinds = (CONFIG_CLIENT_METRICS,) if request.version == 0 else tuple(dict.fromkeys(body.resource_types)) or TYPES
    if any(kind not in TYPES for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = [ConfigResource(resource_name=name, resource_type=kind) for kind in kinds for name in _names(broker, kind)]
    return ListConfigResourcesResponse(config_resources=resources)


def _names(broker: Broker, kind: int) -> list[str]:
    if kind == CONFIG_TOPIC:
        return [topic.name for topic in broker.metadata.topics()]
    if kind in (CONFIG_BROKER, CONFIG_BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(broker.metadata.brokers)]
    return broker.metadata.config_names(kind)
