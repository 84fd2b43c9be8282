"""The interface of a broker for tests: clients, topics, records, faults."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ottla.base.counted import counted
from ottla.testing.foreign_clients import ASYNCHRONOUS, BLOCKING, make
from ottla.testing.logins import properties_text

if TYPE_CHECKING:
    from ottla.base.errors import ErrorCode
    from ottla.base.types import TopicPartition
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.security import Security
    from ottla.testing.faults import FaultProxy

Text = bytes | str | None
WAIT_SECONDS = 10.0
POLL_SECONDS = 0.1
LOOK_AGAIN_SECONDS = 0.005
SETTLE_SECONDS = 0.3
"""Default time of `assert_produces(exact=True)` for finding unexpected records, in seconds. Clients send a record at most 5 ms after it was
produced.
"""
OF_AN_OWN_BROKER = frozenset(
    (
        "clock", "data_dir", "from_snapshot", "get_container_host_ip", "get_exposed_port", "get_logs", "log", "mark", "port", "process",
        "rewind", "snapshot", "start", "stop", "with_cluster_id", "with_env", "with_envs",
    )
)  # fmt: skip
"""Members of a `Broker`, which this process has started. Other handles have at most some of them."""
SHOWN_RECORDS_MAX = 5
SHOWN_BYTES_MAX = 60
LOG_BYTES_MAX = 20_000


class Login(Protocol):
    """Client options for the broker's users: `Logins` for a broker that the tests have started, or `ForeignLogins`."""

    @property
    def protocol(self) -> str: ...
    @property
    def has_tls(self) -> bool: ...
    def properties(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]: ...
    def java_properties(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]: ...
    def security(self) -> Security: ...
    def store(self, cluster: Cluster) -> None: ...


class TopicRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Pause:
    """A pause that ends with `resume()` of the broker, or with the block: `with broker.pause(): ...`."""

    def __init__(self, broker: BrokerHandle) -> None:
        self._broker = broker

    def __enter__(self) -> Pause:
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.resume()


