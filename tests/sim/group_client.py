"""Clients of group coordinators in a cluster: they look up the coordinator of their group, and look it up again after it has moved. A
client keeps a connection to each broker. If the coordinator does not answer a request in time, the client closes all its connections.
Earlier requests are then lost and cannot be executed after later ones, as with Kafka's clients.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.handlers.groups import find_coordinator
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.sim.cluster_broker import host_of
from tests.sim.cluster_clients import CONTROLLER
from tests.sim.network import Call, Caller
from tests.sim.process import Steps

if TYPE_CHECKING:
    from tests.sim.cluster_world import ClusterWorld

BROKER = "@"
"""The topic of the place of a call to one broker, whose number is the partition."""
PATIENCE_MS = 400
MOVED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Connections:
    """The connections of one member (`process.Sender`)."""

    def __init__(self, world: ClusterWorld) -> None:
        self.timers = world.timers
        self._world = world
        self._callers: dict[str, Caller] = {}

    def send(self, call: Call, answered: Callable[[Any], None]) -> None:
        number = call.place.partition if call.place.topic == BROKER else self._world.find(call.place)
        if number is not None:
            host = host_of(number)
            if host not in self._callers:
                self._callers[host] = self._world.network.caller(host)
            self._callers[host].send(call, host, answered)

    def give_up(self) -> None:
        """Closes all connections; requests in flight are lost."""
        for caller in self._callers.values():
            caller.reset()


class GroupClient:
    """See above."""

    def __init__(self, world: ClusterWorld, group_id: str) -> None:
        self.connections = Connections(world)
        self.group_id = group_id
        self._chance: random.Random = world.chance
        self._coordinator: int | None = None

    def _to_coordinator(self, handler: Any, version: int, body: Any) -> Call | None:
        """Sends a request to the coordinator that was found last."""
        return None if self._coordinator is None else Call(handler, version, lambda: body, TopicPartition(BROKER, self._coordinator))

    def _ask(
        self, handler: Any, version: int, body: Callable[[], Any], code_of: Callable[[Any], int], patience_ms: int = PATIENCE_MS
    ) -> Steps:
        """Sends a request, and returns the error code of the answer; None without an answer or a coordinator."""
        if self._coordinator is None:
            yield from self._find_coordinator()
        if self._coordinator is None:
            yield self._chance.randint(5, 60)
            return None
        answer = yield Call(handler, version, body, TopicPartition(BROKER, self._coordinator), patience_ms)
        if answer is None:
            self.connections.give_up()
            self._coordinator = None
            return None
        code = code_of(answer)
        if code in MOVED:
            self._coordinator = None
        return code

    def _find_coordinator(self) -> Steps:
        wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id])
        answer = yield Call(find_coordinator, 4, lambda: wanted, CONTROLLER, PATIENCE_MS)
        if answer is None:
            self.connections.give_up()
        elif not answer.coordinators[0].error_code:
            self._coordinator = answer.coordinators[0].node_id
