"""Stock clients over TLS: with and without client certificates, with SASL, with wrong certificates, and after a renewal."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from kafka import KafkaConsumer, KafkaProducer

from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster
from ottla.client.security import Security
from ottla.security.distinguished_name import subject_of
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.certificates import Authority
from tests.clients.conftest import SETTINGS
from tests.clients.test_sasl import address

Fresh = Callable[[str], str]
LARGE = os.urandom(1 << 20) * 3


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), need_program)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BrokerProcess]:
    """One broker with listeners for TLS, for TLS with clients' certificates, and for TLS with SASL."""
    settings = (
        *SETTINGS,
        "listeners=SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map=SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT",
        f"ssl.keystore.location={authority.issue('broker')}",
        "listener.name.mutual.ssl.client.auth=required",
        f"listener.name.mutual.ssl.truststore.location={authority.ca}",
        "sasl.enabled.mechanisms=PLAIN",
        "ottla.sasl.plain.users=alice=secret",
        "ottla.authentication.timeout.ms=3000",
        "ottla.metrics.listen=127.0.0.1:0",
    )
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings).start()
    try:
        yield process
    finally:
        process.stop()


def librdkafka(bootstrap: str, authority: Authority, **more: str) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": bootstrap, "security.protocol": "SSL", "ssl.ca.location": str(authority.ca), "log_level": 0, **named}


def send(settings: dict[str, Any], topic: str, value: bytes = b"value", seconds: float = 60) -> Any:
    """Sends a record; returns its error, or None."""
    answers: list[Any] = []
    client = Producer({**settings, "message.timeout.ms": int(seconds * 1000), "message.max.bytes": 10_000_000})
    client.produce(topic, value, on_delivery=lambda error, _record: answers.append(error))
    client.flush(seconds + 10)
    return answers[0]


def read(settings: dict[str, Any], topic: str, group: str) -> bytes:
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest", "fetch.message.max.bytes": 10_000_000})
    try:
        consumer.subscribe([topic])
        found: list[Any] = []
        eventually(lambda: found.append(consumer.poll(1.0)) or (found[-1] is not None and not found[-1].error()))
        return bytes(found[-1].value())
    finally:
        consumer.close()


def test_librdkafka_sends_and_reads_much(broker: BrokerProcess, authority: Authority, fresh: Fresh) -> None:
    topic, settings = fresh("tls"), librdkafka(broker.address, authority)
    assert send(settings, topic, LARGE) is None
    assert read(settings, topic, fresh("group")) == LARGE


def test_the_clients_in_python(broker: BrokerProcess, authority: Authority, fresh: Fresh) -> None:
    topic = fresh("tls")
    options = {"bootstrap_servers": broker.address, "security_protocol": "SSL", "ssl_cafile": str(authority.ca)}
    with closing(KafkaProducer(**options)) as producer:
        producer.send(topic, b"value").get(60)
    with closing(KafkaConsumer(topic, group_id=fresh("group"), auto_offset_reset="earliest", **options)) as reader:
        assert next(iter(reader)).value == b"value"

    async def aio() -> int:
        context = ssl.create_default_context(cafile=str(authority.ca))
        client = AIOKafkaProducer(bootstrap_servers=broker.address, security_protocol="SSL", ssl_context=context)
        await client.start()
        try:
            return int((await client.send_and_wait(topic, b"value")).offset)
        finally:
            await client.stop()

    assert asyncio.run(aio()) == 1


def test_our_own_client(broker: BrokerProcess, authority: Authority) -> None:
    properties = {"security.protocol": "SSL", "ssl.truststore.location": str(authority.ca), "ssl.truststore.type": "PEM"}
    security = Security(properties)
    assert security.context is not None and len(security.context.get_ca_certs()) == 1, "a truststore replaces the system's"
    with Cluster(broker.address, security=security) as cluster:
        assert scram_admin.describe_scram(cluster) == {}


