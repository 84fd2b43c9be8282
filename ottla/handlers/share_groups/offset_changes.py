"""The common part of AlterShareGroupOffsets and DeleteShareGroupOffsets: both change the offsets of a group without members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import ShareOffsetOutcomes, refuse_share_offsets
from ottla.handlers.advertised_levels import require_share_groups
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Command, run
from ottla.handlers.rights import require
from ottla.security.acl import AclOperation, ResourceType


def change_offsets(
    broker: Broker,
    request: RequestContext,
    group_id: str,
    operation: AclOperation,
    make: Callable[[], tuple[Command, list[Any]]],
    respond: Callable[[ShareOffsetOutcomes], Any],
) -> Any:
    """Runs a command after the checks of the group; returns the response or a `Pending`. `make` returns the command, and the results of
    topics that the principal may not read."""
    pending = Pending()
    try:
        require_share_groups(broker.config.ottla_advertise_level)
        require(broker, request, operation, ResourceType.GROUP, group_id)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        command, refused = make()

        def answer(outcomes: ShareOffsetOutcomes) -> None:
            response = respond(outcomes)
            if response.error_code:
                pending.complete(response)
                return
            response.responses += refused
            # A member that ended without leaving may have left share partitions open. After the close, the next fetch loads the new state.
            broker.share_partitions.close_group(group_id, lambda: pending.complete(response))

        run(broker, group_id, command, answer)
    except ApiError as error:
        return respond(refuse_share_offsets(error.code, error.message))
    return pending