class BrokerHandle:
    """A running broker at an address: clients for it, its topics and records, and faults.

    Clients get the address of a proxy in this process, so that faults can be injected (`faults.py`). The methods for topics and records use
    the broker directly and are not affected by faults. `producer`, `consumer` and `admin` make clients of the installed Kafka library
    (`client` chooses one); `aio_producer` and the other `aio_` methods make clients of aiokafka. `direct_server` is the broker's own
    address, for tests without a proxy.
    """

    what: ClassVar[str] = "a broker that another process has started"
    """A description for the error about a missing member."""
    _all: ClassVar[weakref.WeakSet[BrokerHandle]] = weakref.WeakSet()

    def __init__(self, bootstrap: str = "", *, logins: Login | None = None) -> None:
        self._all.add(self)
        self.direct_server = bootstrap
        self.logins = logins
        """The broker's users, if clients have to log in."""
        self._proxy: FaultProxy | None = None
        self._log_ends: dict[Path, int] = {}
        self._clusters: dict[tuple[int, int], Cluster] = {}
        """Connections by process and thread, because a test may use this object in several threads."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.direct_server}>" if self.direct_server else f"<{type(self).__name__}, not running>"

    if not TYPE_CHECKING:  # otherwise a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raises `AttributeError`. The message says whether brokers that this process has started have the attribute, or no broker."""
            if name in OF_AN_OWN_BROKER:
                needed = "a single broker that this process has started: kafka_cluster(1), or ottla.testing.Broker()"
                raise AttributeError(f"{name!r} is not for {self.what}; it needs {needed}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @classmethod
    def all_handles(cls) -> list[BrokerHandle]:
        """Returns all handles of this process that still exist."""
        return list(cls._all)

    @property
    def log_files(self) -> dict[str, Path]:
        """Returns the known log files by the brokers' names."""
        return {}

    def _mark_logs(self) -> None:
        """Notes the ends of the logs, for `_new_logs`."""
        self._log_ends = {path: path.stat().st_size for path in self.log_files.values() if path.exists()}

    def _new_logs(self) -> list[tuple[str, str]]:
        """Returns a title and the log lines since `_mark_logs` for each broker with such lines, at most the last `LOG_BYTES_MAX` bytes."""
        found = []
        for name, path in self.log_files.items():
            if data := path.read_bytes()[self._log_ends.get(path, 0) :] if path.exists() else b"":
                cut = "...\n" if len(data) > LOG_BYTES_MAX else ""
                found.append((f"Log of {name} at {self.direct_server}", cut + data[-LOG_BYTES_MAX:].decode(errors="replace")))
        return found

    # Addresses

    @property
    def bootstrap_server(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    def get_bootstrap_server(self) -> str:
        return self.bootstrap_server

    @property
    def address(self) -> tuple[str, int]:
        """Returns the proxy's address. With TLS it returns the broker's own address, because a proxy cannot read TLS."""
        if not self._has_tls:
            return self._faults().address
        from ottla.client.addresses import parse_addresses

        first = parse_addresses(self.direct_server)[0]
        return first.host, first.port

    @property
    def _has_tls(self) -> bool:
        return self.logins is not None and self.logins.has_tls

    @property
    def protocol(self) -> str:
        """The security protocol of the broker's listener."""
        return "PLAINTEXT" if self.logins is None else self.logins.protocol

    # Clients. `user`: one of the broker's users; None is its administrator

    def config(self, *, user: str | None = None, **settings: Any) -> dict[str, Any]:
        """Returns settings for clients that are configured by a mapping."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return {"bootstrap.servers": self.bootstrap_server, **self._login(user), **named}

    def java_config(self, *, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """Returns settings for clients in Java, and for files of client properties (`--command-config`)."""
        login = {} if self.logins is None and user is None else self._known_logins().java_properties(user, mechanism)
        return {"bootstrap.servers": self.bootstrap_server, **login}

    def write_java_config(self, path: str | Path, *, user: str | None = None, mechanism: str | None = None) -> Path:
        """Writes the settings for Java to a file that only this user can read."""
        file = Path(path)
        file.touch(0o600)
        file.chmod(0o600)  # it may have existed before
        file.write_text(properties_text(self.java_config(user=user, mechanism=mechanism)), encoding="utf-8")
        return file

    def producer(self, *, client: str | None = None, user: str | None = None, **settings: Any) -> Any:
        return self._made("Producer", BLOCKING, client, user, settings)

    def consumer(self, *topics: str, client: str | None = None, user: str | None = None, **settings: Any) -> Any:
        return self._made("Consumer", BLOCKING, client, user, settings, topics)

    def admin(self, *, client: str | None = None, user: str | None = None, **settings: Any) -> Any:
        return self._made("Admin", BLOCKING, client, user, settings)

    def aio_producer(self, *, user: str | None = None, **settings: Any) -> Any:
        return self._made("Producer", ASYNCHRONOUS, None, user, settings)

    def aio_consumer(self, *topics: str, user: str | None = None, **settings: Any) -> Any:
        return self._made("Consumer", ASYNCHRONOUS, None, user, settings, topics)

    def aio_admin(self, *, user: str | None = None, **settings: Any) -> Any:
        return self._made("Admin", ASYNCHRONOUS, None, user, settings)

    def _made(
        self, kind: str, libraries: tuple[str, ...], wanted: str | None, user: str | None, settings: Any, topics: Iterable[str] = ()
    ) -> Any:
        return make(kind, libraries, wanted, self.bootstrap_server, {**self._login(user), **settings}, topics)

    # Topics and records

    def topics(self) -> list[str]:
        """Returns the names of all topics except internal ones."""
        cluster = self._client()
        cluster.refresh(None)
        return sorted(name for name, topic in cluster.metadata.topics.items() if not topic.is_internal)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Creates a topic and returns its name. Settings have underscores for dots: `retention_ms="1000"`."""
        from ottla.client.core import admin

        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topic(self._client(), name, partitions=partitions, configs=settings)
        return name

    def delete_topics(self, names: Iterable[str]) -> None:
        from ottla.client.core import admin

        admin.delete_topics(self._client(), list(names))

    def add_record(
        self, topic: str, value: Text = None, *, key: Text = None, headers: Mapping[str, Text] | None = None, partition: int = -1,
        timestamp: int | None = None,
    ) -> None:  # fmt: skip
        """Writes one record and waits until the broker has it. A missing topic is created if the broker creates topics automatically."""
        from ottla.client.blocking.producer import Producer

        sent = tuple((name, _encoded(data)) for name, data in (headers or {}).items())
        cluster = self._client()
        cluster.topic(topic, auto_create=True)
        with Producer(cluster, is_idempotent=False) as producer:
            producer.produce(topic, _encoded(value), _encoded(key), partition=partition, timestamp=timestamp, headers=sent)

    def records(self, topic: str, *, is_committed_only: bool = True) -> list[TopicRecord]:
        """Returns a topic's records at this moment, ordered by partition and offset. If `is_committed_only` is false, uncommitted and
        aborted records are included.
        """
        return self._read(topic, self._ends(topic, "EARLIEST", is_committed_only), is_committed_only)

    @contextmanager
    def assert_produces(
        self, topic: str, count: int = 1, *, timeout: float = WAIT_SECONDS, exact: bool = False, settle: float = SETTLE_SECONDS
    ) -> Iterator[list[TopicRecord]]:
        """Fails unless the block adds at least `count` committed records to the topic, at the latest `timeout` seconds after the block's
        end. With `exact` it also fails if more records arrive within `settle` seconds after the end of the block and the last expected
        record. The yielded list contains the records afterwards; the failure's message shows them. Raises `TypeError` if `count` is not
        a number.
        """
        if not isinstance(count, int):
            raise TypeError(f"count is a number of records, not {count!r}; compare the records that the block yields")
        starts = self._ends(topic, "LATEST", True) if topic in self.topics() else None
        found: list[TopicRecord] = []
        yield found
        deadline = time.monotonic() + timeout
        self._read_since(starts, topic, found)
        while len(found) < count:
            if time.monotonic() >= deadline:
                raise AssertionError(f"{len(found)} of {counted(count, 'record')} written to {topic!r} within {timeout:g} s{_shown(found)}")
            time.sleep(LOOK_AGAIN_SECONDS)
            self._read_since(starts, topic, found)
        if exact:
            self._check_exact(starts, topic, found, count, time.monotonic() + settle)

    def _check_exact(
        self, starts: Mapping[TopicPartition, int] | None, topic: str, found: list[TopicRecord], count: int, deadline: float
    ) -> None:
        """Looks for unexpected records until the deadline, at least once."""
        while True:
            is_last = time.monotonic() >= deadline
            self._read_since(starts, topic, found)
            if len(found) > count:
                raise AssertionError(f"{counted(len(found), 'record')} written to {topic!r}, not {count}{_shown(found)}")
            if is_last:
                return
            time.sleep(POLL_SECONDS)

    def reset(self) -> None:
        """Ends faults, and deletes every topic except internal ones, and every group without members."""
        from ottla.base.errors import ApiError
        from ottla.client.core import group_admin

        self.end_faults()
        names = self.topics()
        if names:
            self.delete_topics(names)
        cluster = self._client()
        for group in group_admin.list_groups(cluster):
            try:
                group_admin.delete_group(cluster, group.group_id)
            except ApiError:
                pass  # the group has members, or was deleted with its offsets

    # Faults

    def pause(self) -> Pause:
        """Stops all requests and answers until `resume`; connections stay open."""
        self._faults().pause()
        return Pause(self)

    def resume(self) -> None:
        self._faults().resume()

    def drop_connections(self) -> int:
        """Closes all connections of this process's clients and returns their number. The clients may reconnect immediately."""
        return self._faults().drop_connections()

    def fail_next(self, api: str, error: ErrorCode | str | int | None, times: int = 1) -> None:
        """Makes the next `times` requests of an API such as `"Produce"` fail with an error (name or code). None closes the connection
        instead.
        """
        self._faults().fail_next(api, error, times)

    def lose_answer(self, api: str, times: int = 1) -> None:
        """Lets the broker execute the next `times` requests of an API such as `"EndTxn"`, and closes the connection instead of
        answering."""
        self._faults().lose_answer(api, times)

    def end_faults(self) -> None:
        """Ends a pause and removes faults that have not happened. The pytest plugin calls it at the end of each test."""
        if self._proxy is not None:
            self._proxy.reset()

    # End

    def close(self) -> None:
        """Closes the connections to the broker, which keeps running."""
        while self._clusters:
            (process, _), cluster = self._clusters.popitem()
            if process == os.getpid():
                cluster.close()
        if self._proxy is not None:
            self._proxy.stop()
            self._proxy = None

    # Inside

    def _faults(self) -> FaultProxy:
        if self._has_tls:
            raise ValueError("faults are injected by a proxy, which cannot look into TLS; use a broker without tls=True for them")
        if self._proxy is None:
            from ottla.client.addresses import parse_addresses
            from ottla.testing.faults import FaultProxy

            assert self.direct_server, "the broker is not running; start() it, or use it in a with statement"
            first = parse_addresses(self.direct_server)[0]
            self._proxy = FaultProxy((first.host, first.port))
        return self._proxy

    def _login(self, user: str | None) -> dict[str, str]:
        return {} if self.logins is None and user is None else self._known_logins().properties(user)

    def _known_logins(self) -> Login:
        if self.logins is None:
            raise ValueError("the broker has no users; give it some: Broker(users={...}), or the fixture kafka_broker_users")
        return self.logins

    def _store_logins(self) -> None:
        if self.logins is not None:
            self.logins.store(self._client())

    def _client(self) -> Cluster:
        owner = os.getpid(), threading.get_ident()
        cluster = self._clusters.get(owner)
        if cluster is None:
            from ottla.client.blocking.cluster import Cluster

            assert self.direct_server, "the broker is not running; start() it, or use it in a with statement"
            security = None if self.logins is None else self.logins.security()
            cluster = Cluster(self.direct_server, client_id="ottla-testing", timeout_s=WAIT_SECONDS, security=security)
            self._clusters[owner] = cluster
        return cluster

    def _ends(self, topic: str, which: str, is_committed_only: bool) -> dict[TopicPartition, int]:
        from ottla.base.types import TopicPartition
        from ottla.client.core import admin

        cluster = self._client()
        cluster.metadata.topics.pop(topic, None)
        wanted = {TopicPartition(topic, index): getattr(admin, which) for index in cluster.partitions(topic)}
        found = {}
        for partition, result in admin.list_offsets(cluster, wanted, isolation_level=int(is_committed_only)).items():
            if isinstance(result, Exception):
                raise result
            found[partition] = result.offset
        return found

    def _read_since(self, starts: Mapping[TopicPartition, int] | None, topic: str, found: list[TopicRecord]) -> None:
        """Replaces `found` by the committed records from these offsets on. None means all records of a topic that may not exist yet."""
        if topic in self.topics():
            found[:] = self._read(topic, starts or self._ends(topic, "EARLIEST", True), True)

    def _read(self, topic: str, starts: Mapping[TopicPartition, int], is_committed_only: bool) -> list[TopicRecord]:
        from ottla.client.core.operations import fetch

        ends = self._ends(topic, "LATEST", is_committed_only)
        left = {partition: start for partition, start in starts.items() if start < ends.get(partition, 0)}
        cluster, deadline = self._client(), time.monotonic() + WAIT_SECONDS
        isolation = "read_committed" if is_committed_only else "read_uncommitted"
        found: list[TopicRecord] = []
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic!r} could not be read within {WAIT_SECONDS:g} s")
            for fetched in cluster.run(fetch(cluster.core, left, isolation=isolation)):
                found += _topic_records(fetched.partition, fetched.records())
                left[fetched.partition] = fetched.next_offset
            left = {partition: offset for partition, offset in left.items() if offset < ends[partition]}
        return sorted(record for record in found if record.offset < ends[_place(record)])


def _topic_records(partition: TopicPartition, records: Iterable[Any]) -> Sequence[TopicRecord]:
    return [
        TopicRecord(*partition, record.offset, record.timestamp, _owned(record.key), _owned(record.value), _owned_headers(record.headers))
        for record in records
    ]


def _shown(records: Sequence[TopicRecord]) -> str:
    lines = [
        f"partition {record.partition} offset {record.offset}: key {_short(record.key)}, value {_short(record.value)}"
        for record in records[:SHOWN_RECORDS_MAX]
    ]
    if len(records) > SHOWN_RECORDS_MAX:
        lines.append(f"and {len(records) - SHOWN_RECORDS_MAX} more")
    return "".join(f"\n  {line}" for line in lines)


def _short(data: bytes | None) -> str:
    return repr(data) if data is None or len(data) <= SHOWN_BYTES_MAX else f"{data[:SHOWN_BYTES_MAX]!r}... ({len(data)} bytes)"


def _place(record: TopicRecord) -> TopicPartition:
    from ottla.base.types import TopicPartition

    return TopicPartition(record.topic, record.partition)


def _owned(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _owned_headers(headers: Iterable[tuple[Any, Any]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name if isinstance(name, str) else bytes(name).decode(), _owned(data)) for name, data in headers)


def _encoded(data: Text) -> bytes | None:
    if data is not None and not isinstance(data, str | bytes | bytearray | memoryview):
        kind = type(data).__name__
        raise TypeError(f"keys, values and headers are str, bytes or None, not {kind}; encode it first, as with json.dumps()")
    return data.encode() if isinstance(data, str) else data
