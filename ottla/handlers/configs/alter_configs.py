"""AlterConfigs: replace the settings of a resource.

Behaviour: the request has all settings of the resource; every other setting loses its dynamic value, so that the value of the broker's file
or the default applies again. Clients should use IncrementalAlterConfigs, because this request also overwrites concurrent changes of other
clients.

Version notes: 2 is flexible.

Not done: broker loggers. They are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from ottla.base.errors import ApiError
from ottla.controller.api import CONFIG_ENTRIES_MAX, ConfigEntry, ConfigOperation, ConfigRequest, ConfigResult
from ottla.handlers.configs.alterations import alter
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def wanted_change(resource: AlterConfigsResource) -> ConfigRequest:
    """Converts at most `CONFIG_ENTRIES_MAX` + 1 entries: enough for the controller to refuse a request with too many.
    `handlers/configs/tls_changes.py` uses this and `refused`, too."""
    some = resource.configs[: CONFIG_ENTRIES_MAX + 1]
    entries = [ConfigEntry(name=config.name, operation=ConfigOperation.SET, value=config.value) for config in some]
    return ConfigRequest(resource_type=resource.resource_type, name=resource.resource_name, entries=entries, is_replacing=True)


def refused(resource: AlterConfigsResource, refusal: ApiError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=refusal.code,
        error_message=refusal.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def handle(broker: Broker, request: RequestContext, body: AlterConfigsRequest) -> Pending:
    pending = Pending()

    def altered(results: list[ConfigResult]) -> None:
        responses = [
            AlterConfigsResourceResponse(
                error_code=result.error, error_message=result.message, resource_type=result.resource_type, resource_name=result.name
            )
            for result in results
        ]
        pending.complete(AlterConfigsResponse(responses=responses))

    alter(broker, request, list(map(wanted_change, body.resources)), body.validate_only, altered)
    return pending
