"""AlterConfigs: replace the settings of a resource.

Behaviour: the settings named become all that is set for the resource; what is not named goes back to its default. Superseded by
IncrementalAlterConfigs, which cannot lose another's change, but served for old clients.

Version notes: 2 is flexible.

Not done: broker loggers and client metrics: INVALID_REQUEST.
"""

from __future__ import annotations

from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest, ConfigResult
from ottla.requests.config_changes import alter
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


def handle(broker: Broker, request: RequestContext, body: AlterConfigsRequest) -> Pending:
    wanted = [
        ConfigRequest(
            resource_type=resource.resource_type,
            name=resource.resource_name,
            entries=[ConfigEntry(name=config.name, operation=ConfigOperation.SET, value=config.value) for config in resource.configs],
            is_replacing=True,
        )
        for resource in body.resources
    ]
    pending = Pending()

    def altered(results: list[ConfigResult]) -> None:
        responses = [
            AlterConfigsResourceResponse(
                error_code=result.error, error_message=result.message, resource_type=result.resource_type, resource_name=result.name
            )
            for result in results
        ]
        pending.complete(AlterConfigsResponse(responses=responses))

    alter(broker, request, wanted, body.validate_only, altered)
    return pending
