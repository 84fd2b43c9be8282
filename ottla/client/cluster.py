"""The brokers of one cluster: who they are, who leads which partition, who coordinates what, and one connection to each.

Starts from a list of addresses, learns the rest by Metadata and FindCoordinator, and asks again when a broker says that what we know is
old. Every loop of tries ends at a deadline. A connection refused by all bootstrap addresses is told at once: waiting would not help the
person who mistyped a port.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.addresses import Address, parse_addresses
from ottla.client.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Connection
from ottla.client.core.connection import CLIENT_SOFTWARE
from ottla.client.errors import RETRIABLE, ConnectError, KafkaError, RequestTimeoutError, TransportError, error_code, refused
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.client.security import Security

GROUP = 0
TRANSACTION = 1

BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 0.5

_KINDS = {GROUP: "group", TRANSACTION: "transactional id"}
Result = TypeVar("Result")


class Cluster:
    """See the module. Not for use by two threads at once."""

    def __init__(
        self,
        bootstrap: str | Sequence[Address],
        *,
        client_id: str = CLIENT_SOFTWARE,
        timeout_s: float = REQUEST_TIMEOUT_S,
        security: Security | None = None,
    ) -> None:
        self.bootstrap = parse_addresses(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.security = security
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, MetadataResponseTopic] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._connections: dict[int, Connection] = {}
        self._first: Connection | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in {id(found): found for found in (*self._connections.values(), self._first) if found is not None}.values():
            connection.close()
        self._connections.clear()
        self._first = None

    # Connections

    def any_connection(self) -> Connection:
        """An open connection to some broker: one that is there already, else the first bootstrap address that answers."""
        if self._first is not None and self._first.is_open:
            return self._first
        for connection in self._connections.values():
            if connection.is_open and not connection.in_flight:
                return connection
        self._first = self._reach([*self.bootstrap, *(address for address in self.brokers.values() if address not in self.bootstrap)])
        return self._first

    def connection(self, broker_id: int) -> Connection:
        """An open connection to one broker, by its id."""
        known = self._connections.get(broker_id)
        if known is not None and known.is_open:
            return known
        if broker_id not in self.brokers:
            self.refresh([])
        address = self.brokers.get(broker_id)
        if address is None:
            raise refused(ErrorCode.BROKER_NOT_AVAILABLE, f"no broker {broker_id} is alive; there are {sorted(self.brokers)}")
        first = self._first
        if first is not None and first.is_open and first.address == address:
            # The bootstrap connection is handed over; it then belongs to this broker alone.
            self._connections[broker_id] = first
            return first
        opened = self._open(address)
        self._connections[broker_id] = opened
        return opened

    def new_connection(self, broker_id: int) -> Connection:
        """A connection of the caller's own, for requests that block the others for long."""
        if broker_id not in self.brokers:
            self.refresh([])
        if broker_id not in self.brokers:
            raise refused(ErrorCode.BROKER_NOT_AVAILABLE, f"no broker {broker_id} is alive; there are {sorted(self.brokers)}")
        return self._open(self.brokers[broker_id])

    def _open(self, address: Address) -> Connection:
        return Connection(
            address,
            client_id=self.client_id,
            connect_timeout_s=min(CONNECT_TIMEOUT_S, self.timeout_s),
            request_timeout_s=self.timeout_s,
            security=self.security,
        ).open()

    def _reach(self, addresses: Sequence[Address]) -> Connection:
        failures: list[TransportError] = []
        for address in addresses:
            try:
                return self._open(address)
            except TransportError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise ConnectError("no broker could be reached: " + "; ".join(str(failure) for failure in failures))

    # Metadata

    def refresh(self, topics: Iterable[str] | None = None, *, auto_create: bool = False) -> MetadataResponse:
        """Asks for brokers and for some topics (None: all), remembers what it is told, and gives the answer as it came."""
        connection = self.any_connection()
        names = None if topics is None else sorted(set(topics))
        wanted: list[MetadataRequestTopic] | None
        if connection.version_of(MetadataRequest.API_KEY) == 0:
            wanted = [] if names is None else [MetadataRequestTopic(name=name) for name in names]
        else:
            wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)
        answer: MetadataResponse = connection.request(request)
        self._learn(answer)
        return answer

    def _learn(self, answer: MetadataResponse) -> None:
        self.cluster_id = answer.cluster_id if answer.cluster_id is not None else self.cluster_id
        self.controller_id = answer.controller_id
        self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self.racks = {broker.node_id: broker.rack for broker in answer.brokers}
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error_code:
                self.topics.pop(topic.name, None)
                continue
            self.topics[topic.name] = topic
            for partition in topic.partitions:
                self._leaders[TopicPartition(topic.name, partition.partition_index)] = partition.leader_id

    def topic(self, name: str, *, auto_create: bool = False) -> MetadataResponseTopic:
        """One topic's metadata, from memory or asked for; waits for a topic that is being created. KafkaError when there is none."""
        known = self.topics.get(name)
        if known is not None:
            return known

        def ask() -> MetadataResponseTopic:
            answer = self.refresh([name], auto_create=auto_create)
            for topic in answer.topics:
                if topic.name == name and not topic.error_code:
                    return topic
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not auto_create:
                    raise self.unknown_topic(name)
                if topic.error_code:
                    raise refused(error_code(topic.error_code), f"topic {name!r}")
            raise self.unknown_topic(name)

        if auto_create:
            return self.retrying(ask)
        return self.retrying(ask, codes=RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

    def unknown_topic(self, name: str) -> KafkaError:
        """The refusal for a topic that is not there, with the nearest name that is."""
        hint = nearest_hint(name, self.topic_names())
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} not found{hint}")

    def topic_names(self) -> list[str]:
        """All topics, by name."""
        answer = self.refresh(None)
        return sorted(topic.name for topic in answer.topics if topic.name is not None and not topic.error_code)

    def partitions(self, topic: str) -> list[int]:
        """A topic's partitions, in order."""
        return sorted(partition.partition_index for partition in self.topic(topic).partitions)

    def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition. KafkaError when there is none, or no such partition."""
        leader = self._leaders.get(partition, -1)
        if leader >= 0:
            return leader
        self.topics.pop(partition.topic, None)
        self.topic(partition.topic)
        leader = self._leaders.get(partition, -2)
        if leader == -2:
            count = len(self.topics[partition.topic].partitions)
            message = f"topic {partition.topic!r} has {count} partitions, so no partition {partition.partition}"
            raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        if leader < 0:
            raise refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader at the moment")
        return leader

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """What we know of these is old: the next question asks the cluster."""
        for partition in partitions:
            self._leaders.pop(partition, None)
            self.topics.pop(partition.topic, None)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions grouped by the broker that leads them."""
        wanted = list(partitions)
        missing = sorted({partition.topic for partition in wanted if self._leaders.get(partition, -1) < 0})
        if missing:
            self.refresh(missing)
        grouped: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            grouped.setdefault(self.leader(partition), []).append(partition)
        return grouped

    # Coordinators

    def coordinator(self, kind: int, key: str) -> int:
        """The broker that coordinates a group or a transactional id; asks again while the cluster is choosing one."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        found = self.retrying(lambda: self._find_coordinator(kind, key))
        self._coordinators[kind, key] = found
        return found

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def _find_coordinator(self, kind: int, key: str) -> int:
        from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        connection = self.any_connection()
        if connection.version_of(FindCoordinatorRequest.API_KEY) >= 4:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        answer: FindCoordinatorResponse = connection.request(request)
        found: Any = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise refused(error_code(found.error_code), found.error_message or f"no coordinator for {_KINDS[kind]} {key!r}")
        self.brokers.setdefault(found.node_id, Address(found.host, found.port))
        return int(found.node_id)

    # Asking

    def ask_any(self, body: Request, *, timeout_s: float | None = None) -> Any:
        """A request that any broker can answer."""
        return self.any_connection().request(body, timeout_s=timeout_s)

    def ask_broker(self, broker_id: int, body: Request, *, timeout_s: float | None = None) -> Any:
        return self.connection(broker_id).request(body, timeout_s=timeout_s)

    def ask_controller(self, body: Request, *, timeout_s: float | None = None) -> Any:
        """A request for the controller; where none is named (KRaft brokers forward), any broker will do."""
        if self.controller_id < 0:
            self.refresh([])
        if self.controller_id in self.brokers:
            return self.ask_broker(self.controller_id, body, timeout_s=timeout_s)
        return self.ask_any(body, timeout_s=timeout_s)

    def ask_coordinator(self, kind: int, key: str, body: Request, *, error_of: Callable[[Any], int], timeout_s: float | None = None) -> Any:
        """A request for the coordinator of `key`, found again when it has moved. `error_of` takes the code that tells from an answer;
        other codes are the caller's business and are given back in the answer."""
        moved = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        def ask() -> Any:
            answer = self.ask_broker(self.coordinator(kind, key), body, timeout_s=timeout_s)
            code = error_code(error_of(answer))
            if code in moved:
                self.forget_coordinator(kind, key)
                raise refused(code, f"the coordinator of {_KINDS[kind]} {key!r}")
            return answer

        return self.retrying(ask, codes=frozenset(moved))

    def retrying(self, attempt: Callable[[], Result], *, codes: frozenset[ErrorCode] = RETRIABLE, timeout_s: float | None = None) -> Result:
        """Calls `attempt` until it succeeds, refuses for good, or the time is up; a lost connection is tried once more at most."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        backoff_s = BACKOFF_FIRST_S
        lost = 0
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if error.code not in codes or time.monotonic() + backoff_s > deadline:
                    raise
            except RequestTimeoutError:
                raise
            except ConnectError:
                lost += 1
                if lost > 1:
                    raise
                self._coordinators.clear()
            time.sleep(backoff_s)
            backoff_s = min(BACKOFF_MAX_S, backoff_s * 2)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'orders'?` when a known name is close, else nothing."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
