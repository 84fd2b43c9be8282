"""Refuses alterations of another broker's settings, as Kafka does, before anything else is checked.

Only the broker itself can check its settings: for example, the key stores of its listeners are its files (`tls_changes.py`). Kafka's own
clients send each broker's settings to that broker. Other resources of the request are altered. Requests that a broker sends or forwards to
the controller were checked by that broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ottla.base.cluster_metadata import ALL_BROKERS, CONFIG_BROKER
from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.wire.framing import load

Handle = Callable[[Broker, RequestContext, Any], Any]
NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


def refusing_other_brokers(module: Any, handle: Handle) -> Handle:
    """Returns a handler that refuses the settings of other brokers and calls `handle` for the rest. `module` is the handler's module, of
    AlterConfigs or IncrementalAlterConfigs."""

    def handle_own(broker: Broker, request: RequestContext, body: Any) -> Any:
        if request.connection.is_forwarded or request.connection.is_inter_broker:
            return handle(broker, request, body)
        refusals = [_refusal(broker.broker_id, resource) for resource in body.resources]
        if not any(refusals):
            return handle(broker, request, body)
        both = list(zip(body.resources, refusals, strict=True))
        refused = [module.refused(resource, refusal) for resource, refusal in both if refusal is not None]
        own = [resource for resource, refusal in both if refusal is None]
        rest = type(body)(resources=own, validate_only=body.validate_only)
        return answering_refused(refused, type(body), lambda: handle(broker, request, rest), has_rest=bool(own))

    return handle_own


def answering_refused(refused: list[Any], request_type: Any, handle_rest: Callable[[], Any], *, has_rest: bool) -> Any:
    """Returns the answer to a request that has refused resources. `handle_rest` executes the request without them."""
    if not has_rest and refused:
        return load(request_type.API_KEY)[1](responses=refused)
    return _with(refused, handle_rest()) if refused else handle_rest()


def _with(refused: list[Any], response: Any) -> Any:
    """Adds the refusals to the answer, now or when it is complete."""
    if not isinstance(response, Pending):
        response.responses.extend(refused)
        return response
    pending = Pending()
    pending.abandon = response.abandon

    def end(found: Any) -> None:
        found.responses.extend(refused)
        pending.complete(found)

    response.then(end, pending.fail)
    return pending


def _refusal(broker_id: int, resource: Any) -> ApiError | None:
    name = resource.resource_name
    if resource.resource_type != CONFIG_BROKER or name in (ALL_BROKERS, str(broker_id)):
        return None
    if NUMBER.fullmatch(name) is None:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    return ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")
