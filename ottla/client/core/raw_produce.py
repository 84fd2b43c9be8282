"""Sends encoded record batches to the leaders of their partitions, several requests at a time.

The batches of a partition are appended in the given order. A request contains at most one batch of each partition, and up to
`IN_FLIGHT_MAX` requests are in flight to each leader. After a temporary failure (a leader moved, a connection was lost) no more requests
are sent until each request in flight is answered or lost. Then each partition's batches from the first unacknowledged one on are sent again
unchanged: the broker drops duplicates by the producer id and the sequence numbers in their headers. Batches without a producer id are sent
one at a time for each partition. If such a batch was sent and its answer is lost, it is not sent again, and `OutcomeUnknownError` is
raised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.core.backoff import Deadline
from ottla.client.core.cluster import ClusterCore, decisive
from ottla.client.core.conversation import Ask, AskRolling, Conversation
from ottla.client.core.topic_lists import each_partition, topic_list
from ottla.client.errors import ClientError, NotSentError, OutcomeUnknownError, TransportError, refused
from ottla.wire.batch_header import Buffer, read_batch_header
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

if TYPE_CHECKING:
    from ottla.client.core.ports import Link

IN_FLIGHT_MAX = 5
"""Maximum number of requests in flight to one leader. Brokers remember the last five batches of a producer in a partition; with more in
flight they would not recognize all duplicates.
"""

REQUEST_BYTES_MAX = 1024 * 1024
"""Size limit of a request's batches, in bytes. A single larger batch is sent alone."""


class ProduceLane:
    """The batches of one partition, how many of them are acknowledged, and how many are acknowledged or in flight."""

    def __init__(self, partition: TopicPartition, batches: Sequence[Buffer]) -> None:
        self.partition = partition
        self.batches = batches
        self.acknowledged = 0
        self.sent = 0
        self.base_offset = -1
        self.is_stuck = False
        self.is_idempotent = all(read_batch_header(batch).producer_id >= 0 for batch in batches)

    @property
    def is_done(self) -> bool:
        return self.acknowledged == len(self.batches)

    def begin_round(self) -> None:
        """Continues at the first unacknowledged batch."""
        self.sent = self.acknowledged
        self.is_stuck = False

    def may_send(self) -> bool:
        under_way = self.sent - self.acknowledged
        return not self.is_stuck and self.sent < len(self.batches) and under_way < (IN_FLIGHT_MAX if self.is_idempotent else 1)


def produce_batches(
    cluster: ClusterCore,
    batches: Mapping[TopicPartition, Sequence[Buffer]],
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    version: int | None = None,
    timeout_s: float | None = None,
) -> Conversation[dict[TopicPartition, int]]:
    """Appends encoded record batches (format 2) and returns the offset of each partition's first record (-1: unknown).

    `acks` is -1 (all in-sync replicas) or 1. Raises `KafkaError` if a broker refuses a batch permanently, `OutcomeUnknownError` if the
    answer to a batch without a producer id is lost, and the last temporary error if no batch is acknowledged for `timeout_s`, with all
    look-ups and connections. After an error some of the batches may have been appended.
    """
    deadline = cluster.deadline(timeout_s)
    return append_batches(cluster, batches, deadline, acks=acks, transactional_id=transactional_id, version=version)


def append_batches(
    cluster: ClusterCore,
    batches: Mapping[TopicPartition, Sequence[Buffer]],
    deadline: Deadline,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    version: int | None = None,
) -> Conversation[dict[TopicPartition, int]]:
    """Like `produce_batches`, with the deadline of the caller, which each acknowledged batch renews."""
    lanes = [ProduceLane(partition, some) for partition, some in batches.items() if some]
    yield from cluster.in_rounds(
        lambda: _send_round(cluster, lanes, deadline, acks, transactional_id, version),
        left=lambda: [lane.partition for lane in lanes if not lane.is_done],
        size=lambda: -sum(lane.acknowledged for lane in lanes),
        deadline=deadline,
    )
    return {lane.partition: lane.base_offset for lane in lanes}


