"""AddOffsetsToTxn: adds the offsets of a group to the ongoing transaction.

Behaviour: adds the group's partition of `__consumer_offsets`, as AddPartitionsToTxn adds other partitions. The client then sends the
offsets with TxnOffsetCommit. Clients of transactions v2 do not send this request.

Version notes: 2 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588), 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed
from ottla.security.acl import AclOperation, ResourceType
from ottla.transactions.metadata import ProducerIdAndEpoch
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_SINCE = 2


def handle(broker: Broker, request: RequestContext, body: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | Pending:
    if not is_allowed(broker, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not is_allowed(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not body.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    pending = Pending()

    def added(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and request.version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if not code:
            broker.transactions.note_client(body.transactional_id, request)
        pending.complete(AddOffsetsToTxnResponse(error_code=code))

    identity = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)

    def ready(code: ErrorCode) -> None:
        if code:
            added(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            broker.transactions.add_offsets(body.transactional_id, identity, body.group_id, 0, added)

    if broker.metadata.topic(GROUP_METADATA_TOPIC) is None:
        # No client has sent FindCoordinator for a group yet, and this client waits for the present answer first.
        broker.internal_topics.ensure(GROUP_METADATA_TOPIC, ready)
    else:
        ready(ErrorCode.NONE)
    return pending.response if pending.is_done else pending
