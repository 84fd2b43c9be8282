"""Stock clients log in by SASL: each mechanism, correct and wrong credentials, sessions that expire, users who are removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from ottla.client.addresses import parse_addresses
from ottla.client.aio import AsyncConnection
from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.core.login_renewal import LoginRenewal
from ottla.client.errors import ConnectError
from ottla.client.errors import KafkaError as OttlaKafkaError
from ottla.client.security import Security
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.conftest import SETTINGS

Fresh = Callable[[str], str]
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice secret" user_bob="b";'
PASSWORDS = {"PLAIN": "alice secret", "SCRAM-SHA-256": "for 256", "SCRAM-SHA-512": "for 512, ÄÖ"}
MECHANISMS = list(PASSWORDS)
REAUTH_MS = 1500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a listener for SASL and a listener without login."""
    settings = (
        *SETTINGS,
        "listeners=SASL_PLAINTEXT://127.0.0.1:0,SHORT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"sasl.jaas.config={JAAS}",
        f"listener.name.short.connections.max.reauth.ms={REAUTH_MS}",
        "connection.failed.authentication.delay.ms=10",
    )
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings).start()
    try:
        add_alice(address(process, "PLAINTEXT"))
        yield process
    finally:
        process.stop()


def add_alice(bootstrap: str) -> None:
    with closing_admin(bootstrap) as admin:
        for name, number in (("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256), ("SCRAM-SHA-512", ScramMechanism.SCRAM_SHA_512)):
            change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(number, 4096), PASSWORDS[name].encode())
            settle(admin.alter_user_scram_credentials([change]))


def address(broker: BrokerProcess, listener: str) -> str:
    """Returns the address of a listener since the last start, from the broker's log."""
    line = [line for line in broker.log_text().splitlines() if "READY in" in line][-1]
    entries = line.partition("listening on ")[2].split(", ")
    return next(entry.partition("://")[2].strip() for entry in entries if entry.startswith(f"{listener}://"))


class closing_admin:
    """Yields librdkafka's admin client, and drops it at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._client: AdminClient | None = AdminClient({"bootstrap.servers": bootstrap})

    def __enter__(self) -> AdminClient:
        assert self._client is not None
        return self._client

    def __exit__(self, *_error: object) -> None:
        self._client = None


def settle(futures: dict[str, Any]) -> None:
    for future in futures.values():
        future.result(60)


def properties(bootstrap: str, mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": user,
        "sasl.password": PASSWORDS[mechanism] if password is None else password,
    }  # fmt: skip


def python_options(bootstrap: str, mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, str]:
    """Returns the same options for the clients in Python."""
    found = properties(bootstrap, mechanism, user, password)
    return {
        "bootstrap_servers": bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism,
        "sasl_plain_username": user, "sasl_plain_password": found["sasl.password"],
    }  # fmt: skip


def librdkafka_sends(settings: dict[str, Any], topic: str) -> list[Any]:
    """Sends a record; returns the errors of the client and of the record."""
    errors: list[Any] = []
    client = Producer({**settings, "error_cb": errors.append, "message.timeout.ms": 60_000, "log_level": 0})
    client.produce(topic, b"value", on_delivery=lambda error, _record: errors.append(error) if error else errors.append(None))
    deadline = time.monotonic() + 60
    while not errors and time.monotonic() < deadline:
        client.poll(0.2)
    client.purge()
    client.flush(5)
    return errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: BrokerProcess, fresh: Fresh, mechanism: str) -> None:
    assert librdkafka_sends(properties(broker.address, mechanism), fresh("sasl"))[0] is None
    for user, password in (("alice", "wrong"), ("mallory", PASSWORDS[mechanism])):
        refusal = librdkafka_sends(properties(broker.address, mechanism, user, password), fresh("sasl"))[0]
        assert refusal.code() == LibraryError._AUTHENTICATION, refusal


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: BrokerProcess, fresh: Fresh, mechanism: str) -> None:
    topic, settings = fresh("sasl"), python_options(broker.address, mechanism)
    with closing(KafkaProducer(**settings)) as producer:
        producer.send(topic, b"value").get(60)
    with closing(KafkaConsumer(topic, group_id=fresh("group"), auto_offset_reset="earliest", **settings)) as reader:
        assert next(iter(reader)).value == b"value"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: BrokerProcess, fresh: Fresh, mechanism: str) -> None:
    async def send(**settings: Any) -> int:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            return int((await producer.send_and_wait(fresh("sasl"), b"value")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send(**python_options(broker.address, mechanism))) == 0
    with pytest.raises(AioError):
        asyncio.run(send(**python_options(broker.address, mechanism, "alice", "wrong")))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_client(broker: BrokerProcess, mechanism: str) -> None:
    with Cluster(broker.address, security=Security(properties(broker.address, mechanism))) as cluster:
        assert "alice" in scram_admin.describe_scram(cluster)
    wrong = Security(properties(broker.address, mechanism, "alice", "wrong"))
    with Cluster(broker.address, security=wrong) as cluster, pytest.raises(OttlaKafkaError, match=r"credentials|Invalid username"):
        scram_admin.describe_scram(cluster)


def test_a_session_ends_again_and_again_under_load(broker: BrokerProcess, fresh: Fresh) -> None:
    """A client that authenticates again in time (KIP-368) loses no request."""
    topic, answers = fresh("sessions"), [0, 0]
    errors: list[Any] = []
    client = Producer({**properties(address(broker, "SHORT"), "SCRAM-SHA-256"), "error_cb": errors.append, "linger.ms": 0})

    def delivered(error: Any, _record: Any) -> None:
        answers[error is not None] += 1

    deadline = time.monotonic() + 3 * REAUTH_MS / 1000
    while time.monotonic() < deadline:
        client.produce(topic, b"value", on_delivery=delivered)
        client.poll(0.01)
    assert client.flush(60) == 0
    assert answers[0] > 0 and answers[1] == 0 and errors == []


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of logins of Ottla's client, in seconds."""
    times: list[float] = []
    logged_in = LoginRenewal.logged_in

    def noting(renewal: LoginRenewal, lifetime_ms: int, now_s: float) -> None:
        times.append(now_s)
        logged_in(renewal, lifetime_ms, now_s)

    monkeypatch.setattr(LoginRenewal, "logged_in", noting)
    return times


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_client_logs_in_again_in_time(broker: BrokerProcess, logins: list[float], mechanism: str) -> None:
    """Ottla's client logs in again in time over several sessions, on one connection, also while it waits for other answers."""
    security, count = Security(properties(address(broker, "SHORT"), mechanism)), 0
    since = len(broker.log_text())
    with closing(BlockingConnection(parse_addresses(address(broker, "SHORT"))[0], security=security).open()) as connection:
        while len(logins) < 3:
            for _ in range(3):
                connection.send(DescribeClusterRequest())
            count += sum(connection.receive(60).error_code == 0 for _ in range(3))
        assert connection.in_flight == 0
    assert count > 6 and "before authentication" not in broker.log_text()[since:]


def test_our_own_client_on_asyncio_logs_in_again_in_time(broker: BrokerProcess, logins: list[float]) -> None:
    async def ask_for_a_while() -> int:
        security = Security(properties(address(broker, "SHORT"), "SCRAM-SHA-256"))
        connection = await AsyncConnection.connect(parse_addresses(address(broker, "SHORT"))[0], security=security, timeout_s=60)
        count = 0
        while len(logins) < 3:
            asked = [connection.request(DescribeClusterRequest(), timeout_s=60) for _ in range(3)]
            count += sum([answer.error_code == 0 for answer in await asyncio.gather(*asked)])
        connection.close()
        await asyncio.sleep(0)
        return count

    assert asyncio.run(ask_for_a_while()) > 6


def test_a_fetch_waits_no_longer_than_its_session(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoginRenewal, "is_due", lambda _renewal, _now_s: False)
    with closing_admin(address(broker, "PLAINTEXT")) as admin:
        settle(admin.create_topics([NewTopic("waited-for", 1)]))
    security = Security(properties(address(broker, "SHORT"), "PLAIN"))
    with closing(BlockingConnection(parse_addresses(address(broker, "SHORT"))[0], security=security).open()) as connection:
        (topic,) = connection.request(MetadataRequest(topics=[MetadataRequestTopic(name="waited-for")]), timeout_s=60).topics
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        asked = FetchRequest(
            max_wait_ms=600_000, min_bytes=1, max_bytes=1 << 20,
            topics=[FetchTopic(topic="waited-for", topic_id=topic.topic_id, partitions=[partition])],
        )  # fmt: skip
        answer = connection.request(asked, timeout_s=60)
        assert [one.error_code for one in answer.responses[0].partitions] == [0]
        with pytest.raises(ConnectError):
            connection.request(DescribeClusterRequest(), timeout_s=60)


def test_a_client_that_does_not_authenticate_again_is_closed(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoginRenewal, "is_due", lambda _renewal, _now_s: False)
    short = address(broker, "SHORT")
    with Cluster(short, security=Security(properties(short, "PLAIN"))) as cluster:
        scram_admin.describe_scram(cluster)
    since = len(broker.log_text())
    with Cluster(short, security=Security(properties(short, "PLAIN"))) as cluster:
        deadline = time.monotonic() + 60
        while "before authentication" not in broker.log_text()[since:]:
            assert time.monotonic() < deadline
            scram_admin.describe_scram(cluster)  # over another connection once this one is closed
            time.sleep(REAUTH_MS / 1000)


def test_a_removed_user_is_logged_out(broker: BrokerProcess, fresh: Fresh) -> None:
    user = fresh("user")
    with closing_admin(address(broker, "PLAINTEXT")) as admin:
        settle(
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"password")]
            )
        )
        assert librdkafka_sends(properties(broker.address, "SCRAM-SHA-256", user, "password"), fresh("sasl"))[0] is None
        with closing(KafkaConsumer(**python_options(broker.address, "SCRAM-SHA-256", user, "password"))) as reader:
            assert reader.topics() is not None
            settle(admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)]))
            eventually(lambda: f"'User:{user}' may not log in any more" in broker.log_text())
    refusal = librdkafka_sends(properties(broker.address, "SCRAM-SHA-256", user, "password"), fresh("sasl"))[0]
    assert refusal.code() == LibraryError._AUTHENTICATION


def test_credentials_survive_a_restart_and_stand_nowhere_in_clear(broker: BrokerProcess, fresh: Fresh) -> None:
    broker.restart()
    for mechanism in MECHANISMS:
        assert librdkafka_sends(properties(broker.address, mechanism), fresh("sasl"))[0] is None
    secrets = [password.encode() for password in PASSWORDS.values()]
    texts = [broker.log_path.read_bytes(), *contents(broker.data)]
    assert not [secret for secret in secrets for text in texts if secret in text]


def contents(directory: Path) -> list[bytes]:
    """Returns the contents of the files that exist and are not deleted."""
    found = []
    for path in directory.rglob("*"):
        try:
            if path.is_file():
                found.append(path.read_bytes())
        except FileNotFoundError:
            continue
    return found
