"""Forwards clients' requests that only the controller can execute to the controller's broker (KIP-590).

The broker sends the whole request to the controller's broker in an Envelope, with the client's principal and address. The controller's
broker authorises and executes it as if the client were connected there, and the client gets the answer unchanged.
`cluster/controller_link.py` has the rules for retries. After the request's timeout, or if the Envelope has no valid answer, this broker
executes the handler itself. The handler answers NOT_CONTROLLER, unless this broker has become the controller. The dispatcher splits large
requests before they are forwarded. `handlers/served_apis.py` says which APIs are forwarded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.cluster_metadata import CONFIG_BROKER_LOGGER
from ottla.base.loop.guarded import call_guarded
from ottla.cluster.controller_link import ControllerLink
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.served_apis import ServedApi

FORWARD_LANES = ("forward-0", "forward-1", "forward-2", "forward-3")
"""Names of the connections (lanes) to the controller's broker. A broker answers the requests of one connection in order. A slow request
delays fewer other requests if they are spread over several connections."""

Handle = Callable[[Broker, RequestContext, Any], Any]


class Forwarder:
    """Forwards the requests of clients to the controller."""

    def __init__(self, route: ControllerLink) -> None:
        self._route = route
        self._under_way = dict.fromkeys(FORWARD_LANES, 0)

    def forwarding(self, api: ServedApi, version: int, handle: Handle) -> Handle:
        """Returns a handler that forwards requests. It executes them on this broker if this broker is the controller, or if they only
        change log levels."""

        def handle_or_forward(broker: Broker, request: RequestContext, body: Any) -> Any:
            if self._route.is_here or _is_for_this_process(body):
                return handle(broker, request, body)
            return self._forward(api.key, version, request, body, lambda: handle(broker, request, body))

        return handle_or_forward

    def _forward(self, key: int, version: int, request: RequestContext, body: Any, handle_here: Callable[[], Any]) -> Pending:
        from ottla.handlers.cluster.envelope import answer_in, enveloped  # imported on use: a single broker forwards nothing

        envelope = enveloped(key, version, request, body)
        pending = Pending()
        lane = min(FORWARD_LANES, key=self._under_way.__getitem__)
        self._under_way[lane] += 1

        def end() -> None:
            self._under_way[lane] -= 1

        def here() -> None:
            end()
            call_guarded(lambda: pending.complete(handle_here()), pending.fail)

        def answered(response: Any) -> None:
            found = answer_in(key, version, response)
            if found is None:
                here()
            else:
                end()
                pending.complete(found)

        asking = self._route.ask(envelope, _code_of, answered, here, timeout_ms=_timeout_ms(body), lane=lane)

        def abandon() -> None:
            if not asking.is_over:
                asking.cancel()
                end()

        pending.abandon = abandon
        return pending


def _code_of(response: Any) -> int:
    code: int = response.error_code
    return code


def _timeout_ms(body: Any) -> int | None:
    timeout_ms: int = getattr(body, "timeout_ms", 0)
    return timeout_ms if timeout_ms > 0 else None


def _is_for_this_process(body: Any) -> bool:
    """Whether the request only changes log levels, which the receiving broker executes itself (KIP-412)."""
    resources = getattr(body, "resources", None) or ()
    return len(resources) > 0 and all(resource.resource_type == CONFIG_BROKER_LOGGER for resource in resources)
