"""Makes topics and clients for the checks (librdkafka through confluent-kafka), and has `expect`, which checks the records that readers
get.

`expect` reads under read_committed until the last expected record has arrived; all records must then be as expected. Checks that use
`expect` therefore often write a plain record last. A check returns a remark, or raises `Violation`, `NotSupported` or `Inconclusive`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.command import UsageError

if TYPE_CHECKING:
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.token_source import TokenKeeper

PASS = "pass"
FAIL = "fail"
NOT_SUPPORTED = "not supported"
UNCLEAR = "unclear"


class Violation(Exception):
    """The broker broke the promise; the text says what was observed."""


class NotSupported(Exception):
    """The broker lacks the feature."""


class Inconclusive(Exception):
    """The check could not be made, so nothing is known about the promise."""


class Verdict(NamedTuple):
    name: str
    verdict: str
    detail: str
    seconds: float


WAIT_SECONDS = 10.0
READ_SECONDS = 10.0
_TOKEN_SECONDS = 3600.0
"""Assumed lifetime of a token that does not say when it expires."""
GROUP_PREFIX = "ottla-check-eos"

_LIBRDKAFKA = {
    "ssl.truststore.location": "ssl.ca.location", "ssl.truststore.certificates": "ssl.ca.pem", "request.timeout.ms": "socket.timeout.ms",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem", "ssl.keystore.key": "ssl.key.pem",
}  # fmt: skip
_JAVAS_ALONE = (
    "sasl.jaas.config", "ssl.truststore.type", "ssl.truststore.password", "ssl.keystore.type", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.enabled.protocols", "ssl.protocol",
)  # fmt: skip


def stock_client() -> Any:
    """Returns the module `confluent_kafka`. Raises `UsageError` if it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise UsageError("these checks are made by a stock client: pip install confluent-kafka") from None
    return confluent_kafka


def settings_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """Converts Kafka's client properties to librdkafka's settings."""
    from ottla.client.core.sasl import OAUTHBEARER
    from ottla.client.security import credentials, mechanism_of, tokens_of

    found: dict[str, Any] = {_LIBRDKAFKA.get(key, key): value for key, value in properties.items() if key not in _JAVAS_ALONE}
    is_sasl = properties.get("security.protocol", "").upper().startswith("SASL")
    if is_sasl and mechanism_of(properties) == OAUTHBEARER:
        found = {key: value for key, value in found.items() if not key.startswith(("sasl.oauthbearer.", "sasl.login.", "enable.sasl."))}
        found["oauth_cb"] = _token_callback(tokens_of(properties))
    elif is_sasl:
        found["sasl.username"], found["sasl.password"] = credentials(properties)
        found.setdefault("sasl.mechanism", "PLAIN")
    if properties.get("ssl.keystore.location"):  # librdkafka has two settings for a PEM file with key and chain
        found.setdefault("ssl.certificate.location", properties["ssl.keystore.location"])
        found.setdefault("ssl.key.location", properties["ssl.keystore.location"])
        if properties.get("ssl.keystore.password"):
            found.setdefault("ssl.key.password", properties["ssl.keystore.password"])
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _token_callback(keeper: TokenKeeper) -> Callable[[str], tuple[str, float]]:
    """Returns a callback that gives librdkafka the tokens of Ottla's client, with their expiry in seconds since 1970."""

    def token(_config: str) -> tuple[str, float]:
        found = keeper.token()
        return found.text, found.ends_s or time.time() + _TOKEN_SECONDS

    return token


