"""The common part of AlterConfigs and IncrementalAlterConfigs: checks permissions, and answers in the order of the request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.cluster_metadata import CONFIG_BROKER, CONFIG_CLIENT_METRICS, CONFIG_GROUP, CONFIG_TOPIC
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.api import ConfigRequest, ConfigResult
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require, require_on_cluster
from ottla.security.acl import AclOperation, ResourceType


def alter(
    broker: Broker,
    request: RequestContext,
    wanted: Sequence[ConfigRequest],
    validate_only: bool,
    done: Callable[[list[ConfigResult]], None],
) -> None:
    """Passes the allowed changes to the controller. Calls `done` with one result for each wanted change, in order."""
    places: list[ConfigResult | None] = []
    allowed: list[ConfigRequest] = []
    for change in wanted:
        try:
            _check(broker, request, change)
        except ApiError as refusal:
            places.append(_refused(change, refusal))
            continue
        places.append(None)
        allowed.append(change)

    def altered(results: list[ConfigResult]) -> None:
        answered = iter(results)
        done([place if place is not None else next(answered) for place in places])

    broker.controller.alter_configs(allowed, validate_only, altered)


def _refused(change: ConfigRequest, refusal: ApiError) -> ConfigResult:
    return ConfigResult(resource_type=change.resource_type, name=change.name, error=refusal.code, message=refusal.message)


def _check(broker: Broker, request: RequestContext, change: ConfigRequest) -> None:
    kind = change.resource_type
    if kind == CONFIG_TOPIC:
        require(broker, request, AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, change.name)
    elif kind in (CONFIG_BROKER, CONFIG_CLIENT_METRICS):
        require_on_cluster(broker, request, AclOperation.ALTER_CONFIGS)
    elif kind == CONFIG_GROUP:
        require(broker, request, AclOperation.ALTER_CONFIGS, ResourceType.GROUP, change.name)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
