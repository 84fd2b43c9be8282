"""The common part of members of consumer groups and share groups: the connection to the coordinator, and the end of the membership.

A member has its own connection to the coordinator. So an answer that takes long delays no other request of the client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ottla.client.blocking.cluster import GROUP, Cluster
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.errors import ConnectError, KafkaError, TransportError
from ottla.wire.schema import Request

LEAVE_TIMEOUT_S = 5.0
"""A consumer that closes waits no longer for its coordinator: its session ends by itself."""


class CoordinatorConnection:
    """See the module. One thread at a time may ask; `close` ends its call."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._connection: BlockingConnection | None = None
        self.is_closed = False
        """Whether the member has left: each question fails."""

    def connection(self) -> BlockingConnection:
        """The open connection. A coordinator that cannot be reached is forgotten."""
        if self._connection is None or not self._connection.is_open:
            self._connection = self._cluster.own_coordinator_connection(GROUP, self._group_id)
        if self.is_closed:
            self._connection.close()
            raise ConnectError(f"the member of group {self._group_id!r} has left")
        return self._connection

    def ask(self, request: Request, timeout_s: float | None = None) -> Any:
        """Waits for an answer. A coordinator that does not answer is forgotten."""
        try:
            return self.connection().request(request, timeout_s=timeout_s)
        except TransportError:
            self.forget()
            raise

    def forget(self) -> None:
        """Looks for the coordinator again with the next question."""
        self._cluster.forget_coordinator(GROUP, self._group_id)
        self._drop()

    def close(self) -> None:
        """Closes the connection for good. A call of another thread and all later calls fail with a `TransportError`."""
        self.is_closed = True
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Membership(ABC):
    """See the module. A subclass makes the requests."""

    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str]) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.topics = tuple(topics)
        self.coordinator = CoordinatorConnection(cluster, group_id)

    @abstractmethod
    def leaving(self, coordinator: CoordinatorConnection) -> Request | None:
        """The request that ends the membership, None if there is nothing to end."""

    def leave(self, *, interrupts: bool = False) -> None:
        """Ends the membership for good, so that the group need not wait for the end of the session.

        `interrupts`: a call of another thread is under way. It ends with an error.
        """
        if interrupts:
            self.coordinator.close()
        coordinator = CoordinatorConnection(self.cluster, self.group_id) if interrupts else self.coordinator
        try:
            request = self.leaving(coordinator)
            if request is not None:
                coordinator.ask(request, timeout_s=min(LEAVE_TIMEOUT_S, self.cluster.timeout_s))
        except (KafkaError, TransportError):
            pass  # the session ends by itself
        finally:
            coordinator.close()
