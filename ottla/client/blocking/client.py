"""The public client, blocking: `connect` gives a `Client`, whose methods are the operations of `core/operations.py`.

Producers, consumers and transactions of a client share its metadata of the cluster. Two threads must not use one of them at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import REQUEST_TIMEOUT_S
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.reading import READ_BYTES, RangeReader
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.blocking.transaction import Transaction
from ottla.client.core.arguments import checked
from ottla.client.core.connection import CLIENT_SOFTWARE
from ottla.client.core.fetching import Fetched
from ottla.client.core.operations import Operations, isolation_level
from ottla.client.core.producer_identity import TRANSACTION_TIMEOUT_MS
from ottla.client.core.transaction import TransactionCore
from ottla.client.security import security_of


@checked
def connect(
    bootstrap: str,
    config: Mapping[str, str] | None = None,
    *,
    client_id: str = CLIENT_SOFTWARE,
    timeout_s: float = REQUEST_TIMEOUT_S,
    with_extensions: bool = False,
    bearer_token: Callable[[], str | tuple[str, float]] | None = None,
) -> Client:
    """Connects to a cluster by some of its brokers' addresses, `HOST:PORT[,HOST:PORT...]`.

    `config` has the security settings of Kafka's clients: `security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password`,
    `sasl.jaas.config`, `ssl.ca.location` and so on. `timeout_s` limits each operation: its look-ups, connections,
    requests and retries together. `with_extensions` asks brokers for Ottla's extensions of Kafka's protocol (staged records).
    `bearer_token` is for `sasl.mechanism=OAUTHBEARER`: it returns a token, alone or with its time of expiry in seconds since 1970, and is
    called again before that time. Raises a `TransportError` such as `ConnectError` if no broker answers, `AuthenticationError` if the
    broker refuses the login, and ValueError for invalid settings.
    """
    security = security_of(config, bearer_token)
    cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s, security=security, with_extensions=with_extensions)
    try:
        cluster.refresh([])
    except BaseException:
        cluster.close()
        raise
    return Client(cluster)


class Client(Operations):
    """The public client with blocking calls. Made by `connect`; `with` closes it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @checked
    def close(self) -> None:
        """Closes the client's shared connections. The program closes the client's producers and consumers separately."""
        self.cluster.close()

    @property
    def cluster_id(self) -> str | None:
        """The cluster id, None if the broker does not send one."""
        return self.cluster.metadata.cluster_id

    # Records

    @checked
    def read(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        isolation: str = "read_committed",
        partition_max_bytes: int = READ_BYTES,
        timeout_s: float | None = None,
    ) -> Iterator[Fetched]:
        """Reads a partition from offset `start` until the position reaches `end`, on a separate connection to the leader.

        The next Fetch is in flight while the caller processes a result. The last batch may contain records at and after `end`. Raises
        `OffsetOutOfRangeError` if the log does not contain `start`. After `timeout_s` without progress it raises `RequestTimeoutError`, or
        the last error.
        """
        level = isolation_level(isolation)
        reader = RangeReader(self.cluster, partition, isolation_level=level, partition_max_bytes=partition_max_bytes)
        try:
            yield from reader.read(start, end, self.cluster.timeout_s if timeout_s is None else timeout_s)
        finally:
            reader.end()

    @checked
    def producer(self, **options: Any) -> Producer:
        """Returns a producer. Options: acks, codec, is_idempotent, transactional_id, batch_bytes, linger_s, on_delivery ..."""
        return Producer(self.cluster, **options)

    @checked
    def consumer(
        self,
        group: str | None = None,
        *,
        topics: Sequence[str] = (),
        isolation: str = "read_committed",
        auto_offset_reset: str = "earliest",
        **options: Any,
    ) -> Consumer:
        """Returns a consumer, which reads partitions given to `assign`, or `topics` as a member of a group."""
        consumer = Consumer(
            self.cluster,
            group_id=group,
            isolation_level=isolation_level(isolation),
            auto_offset_reset=auto_offset_reset,
            **options,
        )
        if topics:
            consumer.subscribe(topics)
        return consumer

    @checked
    def share_consumer(self, group: str, *, topics: Sequence[str], **options: Any) -> ShareConsumer:
        """Returns a member of a share group (KIP-932), which acknowledges each acquired record."""
        consumer = ShareConsumer(self.cluster, group, **options)
        consumer.subscribe(topics)
        return consumer

    # Transactions

    @checked
    def transaction(self, transactional_id: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS, may_use_v2: bool = True) -> Transaction:
        """Returns a `Transaction`, which runs the transactions of a transactional id step by step. Nothing is sent before `initialize`.

        The coordinator aborts a transaction that is open for longer than `timeout_ms`. Without `may_use_v2` it uses version 1 of the
        transaction protocol, even if the brokers support version 2 (KIP-890).
        """
        return Transaction(self.cluster, TransactionCore(self.cluster.core, transactional_id, timeout_ms=timeout_ms, may_use_v2=may_use_v2))
