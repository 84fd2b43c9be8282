"""The client's view of one cluster: brokers, partition leaders, coordinators, and connections. Its methods that send requests are
conversations: generators without I/O (`conversation.py`).

It starts with the bootstrap addresses, learns brokers, leaders and coordinators by Metadata and FindCoordinator, and asks again when a
broker reports that they are out of date. A deadline limits each request with its retries, and also the time to connect and to wait for the
answer (`conversation.within`). If at the beginning no address accepts a connection, the error is raised after one more attempt: longer
waiting does not help a user who mistyped a port. `coordinator_link` and `ask_once` forget an unreachable coordinator, so the next request
finds its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.errors import ApiError, ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.addresses import Address
from ottla.client.core.backoff import Backoff, Deadline
from ottla.client.core.conversation import Ask, Conversation, Open, Sleep, within
from ottla.client.core.metadata import ClientMetadata
from ottla.client.core.topic_lists import first_code
from ottla.client.errors import (
    COORDINATOR_MOVED,
    RETRIABLE,
    ClientError,
    ConnectError,
    KafkaError,
    NotSentError,
    RequestTimeoutError,
    TransportError,
    refused,
)
from ottla.wire.apis import API_NAMES
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.client.core.ports import Link

GROUP = 0
TRANSACTION = 1

_KINDS = {GROUP: "group", TRANSACTION: "transactional id"}
_QUESTIONS = ("Describe", "List")
"""Prefixes of the names of APIs that change nothing."""
T = TypeVar("T")


class ClusterCore:
    """See the module. `now` is a monotonic clock in seconds; `timeout_s` limits each request with its retries."""

    def __init__(self, bootstrap: Sequence[Address], *, now: Callable[[], float], timeout_s: float) -> None:
        self.bootstrap = list(bootstrap)
        self.now = now
        self.timeout_s = timeout_s
        self.metadata = ClientMetadata()
        self._links: dict[Address, Link] = {}
        self._idle: dict[Address, list[Link]] = {}
        self._first: Link | None = None

    def close(self) -> None:
        """Closes the shared connections and the idle ones of `take_link`. Connections that `take_link` has lent stay open."""
        for link in self._known():
            link.close()
        self._links.clear()
        self._idle.clear()
        self._first = None

    def close_unread(self) -> None:
        """Closes connections with an unread answer, which an interrupted call has left. For clients that run one call at a time."""
        for link in self._known():
            if link.in_flight:
                link.close()

    def _known(self) -> list[Link]:
        return [*self._links.values(), *(link for some in self._idle.values() for link in some)]

    # Connections

    def any_link(self) -> Conversation[Link]:
        """Returns an open connection to any broker, else connects to the first known address that answers."""
        if self._first is not None and self._first.is_open:
            return self._first
        for link in self._links.values():
            if link.is_open and not link.in_flight:
                return link
        others = [address for address in self.metadata.brokers.values() if address not in self.bootstrap]
        self._first = yield from self._reach([*self.bootstrap, *others])
        return self._first

    def link(self, broker_id: int) -> Conversation[Link]:
        """Returns the shared connection to one broker, and opens it if needed."""
        address = yield from self.address_of(broker_id)
        known = self._links.get(address)
        if known is not None and known.is_open:
            return known
        opened = self._links[address] = yield from self._open(broker_id, Open(address))
        return opened

    def take_link(self, broker_id: int) -> Conversation[Link]:
        """Lends a separate connection, for slow requests such as Fetch. The caller returns it by `give_back`, or closes it."""
        address = yield from self.address_of(broker_id)
        return self.take_idle(address) or (yield from self._open(broker_id, Open(address, is_own=True)))

    def take_idle(self, address: Address) -> Link | None:
        """Returns an open connection that `give_back` has kept, if there is one."""
        idle = self._idle.get(address, [])
        while idle:
            link = idle.pop()
            if link.is_open:
                return link
        return None

    def _open(self, broker_id: int, effect: Open) -> Conversation[Link]:
        """Opens a connection to a broker. If that fails, forgets what the broker led: the next request asks the cluster who leads it."""
        try:
            opened: Link = yield effect
        except TransportError:
            self.metadata.forget_broker(broker_id)
            raise
        return opened

    def give_back(self, links: Iterable[Link]) -> None:
        """Keeps connections of `take_link` for the next caller. Closes a connection with an unread answer."""
        for link in links:
            if link.is_open and not link.in_flight:
                self._idle.setdefault(link.address, []).append(link)
            else:
                link.close()

    def address_of(self, broker_id: int) -> Conversation[Address]:
        """Returns the address of a broker. Raises `KafkaError` BROKER_NOT_AVAILABLE if no such broker is alive."""
        if broker_id not in self.metadata.brokers:
            yield from self.refresh([])
        address = self.metadata.brokers.get(broker_id)
        if address is None:
            self.metadata.forget_broker(broker_id)
            raise self.metadata.no_broker(broker_id)
        return address

    def _reach(self, addresses: Sequence[Address]) -> Conversation[Link]:
        """Connects to the first address that answers. Each address gets an equal part of the remaining time."""
        failures: list[TransportError] = []
        deadline = self.deadline()
        for number, address in enumerate(addresses):
            try:
                opened: Link = yield Open(address, timeout_s=deadline.left_s() / (len(addresses) - number))
            except TransportError as error:
                failures.append(error)
                continue
            self._links[address] = opened
            return opened
        if len(failures) == 1:
            raise failures[0]
        raise ConnectError("no broker could be reached: " + "; ".join(str(failure) for failure in failures))

    # Metadata

    def refresh(self, topics: Iterable[str] | None = None, *, auto_create: bool = False) -> Conversation[MetadataResponse]:
        """Asks a broker for the brokers and some topics (None: all), stores the answer in the cache and returns it. With `auto_create` the
        broker may create missing topics.
        """
        names = None if topics is None else sorted(set(topics))
        return (yield from self.retrying(lambda: self._ask_metadata(names, auto_create), codes=frozenset()))

    def _ask_metadata(self, names: Sequence[str] | None, auto_create: bool) -> Conversation[MetadataResponse]:
        link = yield from self.any_link()
        wanted: list[MetadataRequestTopic] | None
        if link.version_of(MetadataRequest.API_KEY) == 0:
            wanted = [] if names is None else [MetadataRequestTopic(name=name) for name in names]
        else:
            wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer: MetadataResponse = yield Ask(link, MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create))
        self.metadata.learn(answer)
        return answer

    def topic(self, name: str, *, auto_create: bool = False) -> Conversation[MetadataResponseTopic]:
        """Returns the metadata of a topic. With `auto_create` it asks the broker to create a missing topic, and waits for the topic. Raises
        `UnknownTopicError` if there is no such topic.
        """
        known = self.metadata.topics.get(name)
        if known is not None:
            return known
        codes = RETRIABLE if auto_create else RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return (yield from self.retrying(lambda: self._ask_topic(name, auto_create), codes=codes))

    def _ask_topic(self, name: str, auto_create: bool) -> Conversation[MetadataResponseTopic]:
        answer = yield from self.refresh([name], auto_create=auto_create)
        for topic in answer.topics:
            if topic.name == name and not topic.error_code:
                return topic
            if topic.error_code and (auto_create or topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise refused(error_code(topic.error_code), f"topic {name!r}{_ADVICE.get(topic.error_code, '')}")
        raise (yield from self.unknown_topic(name))

    def unknown_topic(self, name: str) -> Conversation[KafkaError]:
        """Returns the error for a topic that does not exist. Its text suggests a similar existing name, if there is one."""
        hint = nearest_hint(name, (yield from self.topic_names()))
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} not found{hint}")

    def topic_names(self) -> Conversation[list[str]]:
        answer = yield from self.refresh(None)
        return sorted(topic.name for topic in answer.topics if topic.name is not None and not topic.error_code)

    def partitions(self, topic: str) -> Conversation[list[int]]:
        found = yield from self.topic(topic)
        return sorted(partition.partition_index for partition in found.partitions)

    def leader(self, partition: TopicPartition) -> Conversation[int]:
        """Returns the id of a partition's leader. Raises `KafkaError` if there is no leader or no such partition."""
        leader = self.metadata.leader_of(partition)
        if leader >= 0:
            return leader
        self.metadata.topics.pop(partition.topic, None)
        yield from self.topic(partition.topic)
        leader = self.metadata.leader_of(partition)
        if leader < 0:
            raise self.metadata.no_leader(partition)
        return leader

    def by_leader(self, partitions: Iterable[TopicPartition]) -> Conversation[dict[int, list[TopicPartition]]]:
        """Groups partitions by leader. Raises `KafkaError` if a partition has no leader."""
        wanted = list(partitions)
        missing = sorted({partition.topic for partition in wanted if self.metadata.leader_of(partition) < 0})
        if missing:
            yield from self.refresh(missing)
        grouped: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            leader = self.metadata.leader_of(partition)
            grouped.setdefault(leader if leader >= 0 else (yield from self.leader(partition)), []).append(partition)
        return grouped

    def leaders(
        self, partitions: Sequence[TopicPartition]
    ) -> Conversation[tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]]:
        """Groups partitions by leader, and returns the reason for each partition without a leader. Asks the cluster at most once."""
        missing = sorted({partition.topic for partition in partitions if self.metadata.leader_of(partition) < 0})
        codes: dict[str | None, int] = {}
        if missing:
            codes = {topic.name: topic.error_code for topic in (yield from self.refresh(missing)).topics}
        found: dict[int, list[TopicPartition]] = {}
        reasons: dict[TopicPartition, KafkaError] = {}
        for partition in partitions:
            leader = self.metadata.leader_of(partition)
            if leader >= 0:
                found.setdefault(leader, []).append(partition)
            elif partition.topic in self.metadata.topics:
                reasons[partition] = self.metadata.no_leader(partition)
            else:
                code = codes.get(partition.topic) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                reasons[partition] = refused(error_code(code), f"topic {partition.topic!r}")
        return found, reasons

    # Coordinators

    def coordinator(self, kind: int, key: str) -> Conversation[int]:
        """Returns the id of the coordinator of a group or transactional id. Asks again while there is none."""
        known = self.metadata.coordinators.get((kind, key))
        if known is not None:
            return known
        found = yield from self.retrying(lambda: self._find_coordinator(kind, key))
        self.metadata.coordinators[kind, key] = found
        return found

    def forget_coordinator(self, kind: int, key: str) -> None:
        self.metadata.coordinators.pop((kind, key), None)

    def coordinator_link(self, kind: int, key: str, *, is_own: bool = False) -> Conversation[Link]:
        """Returns a shared or separate connection to the coordinator of `key`. Forgets a coordinator that cannot be reached."""
        try:
            return (yield from (self.take_link if is_own else self.link)((yield from self.coordinator(kind, key))))
        except TransportError:
            self.forget_coordinator(kind, key)
            raise
        except KafkaError as error:
            if error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                raise
            self.forget_coordinator(kind, key)
            raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {_KINDS[kind]} {key!r} is not alive") from None

    def ask_once(
        self, kind: int, key: str, body: Request, *, version: int | None = None, timeout_s: float | None = None
    ) -> Conversation[Any]:
        """Sends a request to the coordinator of `key`, without retries. Forgets the coordinator if it does not answer."""
        link = yield from self.coordinator_link(kind, key)
        try:
            return (yield Ask(link, body, version, timeout_s))
        except TransportError:
            self.forget_coordinator(kind, key)
            raise

    def _find_coordinator(self, kind: int, key: str) -> Conversation[int]:
        from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        link = yield from self.any_link()
        if link.version_of(FindCoordinatorRequest.API_KEY) >= 4:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        answer: FindCoordinatorResponse = yield Ask(link, request)
        found: Any = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise refused(error_code(found.error_code), found.error_message or f"no coordinator for {_KINDS[kind]} {key!r}")
        self.metadata.brokers.setdefault(found.node_id, Address(found.host, found.port))
        return int(found.node_id)

    # Asking

    def ask_any(self, body: Request, *, timeout_s: float | None = None) -> Conversation[Any]:
        return (yield from self._ask(self.any_link, body, None, timeout_s))

    def ask_broker(self, broker_id: int, body: Request, *, timeout_s: float | None = None, version: int | None = None) -> Conversation[Any]:
        return (yield from self._ask(lambda: self.link(broker_id), body, version, timeout_s))

    def _ask(
        self, reach: Callable[[], Conversation[Link]], body: Request, version: int | None, timeout_s: float | None
    ) -> Conversation[Any]:
        """Sends a request. After a broken connection it sends the request once more, if the broker cannot have executed the request or the
        request changes nothing.
        """
        link = yield from reach()
        try:
            return (yield Ask(link, body, version, timeout_s))
        except ConnectError as error:
            if not isinstance(error, NotSentError) and not API_NAMES[body.API_KEY].startswith(_QUESTIONS):
                raise
            again = yield from reach()
        return (yield Ask(again, body, version, timeout_s))

    def ask_controller(self, body: Request, *, timeout_s: float | None = None) -> Conversation[Any]:
        """Sends a request to the controller, or to any broker if the metadata names no controller (KRaft brokers forward the request)."""
        if self.metadata.controller_id < 0:
            yield from self.refresh([])
        if self.metadata.controller_id in self.metadata.brokers:
            return (yield from self.ask_broker(self.metadata.controller_id, body, timeout_s=timeout_s))
        return (yield from self.ask_any(body, timeout_s=timeout_s))

    def ask_coordinator(
        self, kind: int, key: str, body: Request, *, timeout_s: float | None = None, lost: list[TransportError] | None = None
    ) -> Conversation[Any]:
        """Sends a request to the coordinator of `key`. Looks the coordinator up again and repeats the request if the coordinator has moved
        or the connection broke. Returns answers with any other error. `lost` gets the errors of earlier attempts, which may have taken
        effect.
        """

        def ask() -> Conversation[Any]:
            try:
                answer = yield from self.ask_once(kind, key, body, timeout_s=timeout_s)
            except TransportError as error:
                if lost is not None:
                    lost.append(error)
                raise
            code = error_code(first_code(answer))
            if code in COORDINATOR_MOVED:
                self.forget_coordinator(kind, key)
                raise refused(code, f"the coordinator of {_KINDS[kind]} {key!r}")
            return answer

        return (yield from self.retrying(ask, codes=COORDINATOR_MOVED))

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """Returns the deadline of a call that begins now. The default of `timeout_s` is the cluster's."""
        return Deadline(self.timeout_s if timeout_s is None else timeout_s, self.now)

    def in_time(self, conversation: Conversation[T], timeout_s: float | None = None) -> Conversation[T]:
        """Limits a whole conversation, with all its requests and retries, to `timeout_s` (default: the cluster's)."""
        return within(conversation, self.deadline(timeout_s))

    def retrying(
        self, attempt: Callable[[], Conversation[T]], *, codes: frozenset[ErrorCode] = RETRIABLE, timeout_s: float | None = None
    ) -> Conversation[T]:
        """Runs `attempt` until it succeeds, fails with an error code outside `codes`, or the time is over. It does not repeat an attempt
        after `RequestTimeoutError` or `MalformedResponseError`. It repeats the attempt after one broken connection. Shared connections that
        existed at the start of the call may have broken while they were idle, so each of them allows one more repetition. After a broken
        connection it forgets all coordinators. No attempt begins after `timeout_s`; a running attempt may use the cluster's timeout, if
        that is longer.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        backoff = Backoff(self.deadline(limit_s))
        end = self.deadline(max(limit_s, self.timeout_s))
        lost, lost_max = 0, 1 + len(self._links)
        while True:
            try:
                return (yield from within(attempt(), end))
            except ApiError as error:
                if error.code not in codes or backoff.is_exhausted():
                    raise
            except RequestTimeoutError:
                raise
            except ConnectError:
                lost += 1
                if lost > lost_max or backoff.is_exhausted():
                    raise
                self.metadata.coordinators.clear()
            yield Sleep(backoff.next_s())

    def in_rounds(
        self,
        attempt: Callable[[], Conversation[ClientError | None]],
        left: Callable[[], Collection[TopicPartition]],
        size: Callable[[], int],
        deadline: Deadline,
    ) -> Conversation[None]:
        """Runs `attempt`, which returns its decisive failure or None, while partitions are left.

        After a temporary failure it forgets the leaders of these partitions, and waits. It raises a permanent failure, and a temporary
        failure at the deadline. It renews the deadline if `size`, the remaining work, has become smaller.
        """
        backoff = Backoff(deadline)
        while partitions := left():
            before = size()
            failure: ClientError | None
            try:
                failure = yield from within(attempt(), deadline)
            except (KafkaError, TransportError) as error:
                failure = error
            if size() < before:
                deadline.renew()
                backoff = Backoff(deadline)
            if failure is not None:
                if not is_temporary(failure) or backoff.is_exhausted():
                    raise failure
                self.metadata.forget(partitions)
                yield Sleep(backoff.next_s())


_ADVICE: Mapping[int, str] = {
    ErrorCode.INVALID_REPLICATION_FACTOR: " cannot be created: fewer brokers run than the brokers' default.replication.factor"
}
"""Explanations of errors of an automatic creation."""


def is_temporary(failure: ClientError) -> bool:
    """Whether the same request may succeed later: a broker sent no usable answer, or its refusal is retriable."""
    return isinstance(failure, TransportError) or (isinstance(failure, KafkaError) and failure.is_retriable)


def decisive(failures: Iterable[ClientError | None]) -> ClientError | None:
    """Returns the failure that decides about a retry: the first permanent failure, else the first failure; None if there is no failure."""
    return min((failure for failure in failures if failure is not None), key=is_temporary, default=None)


def nearest_hint(name: str, known: Iterable[str], unfit: Container[str] = ()) -> str:
    """Returns a text such as `; did you mean 'orders'?` with the most similar known name. Returns an empty text if no name is similar, or
    if the most similar name is in `unfit`.
    """
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near and near[0] not in unfit else ""