def test_a_client_shows_a_certificate_where_it_must(
    broker: BrokerProcess, authority: Authority, tmp_path: Path, need_program: Callable[[str], str], fresh: Fresh
) -> None:
    mutual = address(broker, "MUTUAL")
    own = authority.issue("alice", "/O=Example/CN=alice")
    with_one = librdkafka(mutual, authority, ssl_certificate_location=str(own), ssl_key_location=str(own))
    assert send(with_one, fresh("tls")) is None
    assert send(librdkafka(mutual, authority), fresh("tls"), seconds=3) is not None
    strange = Authority(tmp_path, need_program, "another").issue("mallory")
    by_another = librdkafka(mutual, authority, ssl_certificate_location=str(strange), ssl_key_location=str(strange))
    assert send(by_another, fresh("tls"), seconds=3) is not None
    eventually(lambda: re.search(r'authentication refused: host=\\?"127.0.0.1.* mechanism=\\?"TLS.*MUTUAL', broker.log_text()))


def test_sasl_under_tls(broker: BrokerProcess, authority: Authority, fresh: Fresh) -> None:
    settings = {
        **librdkafka(address(broker, "SASL_SSL"), authority), "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
        "sasl.username": "alice", "sasl.password": "secret",
    }  # fmt: skip
    assert send(settings, fresh("tls")) is None
    assert send({**settings, "sasl.password": "wrong"}, fresh("tls"), seconds=3) is not None


@pytest.mark.parametrize("opening", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10" + bytes(16)])
def test_who_does_not_complete_the_handshake_is_closed(broker: BrokerProcess, opening: bytes) -> None:
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        plain.sendall(opening)
        try:
            answer = b"".join(iter(lambda: plain.recv(4096), b""))
        except ConnectionResetError:
            answer = b""
    assert len(answer) < 100, "an alert at most"


def connected(broker: BrokerProcess, context: ssl.SSLContext) -> ssl.SSLSocket:
    host, _, port = broker.address.rpartition(":")
    return context.wrap_socket(socket.create_connection((host, int(port)), timeout=60), server_hostname="localhost")


def test_versions_of_tls(broker: BrokerProcess, authority: Authority) -> None:
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.minimum_version = context.maximum_version = version
        with connected(broker, context) as tls:
            assert tls.version() == name


def test_the_metric_of_certificates_that_end(broker: BrokerProcess) -> None:
    found = re.search(r"metrics and health on (http://\S+?)[\"\s]", broker.log_text())
    assert found is not None
    with urllib.request.urlopen(f"{found[1]}/metrics", timeout=60) as answer:
        ends = re.findall(r'(?m)^ottla_tls_certificate_not_after_seconds{listener="(\w+)"} (\d+)$', answer.read().decode())
    assert [name for name, _ in ends] == ["SSL", "MUTUAL", "SASL_SSL"]
    assert all(0 < int(seconds) - time.time() < 3 * 86400 for _, seconds in ends)


def test_a_certificate_is_renewed_without_a_restart(broker: BrokerProcess, authority: Authority, fresh: Fresh) -> None:
    def serial() -> str:
        context = ssl.create_default_context(cafile=str(authority.ca))
        with connected(broker, context) as tls:
            return str((tls.getpeercert() or {})["serialNumber"])

    before = serial()
    authority.issue("broker")
    os.kill(broker.pid, signal.SIGHUP)
    eventually(lambda: serial() != before)
    assert send(librdkafka(broker.address, authority), fresh("tls")) is None


# Alterations while the broker runs. None of them changes the listener MUTUAL.


def alter(broker: BrokerProcess, changes: dict[str, str | None], **options: Any) -> str:
    """Sends IncrementalAlterConfigs; returns nothing, or the error's name and its message. The value None deletes a setting."""
    by_name = AlterConfigOpType.DELETE, AlterConfigOpType.SET
    entries = [
        ConfigEntry(f"listener.name.mutual.{name}", value, incremental_operation=by_name[value is not None])
        for name, value in changes.items()
    ]
    admin = AdminClient({"bootstrap.servers": address(broker, "PLAINTEXT")})
    (answer,) = admin.incremental_alter_configs([ConfigResource("broker", "0", incremental_configs=entries)], **options).values()
    try:
        answer.result(60)
    except KafkaException as refusal:
        return f"{refusal.args[0].name()}: {refusal.args[0].str()}"
    return ""


def stored(broker: BrokerProcess) -> dict[str, str]:
    """Returns the dynamic settings of the broker."""
    admin = AdminClient({"bootstrap.servers": address(broker, "PLAINTEXT")})
    (answer,) = admin.describe_configs([ConfigResource("broker", "0")]).values()
    return {name: entry.value for name, entry in answer.result(60).items() if entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value}


def shown_name(broker: BrokerProcess, authority: Authority) -> str:
    """Returns the name in the certificate of the listener MUTUAL."""
    host, _, port = address(broker, "MUTUAL").rpartition(":")
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(authority.issue("looker"))
    with context.wrap_socket(socket.create_connection((host, int(port)), timeout=60), server_hostname="localhost") as tls:
        return subject_of(tls.getpeercert(binary_form=True) or b"")


@pytest.fixture(scope="module")
def unusable(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str | None]]:
    """Alterations that would make the listener unusable."""
    directory, at = tmp_path_factory.mktemp("unusable"), "-----BEGIN CERTIFICATE"
    good, other = authority.issue("good").read_text(), authority.issue("other").read_text()
    mixed, locked = directory / "mixed.pem", directory / "locked.pem"
    mixed.write_text(good[: good.index(at)] + other[other.index(at) :])
    command = ["openssl", "pkcs8", "-topk8", "-in", authority.issue("good"), "-out", locked, "-passout", "pass:topsecret"]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    locked.write_text(locked.read_text() + good[good.index(at) :])
    return {
        "INVALID_REQUEST: listener MUTUAL: cannot read ssl.keystore.location=": {"ssl.keystore.location": str(directory / "absent")},
        "Is a directory": {"ssl.keystore.location": str(directory)},
        "the private key does not fit the certificate": {"ssl.keystore.location": str(mixed)},
        "has expired on": {"ssl.keystore.location": str(authority.issue("expired", days=-1))},
        "the password of the private key is wrong": {"ssl.keystore.location": str(locked), "ssl.key.password": "guessed"},
        "cannot read ssl.truststore.location=": {"ssl.truststore.location": str(directory / "absent")},
        "INVALID_REQUEST: Invalid value perhaps": {"ssl.client.auth": "perhaps"},
    }


