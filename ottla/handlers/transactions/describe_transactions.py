"""DescribeTransactions: state, producer, start time and partitions of transactional ids that this broker coordinates.

Behaviour: each transactional id has its own result, for example NOT_COORDINATOR or TRANSACTIONAL_ID_NOT_FOUND. Partitions of topics that
the principal may not describe are omitted (KIP-664). Ottla's own tools also get the client that used the id last, in tagged fields that
Kafka does not have.

Version notes: none.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Gathering
from ottla.handlers.rights import is_allowed, permits
from ottla.security.acl import AclOperation, ResourceType
from ottla.transactions.metadata import TransactionMetadata
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

OWN_TOOLS = "ottla"


def handle(broker: Broker, request: RequestContext, body: DescribeTransactionsRequest) -> DescribeTransactionsResponse | Pending:
    pending = Pending()
    response = DescribeTransactionsResponse()
    if not body.transactional_ids:
        return response
    gathering = Gathering(len(body.transactional_ids), lambda: pending.complete(response))

    def described(state: TransactionState, found: TransactionMetadata | ErrorCode | None) -> None:
        fill_in(broker, request, state, found)
        gathering.part_done()

    for transactional_id in body.transactional_ids:
        state = TransactionState(transactional_id=transactional_id)
        response.transaction_states.append(state)
        if not transactional_id:
            described(state, ErrorCode.INVALID_REQUEST)
        elif not is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            described(state, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        else:
            broker.transactions.describe(transactional_id, lambda found, state=state: described(state, found))  # type: ignore[misc]
    return response if pending.is_done else pending


def fill_in(broker: Broker, request: RequestContext, state: TransactionState, found: TransactionMetadata | ErrorCode | None) -> None:
    if found is None:
        state.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return
    if isinstance(found, ErrorCode):
        state.error_code = found
        return
    if request.connection.client_software_name == OWN_TOOLS:
        state.ottla_client_id, state.ottla_client_host, _ = broker.transactions.client_of(found.transactional_id)
    state.transaction_state = found.state.value
    state.transaction_timeout_ms = found.timeout_ms
    state.transaction_start_time_ms = found.start_timestamp_ms
    state.producer_id = found.producer_id
    state.producer_epoch = found.producer_epoch
    topics: dict[str, TopicData] = {}
    for name, index in sorted(found.partitions):
        if name not in topics and not permits(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        topics.setdefault(name, TopicData(topic=name)).partitions.append(index)
    state.topics = list(topics.values())
