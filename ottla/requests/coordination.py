"""How does a handler put a request to the group that it is about?

`ask` finds the host of the group's shard, after the principal's right to the group, and runs one decision whose reply completes the pending
answer. What refuses (no right, no coordinator here, still loading) becomes the response that the handler's `refusal` makes of the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.draft import Caller
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.rights import is_allowed, require
from ottla.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.groups.machine import GroupMachine
    from ottla.machine.contract import Decision, Reply

Command = Callable[["GroupMachine", "Reply", int], "Decision"]
"""(machine, reply, now_ms) -> what to do."""


def caller_of(request: RequestContext, may_describe: Callable[[str], bool] | None = None) -> Caller:
    """Hosts are written as Kafka's tools show them, with a slash where a name could stand."""
    connection = request.connection
    return Caller(
        request.version, request.client_id or "", "/" + connection.host, connection.identity, connection.client_software_name, may_describe
    )


def describable_topics(broker: Broker, request: RequestContext) -> Callable[[str], bool] | None:
    """Which topics the principal may describe, for patterns that match topics; None if all."""
    if broker.authorizer.allows_clients_everything(request.connection):
        return None
    return lambda topic: is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def offers_consumer_groups(broker: Broker) -> bool:
    """Whether the configuration lets groups of the new consumer protocol in (KIP-848)."""
    return "consumer" in broker.config.group_coordinator_rebalance_protocols


def ask(
    broker: Broker,
    request: RequestContext,
    group_id: str,
    command: Command,
    refusal: Callable[[ErrorCode], Any],
    operation: AclOperation = AclOperation.READ,
) -> Any:
    """The response, or a `Pending` that the group's machine completes."""
    pending = Pending()
    try:
        require(broker, request, operation, ResourceType.GROUP, group_id)
        run(broker, group_id, command, pending.complete)
    except ApiError as error:
        return refusal(error.code)
    return pending


def run(broker: Broker, group_id: str, command: Command, reply: Reply) -> None:
    """Raises ApiError when this broker does not coordinate the group now; `reply` is not called then."""
    host = broker.groups.host_of(group_id)
    machine: GroupMachine = host.machine
    host.run(lambda now_ms: command(machine, reply, now_ms))


class Gathering:
    """One answer made of several: complete when each part has come."""

    def __init__(self, parts: int, complete: Callable[[], None]) -> None:
        self._left = parts
        self._complete = complete

    def part_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._complete()
