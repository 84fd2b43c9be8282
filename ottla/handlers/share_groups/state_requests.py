"""Splits a request about many share partitions into one command for each of them, and answers when all are answered.

Only brokers may send such requests: CLUSTER_AUTHORIZATION_FAILED for every share partition that a client asks about. As in Kafka a share
partition that is named twice is asked once, and a request without a group gets an empty answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey
from ottla.base.uuids import Uuid
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.sharing.commands import StateCommand, StateResult

ResponseT = TypeVar("ResponseT")
Results = dict[SharePartitionKey, StateResult]
REFUSED = StateResult(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
NEGATIVE = StateResult(ErrorCode.INVALID_REQUEST, None, "a partition is not negative")


def ask(broker: Broker, request: RequestContext, commands: Iterable[StateCommand], respond: Callable[[Results], Any]) -> Any:
    """Returns the response, or a `Pending` that the coordinators complete."""
    asked = {command.key: command for command in commands if command.key.group_id}
    if not is_broker(broker, request):
        return respond(dict.fromkeys(asked, REFUSED))
    results: Results = {}
    pending = Pending()

    def answered(key: SharePartitionKey, result: StateResult) -> None:
        results[key] = result
        if len(results) == len(asked):
            pending.complete(respond({key: results[key] for key in asked}))

    for key, command in asked.items():
        if key.partition < 0:
            answered(key, NEGATIVE)
        else:
            broker.share_states.run(command, lambda result, key=key: answered(key, result))  # type: ignore[misc]
    return pending if asked else respond({})


def responder(
    response: Callable[..., ResponseT], topic_result: Callable[..., Any], partition_result: Callable[[int, StateResult], Any]
) -> Callable[[Results], ResponseT]:
    """Returns a function that builds a response from results by topic and partition."""

    def respond(results: Results) -> ResponseT:
        return response(
            results=[
                topic_result(topic_id=topic_id, partitions=[partition_result(partition, result) for partition, result in partitions])
                for topic_id, partitions in _by_topic(results).items()
            ]
        )

    return respond


def _by_topic(results: Results) -> dict[Uuid, list[tuple[int, StateResult]]]:
    """Groups the partitions and results by topic, in the order of the request."""
    topics: dict[Uuid, list[tuple[int, StateResult]]] = {}
    for key, result in results.items():
        topics.setdefault(key.topic_id, []).append((key.partition, result))
    return topics
