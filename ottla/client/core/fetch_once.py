"""One Fetch of each leader, and the failure of each partition, as a conversation. The caller decides about retries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.core.cluster import ClusterCore, is_temporary
from ottla.client.core.conversation import Ask, AskAll, Conversation
from ottla.client.core.fetching import Fetched, FetchLimits, fetch_request, read_answer
from ottla.client.core.operation import operation
from ottla.client.errors import ClientError, KafkaError, TransportError

Failures = dict[TopicPartition, ClientError]


@operation
def fetch_once(
    cluster: ClusterCore,
    positions: Mapping[TopicPartition, int],
    level: int,
    limits: FetchLimits,
    *,
    read: Callable[[TopicPartition, int, Any, bool], Fetched] | None = None,
) -> Conversation[tuple[list[Fetched], Failures]]:
    """Returns the partitions whose position advances, and the failures of others. Forgets the leaders of partitions with a temporary
    failure. `read` is as in `read_answer`."""
    asks: list[Ask] = []
    asked: list[dict[TopicPartition, int]] = []
    found: list[Fetched] = []
    failures: Failures = {}
    leaders, reasons = yield from cluster.leaders(list(positions))
    failures.update(reasons)
    try:
        for broker_id, partitions in leaders.items():
            some = {partition: positions[partition] for partition in partitions}
            try:
                link = yield from cluster.take_link(broker_id)
            except (KafkaError, TransportError) as error:
                failures.update(dict.fromkeys(some, error))
                continue
            asks.append(Ask(link, fetch_request(some, level, limits), None, cluster.timeout_s + limits.max_wait_ms / 1000))
            asked.append(some)
        answers = yield AskAll(tuple(asks))
    finally:
        cluster.give_back(ask.link for ask in asks)
    for ask, some, answer in zip(asks, asked, answers, strict=True):
        try:
            if isinstance(answer, ClientError):
                raise answer
            for one in read_answer(some, answer, level, str(ask.link.address), read):
                if not isinstance(one, Fetched):
                    failures[one[0]] = one[1]
                elif one.next_offset > one.start:
                    found.append(one)
        except (KafkaError, TransportError) as error:
            failures.update(dict.fromkeys(some, error))
    cluster.metadata.forget(partition for partition, failure in failures.items() if is_temporary(failure))
    return found, failures
