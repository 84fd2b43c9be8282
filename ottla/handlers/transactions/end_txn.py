"""EndTxn: commits or aborts the ongoing transaction of a transactional id.

Behaviour: answered when the outcome is durable; the markers may still be on their way then, and the next EndTxn is answered with
CONCURRENT_TRANSACTIONS until they have arrived. See `transactions/end_transaction.py` for every refusal.

Version notes: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588); 5 transactions v2 (KIP-890): each end moves to the next epoch,
which is in the answer, and a transaction that was never begun may be aborted.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed
from ottla.security.acl import AclOperation, ResourceType
from ottla.transactions.metadata import TRANSACTIONS_V2, ProducerIdAndEpoch
from ottla.transactions.shard import EndResult
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
TRANSACTIONS_V2_SINCE = 5


def handle(broker: Broker, request: RequestContext, body: EndTxnRequest) -> EndTxnResponse | Pending:
    transactional_id = body.transactional_id
    if not is_allowed(broker, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    pending = Pending()
    version = TRANSACTIONS_V2 if request.version >= TRANSACTIONS_V2_SINCE else 0

    def ended(result: EndResult) -> None:
        # A client of transactions v1 was noted when it added its partitions.
        if version and not result.code:
            broker.transactions.note_client(transactional_id, request)
        pending.complete(answer(request, result))

    identity = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    broker.transactions.end(transactional_id, identity, body.committed, version, ended)
    return pending.response if pending.is_done else pending


def answer(request: RequestContext, result: EndResult) -> EndTxnResponse:
    code = result.code
    if code is ErrorCode.PRODUCER_FENCED and request.version < FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=code, producer_id=result.producer_id, producer_epoch=result.producer_epoch)
