"""ListTransactions: the transactional ids that this broker coordinates, with filters for state, producer id, age and name.

Behaviour: unknown names of states are listed in the answer and otherwise ignored. If all names are unknown, no id is listed, without an
error. Ids that the principal may not describe are omitted. While a shard is loading, other valid requests get COORDINATOR_LOAD_IN_PROGRESS.

Version notes: 1 has a filter for the minimum time since a transaction began (KIP-994); the transaction may be completed. 2 has a regular
expression that must match the whole id (KIP-1152), in the syntax of RE2 (`base/name_pattern.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import pieces_of
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import permits
from ottla.security.acl import AclOperation, ResourceType
from ottla.transactions.metadata import TransactionMetadata
from ottla.transactions.queries import ListFilter
from ottla.transactions.states import DEAD, TransactionState
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.wire.messages.list_transactions import (
    TransactionState as ListedTransaction,
)

NAMES = {state.value: state for state in TransactionState}



def handle(
    broker: Broker, request: RequestContext, body: ListTransactionsRequest
) -> Generator[None, None, ListTransactionsResponse | Pending]:
    try:
        matches = matcher(body.transactional_id_pattern)
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    unknown = [name for name in body.state_filters if name not in NAMES]
    states = frozenset(NAMES[name] for name in body.state_filters if name in NAMES)
    if body.state_filters and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    pending = Pending()

    def answering(found: list[TransactionMetadata], code: ErrorCode) -> Generator[None, None, ListTransactionsResponse]:
        shown: list[ListedTransaction] = []
        for piece in pieces_of(() if code else found):
            shown += visible(broker, request, piece)
            yield
        return ListTransactionsResponse(error_code=code, unknown_state_filters=unknown, transaction_states=shown)

    wanted = ListFilter(states, frozenset(body.producer_id_filters), body.duration_filter, matches)
    yield from broker.transactions.list_transactions(wanted, lambda found, code: pending.complete(answering(found, code)))
    return pending


def visible(broker: Broker, request: RequestContext, found: list[TransactionMetadata]) -> list[ListedTransaction]:
    return [
        ListedTransaction(
            transactional_id=metadata.transactional_id, producer_id=metadata.producer_id, transaction_state=metadata.state.value
        )
        for metadata in found
        if metadata.state is not DEAD
        and permits(broker, request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, metadata.transactional_id)
    ]


def matcher(pattern: str | None) -> Callable[[str], bool] | None:
    if not pattern:
        return None
    try:
        compiled = NamePattern(pattern)
        compiled.compile_for_unicode()
        return compiled.matches
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
