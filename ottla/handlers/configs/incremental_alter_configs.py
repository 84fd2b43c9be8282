"""IncrementalAlterConfigs: change single settings of a resource.

Behaviour: sets, deletes, appends to or subtracts from single settings of topics, brokers (one, or all by the empty name), groups and
client-metrics subscriptions, and sets the log levels of this broker. Each resource is changed as a whole or not at all. The answer is sent
when the changes are stored; the brokers adopt them soon afterwards. Appending and subtracting work on lists only.

Version notes: KIP-339; loggers by KIP-412, groups by KIP-848, subscriptions to metrics of clients by KIP-714. 1 is flexible.
"""

from __future__ import annotations

from ottla.base.cluster_metadata import CONFIG_BROKER_LOGGER
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.api import CONFIG_ENTRIES_MAX, TOO_MANY_CONFIG_ENTRIES, ConfigEntry, ConfigOperation, ConfigRequest, ConfigResult
from ottla.handlers.configs.alterations import alter
from ottla.handlers.configs.broker_loggers import alter_loggers
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import require_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

OPERATIONS = {int(operation): operation for operation in ConfigOperation}


def handle(broker: Broker, request: RequestContext, body: IncrementalAlterConfigsRequest) -> Pending:
    known: list[AlterConfigsResource] = []
    unknown: list[AlterConfigsResource] = []
    loggers: list[AlterConfigsResource] = []
    for resource in body.resources:
        if not all(config.config_operation in OPERATIONS for config in resource.configs):
            unknown.append(resource)
        elif resource.resource_type == CONFIG_BROKER_LOGGER:
            loggers.append(resource)
        else:
            known.append(resource)
    logger_answers = [_alter_loggers(broker, request, resource, body.validate_only) for resource in loggers]
    pending = Pending()

    def altered(results: list[ConfigResult]) -> None:
        responses = [
            AlterConfigsResourceResponse(
                error_code=result.error, error_message=result.message, resource_type=result.resource_type, resource_name=result.name
            )
            for result in results
        ]
        responses += [*logger_answers, *(_answered(resource, ErrorCode.INVALID_REQUEST, "Unknown operation.") for resource in unknown)]
        pending.complete(IncrementalAlterConfigsResponse(responses=responses))

    alter(broker, request, list(map(wanted_change, known)), body.validate_only, altered)
    return pending


def wanted_change(resource: AlterConfigsResource) -> ConfigRequest:
    """Converts a resource of the request. Converts at most `CONFIG_ENTRIES_MAX` + 1 entries; the controller refuses so many.
    `handlers/configs/tls_changes.py` uses this and `refused`, too. Raises `ApiError` for an unknown operation."""
    entries = []
    for config in resource.configs[: CONFIG_ENTRIES_MAX + 1]:
        operation = OPERATIONS.get(config.config_operation)
        if operation is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Unknown operation.")
        entries.append(ConfigEntry(name=config.name, operation=operation, value=config.value))
    return ConfigRequest(resource_type=resource.resource_type, name=resource.resource_name, entries=entries)


def _alter_loggers(
    broker: Broker, request: RequestContext, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    try:
        require_on_cluster(broker, request, AclOperation.ALTER_CONFIGS)
        if resource.resource_name != str(broker.broker_id):
            message = f"Unexpected broker id, expected {broker.broker_id} but received {resource.resource_name}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if len(resource.configs) > CONFIG_ENTRIES_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, TOO_MANY_CONFIG_ENTRIES)
        alter_loggers(wanted_change(resource).entries, validate_only=validate_only)
    except ApiError as refusal:
        return refused(resource, refusal)
    return _answered(resource, ErrorCode.NONE, None)


def refused(resource: AlterConfigsResource, refusal: ApiError) -> AlterConfigsResourceResponse:
    return _answered(resource, refusal.code, refusal.message)


def _answered(resource: AlterConfigsResource, code: ErrorCode, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code, error_message=message, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
