"""Splits a request about many share partitions into one command for each of them, and answers when all are answered.

Only brokers may send such requests; a client gets CLUSTER_AUTHORIZATION_FAILED for every share partition. As in Kafka, one command is run
for a share partition that is named twice, and a request without a group gets an empty answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.sharing.commands import StateCommand, StateResult

REFUSED = StateResult(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
NEGATIVE = StateResult(ErrorCode.INVALID_REQUEST, None, "the number of a partition cannot be negative")


class StateApi(NamedTuple):
    """The differences of one API: its command, the classes of its response, and the fields of its results that show a state."""

    command: Callable[[SharePartitionKey, Any], StateCommand]
    """Makes the command for a share partition, from the partition's part of the request."""
    response: Callable[..., Any]
    topic_result: Callable[..., Any]
    partition_result: Callable[..., Any]
    shown: Callable[[ShareState], Mapping[str, Any]] | None = None

    def respond(self, results: Mapping[SharePartitionKey, StateResult]) -> Any:
        topics: dict[bytes, Any] = {}
        for key, result in results.items():
            state = {} if self.shown is None or result.state is None else self.shown(result.state)
            shown = self.partition_result(partition=key.partition, error_code=result.code, error_message=result.message, **state)
            if key.topic_id not in topics:
                topics[key.topic_id] = self.topic_result(topic_id=key.topic_id)
            topics[key.topic_id].partitions.append(shown)
        return self.response(results=list(topics.values()))


def ask(broker: Broker, request: RequestContext, body: Any, api: StateApi) -> Any:
    """Returns the response, or a `Pending` that the coordinators complete."""
    asked: dict[SharePartitionKey, StateCommand] = {}
    for topic in body.topics if body.group_id else ():
        for partition in topic.partitions:
            key = SharePartitionKey(body.group_id, topic.topic_id, partition.partition)
            asked[key] = api.command(key, partition)
    if not is_broker(broker, request):
        return api.respond(dict.fromkeys(asked, REFUSED))
    results: dict[SharePartitionKey, StateResult] = {}
    pending = Pending()

    def answered(key: SharePartitionKey, result: StateResult) -> None:
        results[key] = result
        if len(results) == len(asked):
            pending.complete(api.respond({key: results[key] for key in asked}))

    for key, command in asked.items():
        if key.partition < 0:
            answered(key, NEGATIVE)
        else:
            broker.share_states.run(command, lambda result, key=key: answered(key, result))  # type: ignore[misc]
    return pending if asked else api.respond({})
