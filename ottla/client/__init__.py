"""The public Kafka client: `connect` gives a `Client`; `ottla.client.aio` has its operations for asyncio,
but no producer, consumer, share consumer, transaction or `read`.

    import ottla.client

    with ottla.client.connect("localhost:9092") as client:
        print(client.topics())

The names below are imported on first use, so that importing the package is cheap. All its errors are subclasses of `ClientError`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.base.errors import ErrorCode, WireError
    from ottla.base.types import TopicPartition
    from ottla.base.uuids import uuid_to_text
    from ottla.client.addresses import DEFAULT_BOOTSTRAP, addresses_in
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

_NAMES = {
    "addresses": "DEFAULT_BOOTSTRAP addresses_in",
    "aio": "AsyncClient",
    "blocking.client": "Client connect",
    "blocking.consumer": "Consumer",
    "blocking.producer": "Delivery Producer",
    "blocking.share_consumer": "ShareConsumer",
    "blocking.transaction": "Transaction",
    "core.admin": "EARLIEST LATEST MAX_TIMESTAMP OffsetAt TopicPartition",
    "core.fetching": "Fetched WireError",
    "core.group_admin": "Committed GroupDescription GroupMember ListedGroup",
    "core.operations": "BrokerInfo PartitionInfo TopicInfo uuid_to_text",
    "core.partitioner": "murmur2 partition_for_group partition_for_key",
    "core.staging": "Staged StagedChunk",
    "core.transaction_admin": "ListedTransaction TransactionDescription",
    "errors": "AuthenticationError AuthorizationError ClientError ConnectError ErrorCode FencedError KafkaError MalformedResponseError"
    " OffsetOutOfRangeError OutcomeUnknownError RequestTimeoutError TransportError UnknownTopicError UnsupportedVersionError UsageError",
}
"""The public names by module below `ottla.client`."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "DEFAULT_BOOTSTRAP", "EARLIEST", "LATEST", "MAX_TIMESTAMP", "AsyncClient", "AuthenticationError", "AuthorizationError", "BrokerInfo",
    "Client", "ClientError", "Committed", "ConnectError", "Consumer", "Delivery", "ErrorCode", "FencedError", "Fetched", "GroupDescription",
    "GroupMember", "KafkaError", "ListedGroup", "ListedTransaction", "MalformedResponseError", "OffsetAt", "OffsetOutOfRangeError",
    "OutcomeUnknownError", "PartitionInfo", "Producer", "RequestTimeoutError", "ShareConsumer", "Staged", "StagedChunk", "TopicInfo",
    "TopicPartition", "Transaction", "TransactionDescription", "TransportError", "UnknownTopicError", "UnsupportedVersionError",
    "UsageError", "WireError", "addresses_in", "connect", "murmur2", "partition_for_group", "partition_for_key",
    "uuid_to_text",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'ottla.client' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"ottla.client.{module}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
