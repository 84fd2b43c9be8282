"""DescribeConfigs: settings, their values and the sources of the values.

Behaviour: a topic is answered with its effective settings and the source of each value: the topic, the broker's dynamic or static
configuration, or the default. The id of this broker is answered with its effective settings or its log levels. The id of another broker
gets INVALID_REQUEST. The empty broker name is answered with the settings that are set for all brokers. A group is answered with its
settings for the consumer, share and streams protocols, a client-metrics subscription with all of its settings. `configuration_keys` selects
settings; a null or empty list selects all. Secrets have no value.

Version notes: 1 has synonyms (KIP-226). 3 has types and documentation (KIP-569). Client-metrics subscriptions by KIP-714.
"""

from __future__ import annotations

from ottla.base.cluster_metadata import ALL_BROKERS, CONFIG_BROKER, CONFIG_BROKER_LOGGER, CONFIG_CLIENT_METRICS, CONFIG_GROUP, CONFIG_TOPIC
from ottla.base.config import Synonym
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.topic_names import check_topic_name
from ottla.handlers.configs.broker_loggers import logger_entries
from ottla.handlers.configs.entries import (
    ShownSetting,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    shown,
    topic_entries,
)
from ottla.handlers.configs.named_brokers import NUMBER
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require, require_on_cluster
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(broker: Broker, request: RequestContext, body: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for resource in body.resources:
        result = DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
        )
        try:
            keys = frozenset(resource.configuration_keys or ())
            result.configs = [
                _shown(entry, body) for entry in _entries(broker, request, resource) if not keys or entry.setting.name in keys
            ]
        except ApiError as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _entries(broker: Broker, request: RequestContext, resource: DescribeConfigsResource) -> list[ShownSetting]:
    kind, name, metadata = resource.resource_type, resource.resource_name, broker.metadata
    if kind == CONFIG_TOPIC:
        require(broker, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
        check_topic_name(name)
        topic = metadata.topic(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return topic_entries(broker.config, topic.configs)
    if kind == CONFIG_BROKER:
        require_on_cluster(broker, request, AclOperation.DESCRIBE_CONFIGS)
        if name == ALL_BROKERS:
            return default_broker_entries(metadata.configs(CONFIG_BROKER, ALL_BROKERS))
        _check_broker_id(name)
        if name != str(broker.broker_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.broker_id} or empty string, but received {name}"
            )
        return broker_entries(broker.config, metadata.configs(CONFIG_BROKER, name), metadata.configs(CONFIG_BROKER, ALL_BROKERS))
    if kind == CONFIG_BROKER_LOGGER:
        require_on_cluster(broker, request, AclOperation.DESCRIBE_CONFIGS)
        _check_broker_id(name)
        if name != str(broker.broker_id):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.broker_id} but received {name}")
        return logger_entries()
    if kind == CONFIG_CLIENT_METRICS:
        require_on_cluster(broker, request, AclOperation.DESCRIBE_CONFIGS)
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return client_metrics_entries(metadata.configs(kind, name))
    if kind == CONFIG_GROUP:
        require(broker, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP, name)
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(broker.config, metadata.configs(CONFIG_GROUP, name))
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _check_broker_id(name: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if NUMBER.fullmatch(name) is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")


def _shown(entry: ShownSetting, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    setting = entry.setting
    result = DescribeConfigsResourceResult(
        name=setting.name,
        value=shown(setting, entry.value),
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=setting.is_sensitive,
        synonyms=[],
        config_type=setting.type,
        documentation=setting.doc if body.include_documentation else None,
    )
    if body.include_synonyms:
        result.synonyms = [_synonym(entry, synonym) for synonym in entry.synonyms if synonym.text is not None]
    return result


def _synonym(entry: ShownSetting, synonym: Synonym) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=synonym.name, value=shown(entry.setting, synonym.text), source=synonym.source)
