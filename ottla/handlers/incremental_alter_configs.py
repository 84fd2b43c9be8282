"""IncrementalAlterConfigs: change single settings of a resource.

API and versions: IncrementalAlterConfigs (key 44), 0-1.

Behaviour: sets, deletes, appends to or subtracts from single settings of topics, brokers (one, or all by the empty name) and groups. Each
resource is changed as a whole or not at all; what is committed is in force when the answer leaves. Appending and subtracting work on
lists only.

Version notes: KIP-339; groups by KIP-848. 1 is flexible.

Not done: broker loggers and client metrics: INVALID_REQUEST.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest, ConfigResult
from ottla.handlers.config_changes import alter
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

KEY, MIN_VERSION, MAX_VERSION = 44, 0, 1

OPERATIONS = {int(operation): operation for operation in ConfigOperation}


def handle(broker: Broker, request: RequestContext, body: IncrementalAlterConfigsRequest) -> Pending:
    known = [resource for resource in body.resources if all(config.config_operation in OPERATIONS for config in resource.configs)]
    unknown = [resource for resource in body.resources if resource not in known]
    pending = Pending()

    def altered(results: list[ConfigResult]) -> None:
        responses = [
            AlterConfigsResourceResponse(
                error_code=result.error, error_message=result.message, resource_type=result.resource_type, resource_name=result.name
            )
            for result in results
        ]
        responses += [_unknown_operation(resource) for resource in unknown]
        pending.complete(IncrementalAlterConfigsResponse(responses=responses))

    alter(broker, request, [_wanted(resource) for resource in known], body.validate_only, altered)
    return pending


def _wanted(resource: AlterConfigsResource) -> ConfigRequest:
    entries = [
        ConfigEntry(name=config.name, operation=OPERATIONS[config.config_operation], value=config.value) for config in resource.configs
    ]
    return ConfigRequest(resource_type=resource.resource_type, name=resource.resource_name, entries=entries)


def _unknown_operation(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="Unknown operation.",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
