"""Administration of transactions: lists and describes them, and ends hanging ones, as conversations (`conversation.py`) on a `ClusterCore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin import check, refusal
from ottla.client.core.cluster import TRANSACTION, ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.core.topic_lists import each_partition, first_code, partitions_in, topic_list
from ottla.client.errors import KafkaError, refused
from ottla.wire.apis import KEYS

INIT_PRODUCER_ID, LIST_TRANSACTIONS = KEYS["InitProducerId"], KEYS["ListTransactions"]
TWO_PHASE_VERSION = 6
NO_TIMEOUT_MS = 0x7FFFFFFF
ONGOING = "Ongoing"


class ListedTransaction(NamedTuple):
    """One transactional id in its coordinator's list."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """One transactional id in detail. `start_ms` is -1 if no transaction is open. The client fields are empty if the broker does not send
    them.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]
    client_id: str = ""
    client_host: str = ""

    @property
    def is_two_phase(self) -> bool:
        """Whether an external coordinator ends the transactions (KIP-939), which then have no timeout."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def is_open(self) -> bool:
        return self.state == ONGOING


@operation
def list_transactions(
    cluster: ClusterCore,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> Conversation[list[ListedTransaction]]:
    """Returns the transactional ids of all coordinators, sorted. Raises `UnsupportedVersionError` if a broker is too old for a filter."""
    from ottla.wire.messages.list_transactions import ListTransactionsRequest

    yield from cluster.refresh([])
    found = []
    for broker_id in sorted(cluster.metadata.brokers):
        connection = yield from cluster.link(broker_id)
        version = connection.version_of(LIST_TRANSACTIONS)
        if (duration_ms >= 0 and version < 1) or (pattern is not None and version < 2):
            raise refused(ErrorCode.UNSUPPORTED_VERSION, f"broker {broker_id} is too old for this filter")
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        answer = yield from cluster.ask_broker(broker_id, request)
        check(answer.error_code, None, f"transactions of broker {broker_id}")
        found += [
            ListedTransaction(state.transactional_id, broker_id, state.producer_id, state.transaction_state)
            for state in answer.transaction_states
        ]
    return sorted(found)


@operation
def describe_transaction(cluster: ClusterCore, transactional_id: str) -> Conversation[TransactionDescription]:
    from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = (yield from cluster.ask_coordinator(TRANSACTION, transactional_id, request)).transaction_states
    check(state.error_code, None, f"transactional id {transactional_id!r}")
    return TransactionDescription(
        transactional_id,
        (yield from cluster.coordinator(TRANSACTION, transactional_id)),
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        partitions_in(state.topics),
        state.ottla_client_id,
        state.ottla_client_host,
    )


@operation
def describe_producers(
    cluster: ClusterCore, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
) -> Conversation[dict[TopicPartition, list[Any] | KafkaError]]:
    """Returns the active producers of each partition, as the leader (or the replica on `broker_id`) knows them, or the error. Without
    `broker_id`, raises KafkaError if a partition has no leader.
    """
    from ottla.wire.messages import describe_producers as wire

    wanted = list(partitions)
    by_broker = (yield from cluster.by_leader(wanted)) if broker_id is None else {broker_id: wanted}
    found: dict[TopicPartition, list[Any] | KafkaError] = {}
    for number, some in by_broker.items():
        topics = topic_list(wire.TopicRequest, {one: one.partition for one in sorted(some)})
        answer = yield from cluster.ask_broker(number, wire.DescribeProducersRequest(topics=topics))
        for partition, result in each_partition(answer.topics):
            failed = refusal(result.error_code, result.error_message, f"producers of {partition}")
            found[partition] = failed or list(result.active_producers)
    return found


@operation
def write_abort_marker(
    cluster: ClusterCore, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> Conversation[None]:
    """Makes the leader of a partition write an abort marker: the last resort for a transaction that no coordinator knows."""
    from ottla.wire.messages import write_txn_markers as wire

    marker = wire.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[wire.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=coordinator_epoch,
    )
    answer = yield from cluster.ask_broker((yield from cluster.leader(partition)), wire.WriteTxnMarkersRequest(markers=[marker]))
    check(first_code(answer), None, f"abort marker in {partition}")


@operation
def fence_producer(cluster: ClusterCore, transactional_id: str, *, timeout_ms: int = 60_000) -> Conversation[None]:
    """Takes over a transactional id: aborts its open transaction and fences its producer."""
    from ottla.client.core.producer_identity import ProducerIdentity

    yield from ProducerIdentity(cluster, transactional_id=transactional_id, timeout_ms=timeout_ms).initialize()


@operation
def list_prepared(cluster: ClusterCore) -> Conversation[list[TransactionDescription]]:
    """Returns the open transactions of two-phase commit (KIP-939). A broker does not know which of them are prepared."""
    listed = yield from list_transactions(cluster, states=[ONGOING])
    open_now = [found.transactional_id for found in listed]
    described = []
    for transactional_id in open_now:
        described.append((yield from describe_transaction(cluster, transactional_id)))
    return [found for found in described if found.is_open and found.is_two_phase]


@operation
def finish_prepared(
    cluster: ClusterCore, transactional_id: str, decide: Callable[[int, int], bool]
) -> Conversation[tuple[int, int, bool] | None]:
    """Ends a prepared transaction as its owner would after a restart, and fences the former owner.

    `decide(producer_id, epoch)` returns True for commit, False for abort. Returns the transaction's producer id, its epoch and this
    decision, None if no transaction is open.
    """
    from ottla.client.core.producer_identity import ProducerIdentity

    coordinator = yield from cluster.link((yield from cluster.coordinator(TRANSACTION, transactional_id)))
    if coordinator.version_of(INIT_PRODUCER_ID) < TWO_PHASE_VERSION:
        raise refused(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for two-phase commit")
    owner = ProducerIdentity(cluster, transactional_id=transactional_id)
    producer_id, epoch = yield from owner.keep_prepared()
    if producer_id < 0:
        return None
    is_commit = decide(producer_id, epoch)
    yield from owner.end_kept(is_commit=is_commit)
    return producer_id, epoch, is_commit


@operation
def owners_of(cluster: ClusterCore, producer_ids: Iterable[int]) -> Conversation[Mapping[int, ListedTransaction]]:
    """Returns the transactional ids of producer ids, as far as a coordinator knows them."""
    wanted = sorted(set(producer_ids))
    listed = (yield from list_transactions(cluster, producer_ids=wanted)) if wanted else []
    return {found.producer_id: found for found in listed}
