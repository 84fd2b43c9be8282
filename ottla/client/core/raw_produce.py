"""Sends record batches that are encoded already to the leaders of their partitions, several requests at a time; as a procedure.

The batches of a partition are appended in the order given. A request holds at most one batch a partition; up to `IN_FLIGHT_MAX` requests
leave for each leader before the first answer is awaited. After a failure that may pass (a leader moved, a connection was lost) everything
from the first batch without an answer is sent again as it is: the producer id and sequence numbers in its header let the broker drop what
it has already. Batches without a producer id are sent one at a time, and never again once an answer was lost: `OutcomeUnknownError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.core.admin import timeout_ms
from ottla.client.core.backoff import Backoff
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.procedure import Ask, AskAll, Pause, Procedure
from ottla.client.errors import RETRIABLE, ClientError, KafkaError, OutcomeUnknownError, TransportError, refused
from ottla.wire.batch_header import Buffer, read_batch_header
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

IN_FLIGHT_MAX = 5
"""Brokers remember the sequence numbers of five batches a partition, so that duplicates of earlier ones would not be recognized."""

REQUEST_BYTES_MAX = 1024 * 1024
"""Batches beyond this wait for the next request; a single larger one is sent alone."""


class Lane:
    """The batches of one partition, and how many of them are acknowledged."""

    def __init__(self, partition: TopicPartition, batches: Sequence[Buffer]) -> None:
        self.partition = partition
        self.batches = batches
        self.acknowledged = 0
        self.base_offset = -1
        self.is_stuck = False
        self.is_idempotent = all(read_batch_header(batch).producer_id >= 0 for batch in batches)

    @property
    def is_done(self) -> bool:
        return self.acknowledged == len(self.batches)


class _Planned(NamedTuple):
    """A request and the lanes whose next batch is in it."""

    ask: Ask
    lanes: list[Lane]


def produce_batches(
    cluster: ClusterCore,
    batches: Mapping[TopicPartition, Sequence[Buffer]],
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    version: int | None = None,
    timeout_s: float | None = None,
) -> Procedure[dict[TopicPartition, int]]:
    """Appends encoded record batches (format 2) and returns the offset of each partition's first record.

    `acks` is -1 (all in-sync replicas) or 1. Gives up `timeout_s` after the last progress. `KafkaError` when a broker refuses a batch for
    good; batches before it may have been appended.
    """
    lanes = [Lane(partition, some) for partition, some in batches.items() if some]
    limit_s = cluster.timeout_s if timeout_s is None else timeout_s
    backoff = Backoff(cluster.now() + limit_s)
    while waiting := [lane for lane in lanes if not lane.is_done]:
        before = sum(lane.acknowledged for lane in lanes)
        failure: ClientError | None
        try:
            failure = yield from _send_round(cluster, waiting, acks, transactional_id, version)
        except (KafkaError, TransportError) as error:
            failure = error
        if sum(lane.acknowledged for lane in lanes) > before:
            backoff = Backoff(cluster.now() + limit_s)
        if failure is not None:
            if not _may_pass(failure) or backoff.is_exhausted(cluster.now()):
                raise failure
            cluster.metadata.forget([lane.partition for lane in waiting])
            yield Pause(backoff.next_s())
    return {lane.partition: lane.base_offset for lane in lanes}


def _may_pass(failure: ClientError) -> bool:
    return isinstance(failure, TransportError) or (isinstance(failure, KafkaError) and failure.code in RETRIABLE)


def _send_round(
    cluster: ClusterCore, waiting: Sequence[Lane], acks: int, transactional_id: str | None, version: int | None
) -> Procedure[ClientError | None]:
    """Sends what may be under way at once, takes in all answers, and returns the first failure."""
    by_partition = {lane.partition: lane for lane in waiting}
    planned: list[_Planned] = []
    for broker_id, partitions in (yield from cluster.by_leader(by_partition)).items():
        link = yield from cluster.link(broker_id)
        for chosen in _requests([by_partition[partition] for partition in partitions]):
            request = _request(chosen, acks, transactional_id, timeout_ms(cluster))
            planned.append(_Planned(Ask(link, request, version), [lane for lane, _ in chosen]))
    answers = yield AskAll(tuple(plan.ask for plan in planned))
    failure: ClientError | None = None
    for lane in waiting:
        lane.is_stuck = False
    for plan, answer in zip(planned, answers, strict=True):
        failed = _settle(plan.lanes, answer)
        failure = failure or failed
    return failure


def _requests(lanes: Sequence[Lane]) -> Iterable[list[tuple[Lane, Buffer]]]:
    """The batches of the next requests to one leader, at most one a partition in each."""
    cursors = {lane.partition: lane.acknowledged for lane in lanes}
    for _ in range(IN_FLIGHT_MAX):
        chosen: list[tuple[Lane, Buffer]] = []
        size = 0
        for lane in lanes:
            cursor = cursors[lane.partition]
            if cursor == len(lane.batches) or (cursor > lane.acknowledged and not lane.is_idempotent):
                continue
            batch = lane.batches[cursor]
            if chosen and size + len(batch) > REQUEST_BYTES_MAX:
                continue
            chosen.append((lane, batch))
            size += len(batch)
            cursors[lane.partition] = cursor + 1
        if not chosen:
            return
        yield chosen


def _request(chosen: Sequence[tuple[Lane, Buffer]], acks: int, transactional_id: str | None, wait_ms: int) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for lane, batch in chosen:
        topics.setdefault(lane.partition.topic, []).append(PartitionProduceData(index=lane.partition.partition, records=batch))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=wait_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=partitions) for topic, partitions in topics.items()],
    )


def _settle(lanes: Sequence[Lane], answer: ProduceResponse | ClientError) -> ClientError | None:
    """Notes what one answer acknowledges; the first failure in it. A lane behind a failure waits for the next round."""
    if isinstance(answer, ClientError):
        for lane in lanes:
            lane.is_stuck = True
            if not lane.is_idempotent:
                return OutcomeUnknownError(
                    f"a batch for {lane.partition} was sent and its answer lost: {answer}; it may have been appended"
                )
        return answer
    results: dict[tuple[str, int], Any] = {
        (topic.name, result.index): result for topic in answer.responses for result in topic.partition_responses
    }
    failure: ClientError | None = None
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
        failure = failure or refused(code, message)
    return failure