def _send_round(
    cluster: ClusterCore,
    lanes: Sequence[ProduceLane],
    deadline: Deadline,
    acks: int,
    transactional_id: str | None,
    version: int | None,
) -> Conversation[ClientError | None]:
    """Sends the remaining batches until a request fails, and waits for all answers. Returns the decisive failure, or None."""
    by_partition = {lane.partition: lane for lane in lanes if not lane.is_done}
    leaders: list[_Leader] = []
    for broker_id, partitions in (yield from cluster.by_leader(by_partition)).items():
        leaders.append(_Leader((yield from cluster.link(broker_id)), [by_partition[partition] for partition in partitions]))
    for lane in by_partition.values():
        lane.begin_round()

    def ask(link: Link, chosen: Sequence[ProduceLane]) -> Ask:
        return Ask(link, _request(chosen, acks, transactional_id, deadline.left_ms()), version, cluster.timeout_s)

    window = _Window(leaders, ask, deadline)
    yield AskRolling(window.asks(), window.note)
    return window.failure


class _Leader:
    """A leader's connection, its lanes, and the number of requests in flight to it."""

    def __init__(self, link: Link, lanes: Sequence[ProduceLane]) -> None:
        self.link = link
        self.lanes = lanes
        self.under_way = 0

    def choose(self) -> list[ProduceLane]:
        """Returns the lanes whose next batch is part of the next request. The result is empty if no batch may be sent now."""
        chosen: list[ProduceLane] = []
        size = 0
        for lane in self.lanes if self.under_way < IN_FLIGHT_MAX else ():
            if not lane.may_send():
                continue
            batch = lane.batches[lane.sent]
            if chosen and size + len(batch) > REQUEST_BYTES_MAX:
                continue
            chosen.append(lane)
            size += len(batch)
        return chosen


class _Window:
    """The requests in flight to all leaders, and the decisive failure."""

    def __init__(self, leaders: Sequence[_Leader], ask: Callable[[Link, Sequence[ProduceLane]], Ask], deadline: Deadline) -> None:
        self.failure: ClientError | None = None
        self._leaders = leaders
        self._ask = ask
        self._deadline = deadline
        self._under_way: deque[tuple[_Leader, list[ProduceLane]]] = deque()

    def asks(self) -> Iterator[Ask | None]:
        """Yields the requests in order, and None if an answer must be noted before the next request may be sent."""
        while True:
            is_full = True
            for leader in self._leaders:
                if self.failure is None and (chosen := leader.choose()):
                    is_full = False
                    yield self._send(leader, chosen)
            if is_full:
                if not self._under_way:
                    return
                yield None

    def _send(self, leader: _Leader, chosen: list[ProduceLane]) -> Ask:
        ask = self._ask(leader.link, chosen)
        for lane in chosen:
            lane.sent += 1
        leader.under_way += 1
        self._under_way.append((leader, chosen))
        return ask

    def note(self, answer: ProduceResponse | ClientError) -> None:
        leader, lanes = self._under_way.popleft()
        leader.under_way -= 1
        failure = _settle(lanes, answer)
        if failure is None:
            self._deadline.renew()
        self.failure = decisive([self.failure, failure])


def _request(chosen: Sequence[ProduceLane], acks: int, transactional_id: str | None, wait_ms: int) -> ProduceRequest:
    data = {lane.partition: PartitionProduceData(index=lane.partition.partition, records=lane.batches[lane.sent]) for lane in chosen}
    topics = topic_list(TopicProduceData, data)
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=wait_ms, topic_data=topics)


def _settle(lanes: Sequence[ProduceLane], answer: ProduceResponse | ClientError) -> ClientError | None:
    """Notes the acknowledged batches of one answer. Returns the decisive failure, or None. A partition with a failure waits for the next
    round.
    """
    if isinstance(answer, ClientError):
        was_sent = isinstance(answer, TransportError) and not isinstance(answer, NotSentError)
        for lane in lanes:
            lane.is_stuck = True
            if was_sent and not lane.is_idempotent:
                return OutcomeUnknownError(
                    f"a batch for {lane.partition} was sent and its answer lost: {answer}; it may have been appended"
                )
        return answer
    results: dict[TopicPartition, Any] = dict(each_partition(answer.responses))
    failures: list[ClientError] = []
    for lane in lanes:
        result = results.get(lane.partition)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if result is None else error_code(result.error_code)
        if lane.is_stuck:
            continue
        if result is not None and (not code or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if not lane.acknowledged:
                lane.base_offset = result.base_offset
            lane.acknowledged += 1
            continue
        lane.is_stuck = True
        message = str(lane.partition) if result is None or not result.error_message else f"{lane.partition}: {result.error_message}"
        failures.append(refused(code, message))
    return decisive(failures)