def _silent() -> logging.Logger:
    """Returns a logger that drops messages, because librdkafka would print the errors that the checks provoke."""
    logger = logging.getLogger("ottla.check.eos.librdkafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


class World:
    """One run of the checks. `cluster` is a connection of our own client, for requests that no stock client sends."""

    def __init__(self, settings: Mapping[str, Any], cluster: Cluster, *, replication_factor: int = -1) -> None:
        """`replication_factor`: of the topics that the checks create; -1 is the broker's default."""
        self._replication_factor = replication_factor
        self.kafka = stock_client()
        self.settings = {"logger": _silent(), "client.id": "ottla-check-eos", **settings}
        self.cluster = cluster
        self.name = f"{GROUP_PREFIX}-{uuid.uuid4().hex[:8]}"
        self.topics: list[str] = []
        self.admin = self.kafka.admin.AdminClient(self.settings)

    @property
    def bootstrap(self) -> str:
        return str(self.settings["bootstrap.servers"])

    @property
    def is_plaintext(self) -> bool:
        """Whether a proxy can read the connection."""
        return not str(self.settings.get("security.protocol", "")).upper().endswith("SSL")

    def reach(self) -> None:
        """Raises `ConnectError` if no broker answers, which librdkafka does not report as an error."""
        self.cluster.refresh([])

    # Topics

    def topic(self, suffix: str, partitions: int = 1) -> str:
        """Creates a topic for the checks and returns its name. Raises `Inconclusive` if it cannot be created."""
        name = f"{self.name}-{suffix}"
        wanted = self.kafka.admin.NewTopic(name, partitions, self._replication_factor)
        try:
            self.admin.create_topics([wanted], operation_timeout=WAIT_SECONDS)[name].result(WAIT_SECONDS)
        except self.kafka.KafkaException as error:
            code = error.args[0].name()
            advice = "; choose another one by --replication-factor" if code == "INVALID_REPLICATION_FACTOR" else ""
            raise Inconclusive(f"no topic could be created for it: {code}: {error.args[0].str()}{advice}") from None
        self.topics.append(name)
        return name

    def tidy_up(self) -> None:
        """Deletes the created topics, and ignores errors."""
        if not self.topics:
            return
        for deletion in self.admin.delete_topics(self.topics, operation_timeout=WAIT_SECONDS).values():
            try:
                deletion.result(WAIT_SECONDS)
            except self.kafka.KafkaException:
                continue

    # Clients

    def producer(self, **settings: Any) -> Any:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        common = {"linger.ms": 0, "reconnect.backoff.ms": 20, "retry.backoff.ms": 20, "enable.idempotence": True}
        return self.kafka.Producer({**self.settings, **common, **named})

    def transactional(self, suffix: str, *, timeout_ms: int = 60_000) -> Any:
        """Returns a transactional producer after init_transactions. Raises `NotSupported` if the broker has no transactions."""
        producer = self.producer(transactional_id=f"{self.name}-{suffix}", transaction_timeout_ms=timeout_ms)
        try:
            producer.init_transactions(WAIT_SECONDS)
        except self.kafka.KafkaException as error:
            unsupported = (self.kafka.KafkaError._UNSUPPORTED_FEATURE, self.kafka.KafkaError.UNSUPPORTED_VERSION)
            if error.args[0].code() in unsupported:
                raise NotSupported(f"no transactions: {error.args[0].str()}") from None
            raise
        return producer

    def consumer(self, group: str, **settings: Any) -> Any:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        common = {
            "group.id": f"{self.name}-{group}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
        return self.kafka.Consumer({**self.settings, **common, **named})

    # Writing and reading

    def write(self, producer: Any, topic: str, *values: str, partition: int = 0) -> None:
        """Writes records and waits until all are acknowledged. Raises `Violation` otherwise."""
        refused: list[str] = []

        def report(error: Any, _message: Any) -> None:
            if error is not None:
                refused.append(error.str())

        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=report)
        if producer.flush(WAIT_SECONDS) or refused:
            raise Violation(f"a record was not acknowledged within {WAIT_SECONDS:g} s: {refused[0] if refused else 'no answer'}")

    def read(self, topic: str) -> list[str]:
        """Returns the values that a read_committed reader gets from start to end of partition 0. Raises `Violation` if that takes too long.
        """
        consumer = self.consumer("reader")
        consumer.assign([self.kafka.TopicPartition(topic, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + READ_SECONDS
        try:
            while True:
                if time.monotonic() > deadline:
                    raise Violation(
                        f"a read_committed reader got {shown(found)}, but did not come to the end of {topic} within {READ_SECONDS:g} s"
                    )
                for message in consumer.consume(1000, 0.05):
                    error = message.error()
                    if error is None:
                        found.append(message.value().decode())
                    elif error.code() == self.kafka.KafkaError._PARTITION_EOF:
                        return found
        finally:
            consumer.close()

    def expect(self, topic: str, wanted: Sequence[str], seconds: float = WAIT_SECONDS) -> None:
        """Reads under read_committed until the last wanted value is read. Raises `Violation` if the values differ, or after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            seen = self.read(topic)
            if wanted[-1] in seen:
                break
            if time.monotonic() > deadline:
                raise Violation(f"read_committed readers did not get {wanted[-1]!r} within {seconds:g} s; they got {shown(seen)}")
            time.sleep(0.05)
        if seen != list(wanted):
            raise Violation(f"read_committed readers got {shown(seen)} instead of {shown(wanted)}")


def shown(values: Sequence[str], most: int = 8) -> str:
    return (", ".join(values[:most]) + (f", ... ({len(values)})" if len(values) > most else "")) or "nothing"
