"""AddPartitionsToTxn: adds partitions to the ongoing transaction, or checks whether it has them.

Behaviour: either all partitions of a transaction are added or none. If one partition is unknown or the client may not write to it, the
others get OPERATION_NOT_ATTEMPTED. With `verify_only` nothing is added; a partition outside of the transaction gets TRANSACTION_ABORTABLE.

Version notes: 2 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588). 4 has several transactions, and verification (KIP-890). 5
has TRANSACTION_ABORTABLE; in 4 the error is INVALID_TXN_STATE. Brokers send 4 and 5 to each other. With an authorizer the sender of 4 and 5
needs only CLUSTER_ACTION. Without an authorizer clients may send them too, as @platformatic/kafka (Node) does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.errors import ErrorCode, WireError
from ottla.base.types import INTERNAL_TOPICS, TopicPartition
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Gathering
from ottla.handlers.rights import is_allowed, is_broker, is_mirrored, may_be_broker
from ottla.security.acl import AclOperation, ResourceType
from ottla.transactions.metadata import TRANSACTIONS_V2, ProducerIdAndEpoch
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE = 2
BATCHED_SINCE = 4
ABORTABLE_SINCE = 5

PARTITIONS_MAX = 20_000
"""Maximum number of partitions of one transaction in a request, because they are stored in one record."""

Codes = dict[TopicPartition, ErrorCode]


def handle(broker: Broker, request: RequestContext, body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | Pending:
    if request.version < BATCHED_SINCE:
        if count_of(body.v3_and_below_topics) > PARTITIONS_MAX:
            raise WireError(f"a transaction of more than {PARTITIONS_MAX} partitions")
    elif any(count_of(transaction.topics) > PARTITIONS_MAX for transaction in body.transactions):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    pending = handle_batch(broker, request, body) if request.version >= BATCHED_SINCE else handle_client(broker, request, body)
    if isinstance(pending, Pending) and pending.is_done:
        done: AddPartitionsToTxnResponse = pending.response
        return done
    return pending


def handle_client(broker: Broker, request: RequestContext, body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | Pending:
    """Executes a client's request, which has one transaction."""
    partitions = partitions_of(body.v3_and_below_topics)
    transactional_id = body.v3_and_below_transactional_id
    if not is_allowed(broker, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return answer_client(dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not transactional_id:
        return answer_client(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
    refused = refuse_partitions(broker, request, partitions)
    if refused:
        return answer_client({partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions})
    pending = Pending()

    def added(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and request.version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if not code:
            broker.transactions.note_client(transactional_id, request)
        pending.complete(answer_client(dict.fromkeys(partitions, code)))

    identity = ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    broker.transactions.add_partitions(transactional_id, identity, partitions, 0, added)
    return pending


def handle_batch(broker: Broker, request: RequestContext, body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | Pending:
    """Executes a request with several transactions, from a broker that leads their partitions or, without an authorizer, from a client."""
    if not broker.authorizer.allows_clients_everything(request.connection) and not is_broker(broker, request):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    pending = Pending()
    response = AddPartitionsToTxnResponse()
    if not body.transactions:
        return response
    gathering = Gathering(len(body.transactions), lambda: pending.complete(response))

    def finish(transaction: AddPartitionsToTxnTransaction, codes: Codes) -> None:
        if request.version < ABORTABLE_SINCE:
            codes = {key: ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code for key, code in codes.items()}
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topic_results(codes))
        )
        gathering.part_done()

    for transaction in body.transactions:
        run_one(broker, request, transaction, lambda codes, transaction=transaction: finish(transaction, codes))  # type: ignore[misc]
    return pending


def run_one(broker: Broker, request: RequestContext, transaction: AddPartitionsToTxnTransaction, done: Callable[[Codes], None]) -> None:
    partitions = partitions_of(transaction.topics)
    identity = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    transactional_id = transaction.transactional_id
    if not transactional_id:
        return done(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
    refused = unknown_partitions(broker, partitions)
    if refused:
        return done({partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions})
    if transaction.verify_only:
        return broker.transactions.verify_partitions(transactional_id, identity, partitions, done)

    def added(code: ErrorCode) -> None:
        if not code and not may_be_broker(broker, request):
            broker.transactions.note_client(transactional_id, request)
        done(dict.fromkeys(partitions, code))

    # A client of this version knows the second protocol of transactions, even if its other requests are of the first.
    broker.transactions.add_partitions(transactional_id, identity, partitions, TRANSACTIONS_V2, added)


def refuse_partitions(broker: Broker, request: RequestContext, partitions: Sequence[TopicPartition]) -> Codes:
    """Returns the partitions that a client cannot add, with their errors. Only coordinators add partitions of internal topics."""
    refused = unknown_partitions(broker, partitions)
    for partition in partitions:
        topic = partition.topic
        if topic in INTERNAL_TOPICS or not is_allowed(broker, request, AclOperation.WRITE, ResourceType.TOPIC, topic):
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif is_mirrored(broker, topic):
            refused[partition] = ErrorCode.POLICY_VIOLATION
    return refused


def unknown_partitions(broker: Broker, partitions: Sequence[TopicPartition]) -> Codes:
    unknown = [partition for partition in partitions if broker.metadata.partition(partition.topic, partition.partition) is None]
    return dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def count_of(topics: Sequence[AddPartitionsToTxnTopic]) -> int:
    return sum([len(topic.partitions) for topic in topics])


def partitions_of(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def answer_client(codes: Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(codes))


def topic_results(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), code in codes.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopicResult(name=name)
        topic.results_by_partition.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
    return list(topics.values())
