"""Keeps the clients of this broker that ask for subscriptions and push metrics (KIP-714).

A client is found by its client instance id. The broker evaluates its subscription at the first request and again after each change of
subscriptions. A client is forgotten, with its series, when the connection of its last request is closed, or when it has sent nothing for
three push intervals (one minute at least).

The broker refuses requests that are too early, as Kafka does: between two requests a push interval must pass. Only the first push after a
new subscription may be earlier, because clients choose its time at random. After a push with the flag `terminating` a client may not push
again. The memory of all clients together is limited. A new client or a larger report evicts clients of the address that holds the most
(`base/loop/fair_slots.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.fair_slots import FairSlots
from ottla.base.ports import Clock, Random
from ottla.base.uuids import METADATA_TOPIC_UUID, ZERO_UUID, Uuid, fresh_uuid, uuid_to_text
from ottla.telemetry.subscriptions import Client, Subscriptions

if TYPE_CHECKING:
    from ottla.telemetry.reports import Report

CLIENT_BYTES = 2 << 10
"""Memory of a client without its report, in bytes: its names, its subscription, and its slot."""
REPORT_PART = 8
"""Divisor of the limit of all clients. 8: one client's report takes at most an eighth."""
EXPIRY_MS_MIN = 60_000
EXPIRY_INTERVALS = 3
REFUSALS_THAT_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After such an answer to a push, a client asks for its subscription at once."""
_NEVER_MS = -(1 << 62)


class Connection(Protocol):
    """The connection of a client (`handlers/context.py`, `ConnectionInfo`)."""

    client_software_name: str
    client_software_version: str

    @property
    def host(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def call_when_closed(self, subject: object, function: Callable[[object], None]) -> None: ...

    def forget_closing(self, subject: object) -> None: ...


class ReportingClient:
    """One client, and its last report."""

    __slots__ = (
        "accepted_ms", "client", "connection", "has_asked", "instance_id", "is_terminating", "last_error", "report", "seen_ms",
        "subscription_id", "version", "wanted",
    )  # fmt: skip

    def __init__(self, instance_id: Uuid, client: Client, connection: Connection, subscriptions: Subscriptions) -> None:
        self.instance_id = instance_id
        self.client = client
        self.connection = connection
        self.report: Report | None = None
        self.seen_ms = _NEVER_MS
        self.subscribe(subscriptions)

    def subscribe(self, subscriptions: Subscriptions) -> None:
        """Evaluates the subscription again; the client may then ask for it and push without waiting for an interval. If no metrics are
        wanted any more, its report is dropped.
        """
        self.version = subscriptions.version
        self.wanted = subscriptions.of(self.client)
        self.subscription_id = self.wanted.subscription_id(self.instance_id)
        self.report = self.report if self.wanted.metrics else None
        self.accepted_ms = _NEVER_MS
        self.has_asked = False
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    @property
    def bytes(self) -> int:
        return CLIENT_BYTES + (self.report.bytes if self.report is not None else 0)

    @property
    def is_due(self) -> bool:
        """Whether a push interval has passed between the last accepted request and the present one."""
        return self.seen_ms - self.accepted_ms >= self.wanted.interval_ms

    def accept(self, *, has_asked: bool) -> None:
        """Notes that the present request came in time, and whether it asks for the subscription."""
        self.accepted_ms, self.has_asked = self.seen_ms, has_asked

    def is_expired(self, now_ms: int) -> bool:
        return now_ms - self.seen_ms > max(EXPIRY_MS_MIN, EXPIRY_INTERVALS * self.wanted.interval_ms)


class ReportingClients:
    """The clients of one broker, and counters of their requests."""

    def __init__(self, subscriptions: Subscriptions, clock: Clock, random: Random, bytes_max: int) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._random = random
        self._bytes_max = bytes_max
        self._clients: dict[Uuid, ReportingClient] = {}
        self._slots = FairSlots[Uuid]()
        self.pushes = 0
        self.early_requests = 0
        self.unknown_subscriptions = 0
        self.dropped_points = 0

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def has_subscriptions(self) -> bool:
        """Whether any client may be asked for metrics."""
        return self._subscriptions.are_there

    @property
    def bytes_kept(self) -> int:
        return self._slots.weight

    def ask(self, instance_id: Uuid, client_id: str | None, connection: Connection) -> ReportingClient:
        """Returns the client that asks for its subscription. The id 0 makes a new client with a new id. Raises `ApiError`
        THROTTLING_QUOTA_EXCEEDED if the client asks too early.
        """
        if instance_id == ZERO_UUID:
            instance_id = fresh_uuid(self._random.token_bytes(16))
        found = self._find(instance_id, client_id, connection)
        if not found.is_due and found.last_error not in REFUSALS_THAT_ASK_AGAIN:
            self.early_requests += 1
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over")
        found.accept(has_asked=True)
        found.last_error = ErrorCode.NONE
        return found

    def admit(
        self, instance_id: Uuid, client_id: str | None, connection: Connection, *, subscription_id: int, is_terminating: bool
    ) -> ReportingClient:
        """Returns the client of a push. Raises `ApiError` if it may not push now."""
        if instance_id in (ZERO_UUID, METADATA_TOPIC_UUID):
            raise ApiError(ErrorCode.INVALID_REQUEST, "the client instance id is reserved")
        found = self._find(instance_id, client_id, connection)
        code = self._refusal(found, subscription_id, is_terminating=is_terminating)
        found.is_terminating |= is_terminating
        if code:
            raise self.refused(found, code)
        return found

    def refused(self, client: ReportingClient, code: ErrorCode) -> ApiError:
        """Notes the refusal of a push, and returns its error."""
        client.last_error = code
        return ApiError(code)

    def _refusal(self, client: ReportingClient, subscription_id: int, *, is_terminating: bool) -> ErrorCode:
        if client.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not (client.has_asked or client.is_due or is_terminating):
            self.early_requests += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        client.accept(has_asked=False)
        if subscription_id != client.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        return ErrorCode.NONE

    # Reports

    def new_report(self, client: ReportingClient) -> Report:
        from ottla.telemetry.reports import Report  # on use: most brokers have no subscription

        return Report(self._bytes_max // REPORT_PART, client.report)

    def keep(self, client: ReportingClient, report: Report) -> None:
        """Replaces the client's report, unless the client was forgotten while its payload was read."""
        report.end()
        client.last_error = ErrorCode.NONE
        self.pushes += 1
        self.dropped_points += report.dropped
        if self._clients.get(client.instance_id) is client:
            client.report = report
            self._slots.weigh(client.instance_id, client.bytes)
            self._evict_beside(client.instance_id)

    def reporting(self) -> Iterator[ReportingClient]:
        """Yields the clients with a report, and forgets expired clients."""
        now_ms = self._clock.monotonic_ms()
        for client in list(self._clients.values()):
            if client.is_expired(now_ms):
                self._forget(client)
            elif client.report is not None:
                yield client

    # The table

    def _find(self, instance_id: Uuid, client_id: str | None, connection: Connection) -> ReportingClient:
        """Returns a client whose subscription is up to date. Makes the client if it is unknown."""
        now_ms = self._clock.monotonic_ms()
        found = self._clients.get(instance_id)
        if found is not None and found.is_expired(now_ms):
            self._forget(found)
            found = None
        if found is None:
            found = self._add(instance_id, client_id, connection)
        elif found.version != self._subscriptions.version:
            found.subscribe(self._subscriptions)
            self._slots.weigh(instance_id, found.bytes)
        self._attach(found, connection)
        found.seen_ms = now_ms
        return found

    def _add(self, instance_id: Uuid, client_id: str | None, connection: Connection) -> ReportingClient:
        port = connection.identity.rpartition(":")[2]
        client = Client(
            client_id, uuid_to_text(instance_id), connection.client_software_name, connection.client_software_version, connection.host, port
        )
        found = self._clients[instance_id] = ReportingClient(instance_id, client, connection, self._subscriptions)
        self._slots.add(instance_id, connection, found.bytes)
        connection.call_when_closed(found, self._on_closed)
        self._evict_beside(instance_id)
        return found

    def _attach(self, client: ReportingClient, connection: Connection) -> None:
        """Binds the client to the connection of its current request: when this connection is closed, the client is forgotten. Clients
        change connections.
        """
        if client.connection is not connection:
            client.connection.forget_closing(client)
            client.connection = connection
            connection.call_when_closed(client, self._on_closed)
            self._slots.remove(client.instance_id)
            self._slots.add(client.instance_id, connection, client.bytes)
        else:
            self._slots.use(client.instance_id)

    def _evict_beside(self, instance_id: Uuid) -> None:
        while self._slots.weight > self._bytes_max and (victim := self._slots.heavy_victim_for(instance_id)) is not None:
            self._forget(self._clients[victim])

    def _on_closed(self, client: object) -> None:
        assert isinstance(client, ReportingClient)
        self._forget(client)

    def _forget(self, client: ReportingClient) -> None:
        client.connection.forget_closing(client)
        self._slots.remove(client.instance_id)
        del self._clients[client.instance_id]
