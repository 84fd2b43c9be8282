"""A Kafka client in pure Python, public: `connect` gives a `Client`; `ottla.client.aio` has its operations for asyncio,
but no producer, consumer, share consumer, transaction or `read`.

    import ottla.client

    with ottla.client.connect("localhost:9092") as client:
        print(client.topics())

The names below are imported on first use, so that importing the package costs nothing. Errors: `ClientError` is the base of all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.base.errors import ErrorCode, WireError
    from ottla.base.types import TopicPartition
    from ottla.base.uuids import uuid_to_text
    from ottla.client.aio import AsyncClient
    from ottla.client.blocking.client import Client, connect
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.blocking.producer import Delivery, Producer
    from ottla.client.blocking.share_consumer import ShareConsumer
    from ottla.client.blocking.transaction import Transaction
    from ottla.client.core.admin import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAt
    from ottla.client.core.fetching import Fetched
    from ottla.client.core.group_admin import Committed, GroupDescription, GroupMember, ListedGroup
    from ottla.client.core.operations import BrokerInfo, PartitionInfo, TopicInfo
    from ottla.client.core.partitioner import murmur2, partition_for_group, partition_for_key
    from ottla.client.core.staging import Staged, StagedChunk
    from ottla.client.core.transaction_admin import ListedTransaction, TransactionDescription
    from ottla.client.errors import (
        AuthenticationError,
        AuthorizationError,
        ClientError,
        ConnectError,
        FencedError,
        KafkaError,
        MalformedResponseError,
        OffsetOutOfRangeError,
        OutcomeUnknownError,
        RequestTimeoutError,
        TransportError,
        UnknownTopicError,
        UnsupportedVersionError,
        UsageError,
    )

_MODULES = {
    "connect": "blocking.client",
    "AsyncClient": "aio",
    "Client": "blocking.client",
    "Producer": "blocking.producer",
    "Delivery": "blocking.producer",
    "Consumer": "blocking.consumer",
    "ShareConsumer": "blocking.share_consumer",
    "Transaction": "blocking.transaction",
    "Fetched": "core.fetching",
    "OffsetAt": "core.admin",
    "EARLIEST": "core.admin",
    "LATEST": "core.admin",
    "MAX_TIMESTAMP": "core.admin",
    "Committed": "core.group_admin",
    "ListedGroup": "core.group_admin",
    "GroupDescription": "core.group_admin",
    "GroupMember": "core.group_admin",
    "BrokerInfo": "core.operations",
    "TopicInfo": "core.operations",
    "PartitionInfo": "core.operations",
    "murmur2": "core.partitioner",
    "partition_for_group": "core.partitioner",
    "partition_for_key": "core.partitioner",
    "Staged": "core.staging",
    "StagedChunk": "core.staging",
    "ListedTransaction": "core.transaction_admin",
    "TransactionDescription": "core.transaction_admin",
    "ClientError": "errors",
    "TransportError": "errors",
    "ConnectError": "errors",
    "RequestTimeoutError": "errors",
    "MalformedResponseError": "errors",
    "OutcomeUnknownError": "errors",
    "KafkaError": "errors",
    "AuthenticationError": "errors",
    "AuthorizationError": "errors",
    "FencedError": "errors",
    "UnknownTopicError": "errors",
    "OffsetOutOfRangeError": "errors",
    "UnsupportedVersionError": "errors",
    "UsageError": "errors",
    "ErrorCode": "errors",
    "WireError": "core.fetching",
    "TopicPartition": "core.admin",
    "uuid_to_text": "core.operations",
}
"""Where each public name is defined, below `ottla.client`."""

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AsyncClient",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerInfo",
    "Client",
    "ClientError",
    "Committed",
    "ConnectError",
    "Consumer",
    "Delivery",
    "ErrorCode",
    "FencedError",
    "Fetched",
    "GroupDescription",
    "GroupMember",
    "KafkaError",
    "ListedGroup",
    "ListedTransaction",
    "MalformedResponseError",
    "OffsetAt",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "PartitionInfo",
    "Producer",
    "RequestTimeoutError",
    "ShareConsumer",
    "Staged",
    "StagedChunk",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransportError",
    "UnknownTopicError",
    "UnsupportedVersionError",
    "UsageError",
    "WireError",
    "connect",
    "murmur2",
    "partition_for_group",
    "partition_for_key",
    "uuid_to_text",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'ottla.client' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"ottla.client.{module}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
