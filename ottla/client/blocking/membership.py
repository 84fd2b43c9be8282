"""Base classes of members of consumer groups and share groups: the connection to the coordinator, and leaving the group.

A member has a separate connection to the coordinator, so a slow answer does not delay other requests of the client.
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
"""Maximum time that a leaving member waits for the coordinator's answer, in seconds. If the request was lost, the session times out."""


class CoordinatorConnection:
    """See the module. One thread at a time may call `ask`; another thread may call `close`, which makes the call fail."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._connection: BlockingConnection | None = None
        self.is_closed = False
        """Whether the member has left. Later calls of `ask` fail."""

    def connection(self) -> BlockingConnection:
        """Returns the connection, and opens it if necessary. Raises `ConnectError` if the member has left. A coordinator that cannot be
        reached is removed from the metadata cache."""
        if self._connection is None or not self._connection.is_open:
            self._connection = self._cluster.own_coordinator_connection(GROUP, self._group_id)
        if self.is_closed:
            self._connection.close()
            raise ConnectError(f"the member of group {self._group_id!r} has left")
        return self._connection

    def ask(self, request: Request, timeout_s: float | None = None) -> Any:
        """Sends a request and returns the answer. After a `TransportError` the next call looks up the coordinator again."""
        try:
            return self.connection().request(request, timeout_s=timeout_s)
        except TransportError:
            self.forget()
            raise

    def forget(self) -> None:
        """Closes the connection and forgets the coordinator. The next call looks it up again."""
        self._cluster.forget_coordinator(GROUP, self._group_id)
        self._drop()

    def close(self) -> None:
        """Closes the connection permanently. Calls of other threads and later calls fail with a `TransportError`."""
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
        """Returns the request that ends the membership; None if the group cannot know this member, or if the member is static."""

    def leave(self, *, interrupts: bool = False) -> None:
        """Ends the membership, so that the group does not wait for the session timeout. Errors are ignored.

        `interrupts`: another thread is calling `ask`. Its call fails, and a new connection is used.
        """
        if interrupts:
            self.coordinator.close()
        coordinator = CoordinatorConnection(self.cluster, self.group_id) if interrupts else self.coordinator
        try:
            request = self.leaving(coordinator)
            if request is not None:
                coordinator.ask(request, timeout_s=min(LEAVE_TIMEOUT_S, self.cluster.timeout_s))
        except (KafkaError, TransportError):
            pass  # the session times out
        finally:
            coordinator.close()
