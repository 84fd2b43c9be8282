"""WriteTxnMarkers: a transaction coordinator makes partition leaders write commit or abort markers."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i8, i16, i32, i64, string


class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(i32)


class WritableTxnMarker(Struct):
    producer_id: int = i64()
    producer_epoch: int = i16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = i32()
    transaction_version: int = i8(since=2, ignorable=True)


class WriteTxnMarkersRequest(Request):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = i32()
    error_code: int = i16()


class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    producer_id: int = i64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Response):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
