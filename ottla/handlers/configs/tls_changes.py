"""Checks altered keys and certificates of this broker's listeners before they are sent to the controller.

A resource gets INVALID_REQUEST if a key store cannot be read or unlocked, if a key does not match its certificate, or if a certificate has
expired. The other resources of the request are altered. Files are read in a thread, after the permission was checked. Only the broker
itself can read its files, so other brokers refuse the request (`named_brokers.py`). A successful alteration that changes no value makes the
broker read the files again, for certificates that were renewed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.base.cluster_metadata import ALL_BROKERS, CONFIG_BROKER
from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import Threads
from ottla.base.settings.security import TlsOptions, split_listener_name
from ottla.controller.api import ConfigRequest
from ottla.controller.configs import altered_values
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import permits_on_cluster
from ottla.security.acl import AclOperation

Handle = Callable[[Broker, RequestContext, Any], Any]


class ListenerKeys(Protocol):
    """The keys and certificates of this broker's listeners (`adapters/tls_listeners.py`)."""

    def examine(self, wanted: Mapping[str, TlsOptions]) -> tuple[str | None, Mapping[str, Any]]:
        """Runs in a thread. Returns the reason why listeners cannot use these options (None if they can), and the loaded options."""

    def has(self, wanted: Mapping[str, TlsOptions]) -> bool:
        """Whether the listeners have these options already."""

    def keep(self, examined: Mapping[str, Any]) -> None:
        """Uses the examined options instead of reading the files again, until the next call."""

    def renew(self) -> None:
        """Reads keys and certificates again; new connections use them."""


class WantedKeys(NamedTuple):
    """An alteration of this broker's TLS settings, and the resulting options of its listeners."""

    resource: Any
    options: Mapping[str, TlsOptions]


class TlsChanges:
    """Checks the TLS settings of one broker's listeners."""

    def __init__(self, config: BrokerConfig, threads: Threads, listeners: ListenerKeys) -> None:
        self._config = config
        self._threads = threads
        self._listeners = listeners

    def guarding(self, module: Any, handle: Handle) -> Handle:
        """Returns a handler that examines the alteration and then calls `handle`. `module` is the handler's module, of AlterConfigs or
        IncrementalAlterConfigs."""

        def handle_examined(broker: Broker, request: RequestContext, body: Any) -> Any:
            refusals: list[tuple[Any, ApiError]] = []
            wanted = list(self._wanted(broker, request, module, body.resources, refusals))
            if not wanted and not refusals:
                return handle(broker, request, body)
            alteration = Alteration(self._listeners, module, body, wanted, refusals)
            self._threads.run(
                lambda: [self._listeners.examine(one.options) for one in wanted],
                lambda found: alteration.go_on(found, lambda left: handle(broker, request, left)),
            )
            return alteration.pending

        return handle_examined

    def _wanted(
        self, broker: Broker, request: RequestContext, module: Any, resources: Sequence[Any], refusals: list[tuple[Any, ApiError]]
    ) -> Iterator[WantedKeys]:
        own = [resource for resource in resources if resource.resource_type == CONFIG_BROKER]
        if not own or not permits_on_cluster(broker, request, AclOperation.ALTER_CONFIGS):
            return
        for resource in own:
            try:
                options = self._options(broker, module.wanted_change(resource))
            except ApiError as refusal:
                refusals.append((resource, refusal))
                continue
            if options:
                yield WantedKeys(resource, options)

    def _options(self, broker: Broker, change: ConfigRequest) -> dict[str, TlsOptions]:
        """Returns the resulting options of the listeners that the change concerns. Raises `ApiError`."""
        old = self._config.passwords.readable(broker.metadata.configs(CONFIG_BROKER, str(broker.broker_id)))
        names = {entry.name for entry in change.entries} | (old.keys() if change.is_replacing else set())
        touched = sorted({listener for name in names if (listener := tls_listener(name)) is not None})
        if not touched or change.name != str(broker.broker_id):
            # A change for all brokers cannot set files. A change for another broker was examined there, before it was forwarded.
            return {}
        new = altered_values(self._config, change, old, broker.metadata.configs(CONFIG_BROKER, ALL_BROKERS))
        known = {endpoint.name.lower() for endpoint in self._config.endpoints}
        for name in new:
            if name in names and (tls_listener(name) or EVERY) not in {EVERY, *known}:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: there is no listener {str(tls_listener(name)).upper()}")
        values = self._config.listeners_with(new)
        return {
            endpoint.name: values.tls(endpoint.name)
            for endpoint in self._config.endpoints
            if endpoint.is_tls and (EVERY in touched or endpoint.name.lower() in touched)
        }


class Alteration:
    """One request while it is examined and executed; `pending` is its answer."""

    def __init__(
        self, listeners: ListenerKeys, module: Any, body: Any, wanted: Sequence[WantedKeys], refusals: list[tuple[Any, ApiError]]
    ) -> None:
        self.pending = Pending()
        self._listeners = listeners
        self._module = module
        self._body = body
        self._wanted = wanted
        self._refusals = refusals
        self._is_renewal = False

    def go_on(self, examined: Sequence[tuple[str | None, Mapping[str, Any]]], handle: Callable[[Any], Any]) -> None:
        """Executes the alteration of the resources that were not refused."""
        made: dict[str, Any] = {}
        for one, (reason, contexts) in zip(self._wanted, examined, strict=True):
            if reason is not None:
                self._refusals.append((one.resource, ApiError(ErrorCode.INVALID_REQUEST, reason)))
                continue
            made.update(contexts)
            self._is_renewal = self._is_renewal or self._listeners.has(one.options)
        refused = [resource for resource, _ in self._refusals]
        left = [resource for resource in self._body.resources if not any(resource is one for one in refused)]
        self._listeners.keep(made)
        response = handle(type(self._body)(resources=left, validate_only=self._body.validate_only))
        if isinstance(response, Pending):
            response.then(self._end, self._fail)
        else:
            self._end(response)

    def _fail(self, error: Exception) -> None:
        self._listeners.keep({})
        self.pending.fail(error)

    def _end(self, response: Any) -> None:
        is_done = not self._body.validate_only and not any(answer.error_code for answer in response.responses)
        if self._is_renewal and is_done:
            self._listeners.renew()
        self._listeners.keep({})
        response.responses.extend(self._module.refused(resource, refusal) for resource, refusal in self._refusals)
        self.pending.complete(response)


EVERY = ""


def tls_listener(name: str) -> str | None:
    """Returns the listener of a TLS setting in lower case, `EVERY` for all listeners, or None for other settings."""
    of_listener = split_listener_name(name)
    listener, setting = (EVERY, name) if of_listener is None else (of_listener.listener, of_listener.setting)
    return listener if setting.startswith("ssl.") else None
