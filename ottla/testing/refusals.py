"""Makes the answer of a broker that refuses a request with a given error, from the request alone.

Most answers have one error code for the whole; the others have one for each topic, partition or group of the request, and all of these are
refused. Metadata is altered instead, because its answer needs brokers: the broker answers, and the error is put into its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.wire.apis import KEYS
from ottla.wire.framing import load
from ottla.wire.schema import Response

METADATA = 3


def is_altered(key: int) -> bool:
    """Whether the error is put into the broker's own answer."""
    return key == METADATA


def alter(answer: Any, code: int) -> Any:
    """Puts the error into every topic of a Metadata answer, and removes its partitions."""
    for topic in answer.topics:
        topic.error_code = code
        topic.partitions = []
    return answer


def can_refuse(key: int) -> bool:
    return key in _MIRRORS or is_altered(key) or any(field.name == "error_code" for field in load(key)[1].__fields__)


def refuse(key: int, version: int, request: Any, code: int) -> Response:
    """Returns the response to `request` with the error `code` for everything."""
    response_class = load(key)[1]
    mirror = _MIRRORS.get(key)
    answer = mirror(request, version, code) if mirror is not None else None
    return answer if answer is not None else response_class(error_code=code)


def _copied(source: Any, target: type[Any], names: Iterable[str], **values: Any) -> Any:
    """Returns a new `target` with the `names` fields of the request's struct, and `values`."""
    return target(**{name: getattr(source, name) for name in names}, **values)


def _produce(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import produce as wire

    topics = [
        _copied(
            topic,
            wire.TopicProduceResponse,
            ("name", "topic_id"),
            partition_responses=[
                wire.PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1) for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    return wire.ProduceResponse(responses=topics)


def _fetch(request: Any, version: int, code: int) -> Response | None:
    from ottla.wire.messages import fetch as wire

    if not request.topics:
        return None  # a session request without topics: the whole answer is refused
    topics = [
        _copied(
            topic,
            wire.FetchableTopicResponse,
            ("topic", "topic_id"),
            partitions=[
                wire.PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"")
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return wire.FetchResponse(responses=topics, session_id=request.session_id)


def _list_offsets(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import list_offsets as wire

    topics = [
        wire.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                wire.ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code) for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return wire.ListOffsetsResponse(topics=topics)


def _offset_commit(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import offset_commit as wire

    topics = [
        _copied(
            topic,
            wire.OffsetCommitResponseTopic,
            ("name", "topic_id"),
            partitions=[
                wire.OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code) for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return wire.OffsetCommitResponse(topics=topics)


def _txn_offset_commit(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import txn_offset_commit as wire

    topics = [
        _copied(
            topic,
            wire.TxnOffsetCommitResponseTopic,
            ("name", "topic_id"),
            partitions=[
                wire.TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code) for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return wire.TxnOffsetCommitResponse(topics=topics)


def _offset_fetch(request: Any, version: int, code: int) -> Response | None:
    from ottla.wire.messages import offset_fetch as wire

    if version >= 8:
        return wire.OffsetFetchResponse(
            groups=[wire.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups]
        )
    return None if version >= 2 else wire.OffsetFetchResponse(topics=_offset_fetch_topics(request, code))


def _offset_fetch_topics(request: Any, code: int) -> list[Any]:
    """Returns the topics of an OffsetFetch answer. Version 1 has error codes only for partitions."""
    from ottla.wire.messages import offset_fetch as wire

    return [
        wire.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                wire.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]


def _find_coordinator(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import find_coordinator as wire

    if version < 4:
        return wire.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    coordinators = [wire.Coordinator(key=key, node_id=-1, port=-1, error_code=code) for key in request.coordinator_keys]
    return wire.FindCoordinatorResponse(coordinators=coordinators)


def _create_topics(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import create_topics as wire

    return wire.CreateTopicsResponse(topics=[wire.CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics])


def _delete_topics(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import delete_topics as wire

    if version >= 6:
        found = [_copied(topic, wire.DeletableTopicResult, ("name", "topic_id"), error_code=code) for topic in request.topics]
    else:
        found = [wire.DeletableTopicResult(name=name, error_code=code) for name in request.topic_names]
    return wire.DeleteTopicsResponse(responses=found)


def _delete_groups(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import delete_groups as wire

    names = request.groups_names
    return wire.DeleteGroupsResponse(results=[wire.DeletableGroupResult(group_id=name, error_code=code) for name in names])


def _add_partitions(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import add_partitions_to_txn as wire

    def results(topics: Iterable[Any]) -> list[wire.AddPartitionsToTxnTopicResult]:
        return [
            wire.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    wire.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code) for index in topic.partitions
                ],
            )
            for topic in topics
        ]

    if version < 4:
        return wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results(request.v3_and_below_topics))
    found = [
        wire.AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results(transaction.topics))
        for transaction in request.transactions
    ]
    return wire.AddPartitionsToTxnResponse(results_by_transaction=found)


def _stage_records(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import stage_records as wire

    topics = [
        wire.StageTopicResult(
            name=topic.name, partitions=[wire.StagePartitionResult(index=asked.index, error_code=code) for asked in topic.partitions]
        )
        for topic in request.topics
    ]
    return wire.StageRecordsResponse(topics=topics)


def _attach_records(request: Any, version: int, code: int) -> Response:
    from ottla.wire.messages import attach_records as wire

    topics = [
        wire.AttachTopicResult(
            name=topic.name, partitions=[wire.AttachPartitionResult(index=asked.index, error_code=code) for asked in topic.partitions]
        )
        for topic in request.topics
    ]
    return wire.AttachRecordsResponse(topics=topics)


_MIRRORS: dict[int, Callable[[Any, int, int], Response | None]] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    19: _create_topics,
    20: _delete_topics,
    24: _add_partitions,
    28: _txn_offset_commit,
    42: _delete_groups,
    KEYS["StageRecords"]: _stage_records,
    KEYS["AttachRecords"]: _attach_records,
}
