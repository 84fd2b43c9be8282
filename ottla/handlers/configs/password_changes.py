"""Encrypts altered passwords of this broker before they are sent to the controller, which stores them.

Each broker encrypts its own passwords, because brokers may have different secrets. A cluster member without `password.encoder.secret`
refuses to alter passwords, because every client of ZooKeeper might read them. A single broker without it stores them in clear text, in its
own log directory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.cluster_metadata import CONFIG_BROKER
from ottla.base.config import SettingError
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.configs import VALUE_BYTES_MAX
from ottla.handlers.configs.named_brokers import answering_refused
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require_on_cluster
from ottla.security.acl import AclOperation

Handle = Callable[[Broker, RequestContext, Any], Any]


def encrypting_passwords(module: Any, handle: Handle) -> Handle:
    """Returns a handler that encrypts passwords and then calls `handle`. `module` is the handler's module, of AlterConfigs or
    IncrementalAlterConfigs."""

    def handle_encrypted(broker: Broker, request: RequestContext, body: Any) -> Any:
        connection, passwords = request.connection, broker.config.passwords
        own = str(broker.broker_id)
        concerned = [
            resource for resource in body.resources
            if resource.resource_type == CONFIG_BROKER and resource.resource_name == own
            and passwords.names(entry.name for entry in resource.configs if entry.value is not None)
        ]  # fmt: skip
        is_of_broker = connection.is_forwarded or connection.is_inter_broker
        if not concerned or is_of_broker:
            return handle(broker, request, body)
        refused = []
        for resource in concerned:
            try:
                require_on_cluster(broker, request, AclOperation.ALTER_CONFIGS)  # before a key is derived
                _encrypt(broker, resource)
            except ApiError as refusal:
                body.resources.remove(resource)
                refused.append(module.refused(resource, refusal))
        return answering_refused(refused, type(body), lambda: handle(broker, request, body), has_rest=bool(body.resources))

    return handle_encrypted


def _encrypt(broker: Broker, resource: Any) -> None:
    """Encrypts the passwords of the resource in place. Raises `ApiError`."""
    config = broker.config
    if not config.passwords.has_secret and config.is_single_broker:
        return
    names = set(config.passwords.names(entry.name for entry in resource.configs))
    for entry in resource.configs:
        if entry.name in names and entry.value is not None:
            try:
                entry.value = config.passwords.encrypt(entry.value, broker.random)
            except SettingError as error:
                raise _invalid(resource, str(error)) from None
            if len(entry.value) > VALUE_BYTES_MAX:
                raise _invalid(resource, f"{entry.name} would have more than {VALUE_BYTES_MAX} bytes when it is encrypted")


def _invalid(resource: Any, reason: str) -> ApiError:
    name = f"ConfigResource(type=BROKER, name='{resource.resource_name}')"
    return ApiError(ErrorCode.INVALID_REQUEST, f"Invalid config value for resource {name}: {reason}")
