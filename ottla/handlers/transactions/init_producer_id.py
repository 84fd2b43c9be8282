"""InitProducerId: gives a producer its id and epoch, and fences the earlier owner of the transactional id.

Behaviour: without a transactional id, a producer gets a new producer id with epoch 0. It needs IDEMPOTENT_WRITE on the cluster or WRITE on
at least one topic (KIP-679). With a transactional id the coordinator decides (`transactions/init_producer_id.py`). While an earlier
transaction is being ended, the request waits a moment and then gets CONCURRENT_TRANSACTIONS.

Version notes: from 3 on, the client may send its current producer id and epoch (KIP-360). 4 has PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH (KIP-588). 6 has two-phase commit (KIP-939), which gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED unless
`transaction.two.phase.commit.enable` is set.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed, permits_on_cluster
from ottla.security.acl import AclOperation, ResourceType
from ottla.transactions.init_producer_id import InitProducerId
from ottla.transactions.metadata import ProducerIdAndEpoch
from ottla.transactions.shard import EndResult
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE = 4


def handle(broker: Broker, request: RequestContext, body: InitProducerIdRequest) -> InitProducerIdResponse | Pending:
    code = refusal(broker, request, body)
    if code:
        return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
    pending = Pending()
    if body.transactional_id is None:
        broker.transactions.producer_ids.next(
            lambda producer_id, code: pending.complete(
                InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=NO_PRODUCER_EPOCH if code else 0)
            )
        )
    else:
        command = InitProducerId(
            transactional_id=body.transactional_id,
            timeout_ms=body.transaction_timeout_ms,
            expected=ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            is_two_phase=body.enable2_pc,
            keeps_prepared=body.keep_prepared_txn,
            owner=request.connection.owner,
        )

        def initialised(result: EndResult) -> None:
            if not result.code:
                broker.transactions.note_client(command.transactional_id, request)
            pending.complete(answer(request, result))

        broker.transactions.init_producer_id(command, initialised)
    return pending.response if pending.is_done else pending


def refusal(broker: Broker, request: RequestContext, body: InitProducerIdRequest) -> ErrorCode:
    transactional_id = body.transactional_id
    if transactional_id is None:
        if not may_write_idempotently(broker, request):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        operations = [AclOperation.WRITE]
        if body.enable2_pc:
            operations.append(AclOperation.TWO_PHASE_COMMIT)
        for operation in operations:
            if not is_allowed(broker, request, operation, ResourceType.TRANSACTIONAL_ID, transactional_id):
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # A producer id and an epoch are valid only together.
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def may_write_idempotently(broker: Broker, request: RequestContext) -> bool:
    """Whether the client may have a producer id. WRITE on at least one topic suffices (KIP-679)."""
    return permits_on_cluster(broker, request, AclOperation.IDEMPOTENT_WRITE) or broker.authorizer.is_allowed_on_any(
        request.connection, AclOperation.WRITE, ResourceType.TOPIC
    )


def answer(request: RequestContext, result: EndResult) -> InitProducerIdResponse:
    code = result.code
    if code is ErrorCode.PRODUCER_FENCED and request.version < FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    response = InitProducerIdResponse(error_code=code, producer_id=result.producer_id, producer_epoch=result.producer_epoch)
    if result.ongoing_producer_id != NO_PRODUCER_ID:
        response.ongoing_txn_producer_id = result.ongoing_producer_id
        response.ongoing_txn_producer_epoch = result.ongoing_producer_epoch
    return response
