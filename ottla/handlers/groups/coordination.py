"""Sends a request to the coordinator of the group that it names.

`ask` checks the principal's READ permission on the group, finds the host of the group's shard, and runs one command. `respond` makes the
response from the answer. After a refusal (no permission, no coordinator here, still loading), `refusal` makes the answer from the error
code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import refuse_beat
from ottla.groups.commands import Caller
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import require
from ottla.machine.draft import same_code
from ottla.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.base.ports import TimerHandle
    from ottla.groups.shard import GroupShard
    from ottla.machine.contract import Decision, Reply

Command = Callable[["GroupShard", "Reply", int], "Decision"]
"""Called with (shard, reply, now_ms). Returns the decision of a command."""

SUBSCRIBED_TOPICS_MAX = 10_000
"""Maximum number of topic names in the subscription of one member of a consumer group, or in the topology of a streams group. A larger
subscription of a consumer group can use a pattern."""


def require_lease(broker: Broker) -> None:
    """Raises `ApiError` NOT_COORDINATOR if the broker's session may have ended: another broker may be the coordinator with newer state."""
    if broker.lease is not None and not broker.lease.is_held():
        raise ApiError(ErrorCode.NOT_COORDINATOR, "This broker's session with the metadata store may be over.")


def caller_of(request: RequestContext, may_describe: Callable[[str], bool] | None = None) -> Caller:
    """Returns the sender of a request. The host has a leading slash, as in Kafka's tools."""
    connection = request.connection
    host, software = "/" + connection.host, connection.client_software_name
    return Caller(request.client_id or "", host, connection.identity, software, may_describe, connection.owner)


def offers_consumer_groups(broker: Broker) -> bool:
    """Whether the configuration allows groups of the new consumer protocol (KIP-848)."""
    return "consumer" in broker.config.group_coordinator_rebalance_protocols


def ask(
    broker: Broker,
    request: RequestContext,
    group_id: str,
    command: Command,
    respond: Callable[[Any], Any],
    refusal: Callable[[ErrorCode], Any] = same_code,
) -> Any:
    """Runs a command on the group's shard. Returns the response, or a `Pending` that the group's machine completes."""
    pending = Pending()
    try:
        require(broker, request, AclOperation.READ, ResourceType.GROUP, group_id)
        run(broker, group_id, command, lambda answer: pending.complete(respond(answer)))
    except ApiError as error:
        return respond(refusal(error.code))
    return pending


def ask_about_topics(
    broker: Broker,
    request: RequestContext,
    group_id: str,
    topics: Sequence[str],
    command: Command,
    respond: Callable[[Any], Any],
    topics_max: int = SUBSCRIBED_TOPICS_MAX,
    refuse: Callable[[ErrorCode, str], Any] = refuse_beat,
) -> Any:
    """Like `ask`, for a heartbeat of a modern group. Also checks the number of subscribed topics, and DESCRIBE on each of them."""
    pending = Pending()
    try:
        if len(topics) > topics_max:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a member subscribes to at most {topics_max} topics by name")
        require(broker, request, AclOperation.READ, ResourceType.GROUP, group_id)
        for topic in topics:
            require(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        run(broker, group_id, command, lambda answer: pending.complete(respond(answer)))
    except ApiError as error:
        return respond(refuse(error.code, error.message))
    return pending


def run(broker: Broker, group_id: str, command: Command, reply: Reply) -> None:
    """Runs a command on the group's shard. Raises `ApiError` instead of calling `reply` if the group's coordinator is not here, or if too
    many of its answers wait for replicas."""
    host = broker.groups.host_of(group_id)
    if host.is_full:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many answers wait for the replicas of the coordinator's partition")
    shard = host.machine.shard
    host.run(lambda now_ms: command(shard, reply, now_ms))


def run_commit(broker: Broker, group_id: str, command: Command, answer: Callable[[Iterable[ErrorCode]], None]) -> None:
    """Runs a commit of offsets. If the replicas have not confirmed it within `offsets.commit.timeout.ms`, the answer is
    COORDINATOR_NOT_AVAILABLE, which clients retry; the commit may still succeed. Raises as `run` does."""
    timer: TimerHandle | None = None
    is_answered = False

    def reply(codes: Iterable[ErrorCode]) -> None:
        nonlocal is_answered
        if is_answered:
            return
        is_answered = True
        if timer is not None:
            timer.cancel()
        answer(codes)

    run(broker, group_id, command, reply)
    if not is_answered:
        late = repeat(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        timer = broker.timers.call_later(broker.config.offsets_commit_timeout_ms, lambda: reply(late))


class Gathering:
    """Counts the parts of one answer, and calls `complete` when all have arrived."""

    def __init__(self, parts: int, complete: Callable[[], None]) -> None:
        self._left = parts
        self._complete = complete

    def part_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._complete()
