"""EndTxn: commits or aborts the ongoing transaction of a transactional id.

Behaviour: the answer is sent when the outcome is durable; markers may be written later. Until all are written, another EndTxn gets
CONCURRENT_TRANSACTIONS, or may get INVALID_TXN_STATE if it contradicts the outcome. `transactions/end_transaction.py` has all refusals.

Version notes: 2 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588). 5 is for transactions v2 (KIP-890): each EndTxn raises the
producer epoch, the answer has the new epoch, and a transaction without partitions may be aborted.
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