def test_an_alteration_that_could_not_be_used_is_refused(
    broker: BrokerProcess, authority: Authority, unusable: dict[str, dict[str, str | None]]
) -> None:
    before = stored(broker), shown_name(broker, authority)
    for reason, changes in unusable.items():
        for validate_only in (True, False):
            refusal = alter(broker, changes, validate_only=validate_only)
            assert reason in refusal and "guessed" not in refusal, (reason, refusal)
    assert (stored(broker), shown_name(broker, authority)) == before
    assert "guessed" not in broker.log_text()


def test_an_alteration_is_in_force_with_its_answer_and_the_file_is_read_again(broker: BrokerProcess, authority: Authority) -> None:
    keystore = {"ssl.keystore.location": str(authority.issue("altered"))}
    assert alter(broker, keystore, validate_only=True) == ""
    assert shown_name(broker, authority) != "CN=altered" and not stored(broker)
    assert alter(broker, keystore) == ""
    assert shown_name(broker, authority) == "CN=altered" and list(stored(broker)) == ["listener.name.mutual.ssl.keystore.location"]
    authority.issue("altered", "/CN=renewed")
    assert shown_name(broker, authority) == "CN=altered"
    assert alter(broker, keystore) == "", "the same value: the file is read again"
    assert shown_name(broker, authority) == "CN=renewed"
    assert alter(broker, {"ssl.keystore.location": None}) == ""
    assert shown_name(broker, authority) == "CN=broker" and not stored(broker)
