"""A broker with users: clients log in as one of them, others are turned away, and no password stands where others can read it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import ottla.client.aio
from ottla.base.settings.jaas import parse_jaas
from ottla.base.settings.sources import parse_properties
from ottla.client import AuthenticationError, ConnectError, connect
from ottla.testing.broker import Broker
from ottla.testing.handle import BrokerHandle
from ottla.testing.logins import ADMINISTRATOR, Logins, logins_of, properties_text
from tests.testing.test_plugin import check_passed, run

PASSWORDS = {"alice": 'a "secret"; with=\\ blanks', "bob": "b#1"}
RULES = {"authorizer.class.name": "acl", "allow.everyone.if.no.acl.found": "false"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=RULES, users=PASSWORDS) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"topic-{uuid.uuid4().hex}")


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_conveniences_and_clients_without_a_user_are_the_administrators(broker: Broker, topic: str) -> None:
    broker.add_record(topic, "x")
    assert [record.value for record in broker.records(topic)] == [b"x"]
    with closing(broker.consumer(topic, client="kafka-python")) as consumer:
        assert next(consumer).value == b"x"
    producer = broker.producer(client="confluent-kafka")
    producer.produce(topic, "y")
    assert producer.flush(60) == 0 and len(broker.records(topic)) == 2


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_user_logs_in_by_each_mechanism(broker: Broker, mechanism: str) -> None:
    for user in PASSWORDS:
        for options in (broker.logins.properties(user, mechanism), broker.java_config(user=user, mechanism=mechanism)):  # type: ignore[union-attr]
            with connect(broker.bootstrap_server, options) as client:
                assert client.cluster_id and client.topics() == []
    with pytest.raises(AuthenticationError):
        connect(broker.bootstrap_server, {**broker.config(user="bob"), "sasl.password": "wrong"})


def test_a_user_may_do_what_rules_say(broker: Broker, topic: str) -> None:
    def delivered(user: str) -> str:
        answers: list[str] = []
        producer = broker.producer(client="confluent-kafka", user=user, message_timeout_ms=60_000)
        producer.produce(topic, "x", on_delivery=lambda error, _record: answers.append("" if error is None else error.name()))
        producer.flush(60)
        return answers[0]

    assert delivered("alice") == "TOPIC_AUTHORIZATION_FAILED"

    async def as_administrator() -> None:
        async with broker.aio_producer() as producer:
            await producer.send_and_wait(topic, b"x")

    asyncio.run(as_administrator())


@pytest.fixture(scope="module")
def tls() -> Iterator[Broker]:
    with Broker(users=PASSWORDS, tls=True, topics=["of-tls"]) as broker:
        yield broker


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_clients_of_each_library_connect_by_tls(tls: Broker) -> None:
    assert tls.config(user="alice")["security.protocol"] == "SASL_SSL" and "of-tls" in tls.topics()
    producer = tls.producer(client="confluent-kafka", user="alice")
    producer.produce("of-tls", "confluent")
    assert producer.flush(60) == 0
    with closing(tls.producer(client="kafka-python", user="bob")) as python:
        python.send("of-tls", b"python").get(60)

    async def aio() -> None:
        async with tls.aio_producer(user="bob") as asynchronous:
            await asynchronous.send_and_wait("of-tls", b"aio")
        async with await ottla.client.aio.connect(tls.bootstrap_server, tls.config(user="bob")) as own:
            assert await own.topics() == ["of-tls"]

    asyncio.run(aio())
    assert {record.value for record in tls.records("of-tls")} == {b"confluent", b"python", b"aio"}
    with connect(tls.bootstrap_server, tls.java_config(user="alice", mechanism="SCRAM-SHA-512")) as client:
        assert client.topics() == ["of-tls"]


def test_a_client_without_the_authority_gets_one_line(tls: Broker) -> None:
    known = tls.config(user="alice")
    unknowing = {name: value for name, value in known.items() if name != "ssl.ca.location"}
    with pytest.raises(ConnectError, match=r"no TLS with .*certificate.*; check security.protocol and the certificates") as refusal:
        connect(tls.bootstrap_server, unknowing)
    assert "\n" not in str(refusal.value)
    with pytest.raises(ConnectError, match=r"no TLS with .*certificate"):
        asyncio.run(ottla.client.aio.connect(tls.bootstrap_server, unknowing))
    with pytest.raises(ConnectError, match=r"may want TLS"):
        connect(tls.bootstrap_server)
    with pytest.raises(ValueError, match="cannot look into TLS"):
        tls.fail_next("Produce", None)


def test_a_broker_with_a_certificate_and_without_users() -> None:
    with Broker(tls=True) as broker:
        assert broker.config() == {**broker.config(), "security.protocol": "SSL"} and broker.create_topic("t") in broker.topics()
        with connect(broker.bootstrap_server, broker.java_config()) as client:
            assert client.topics() == ["t"]
        with pytest.raises(ValueError, match="no user 'alice'"):
            broker.config(user="alice")


def test_faults_are_injected_behind_a_login(broker: Broker, topic: str) -> None:
    broker.fail_next("Metadata", None)
    with connect(broker.bootstrap_server, broker.config(user="alice")):
        pass
    assert broker.drop_connections() >= 0
    with broker.pause():
        pass
    assert topic in broker.topics()


def test_no_password_is_an_argument_of_the_process_or_in_its_log(broker: Broker) -> None:
    secrets = list(broker.logins.passwords.values())  # type: ignore[union-attr]
    arguments = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes().decode()
    assert "sasl.enabled.mechanisms" in arguments
    assert not [secret for secret in secrets if secret in arguments + broker.log + repr(broker.logins)]
    assert broker.process.log_file.with_suffix(".properties").stat().st_mode & 0o077 == 0


def test_a_file_for_tools_is_read_as_java_reads_it(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "alice.properties"
    path.touch(0o644)
    file = broker.write_java_config(path, user="alice")
    assert file.stat().st_mode & 0o077 == 0
    found = parse_properties(file.read_text())
    assert found["bootstrap.servers"] == broker.bootstrap_server
    assert parse_jaas(found["sasl.jaas.config"]).options == {"username": "alice", "password": PASSWORDS["alice"]}


def test_text_of_properties() -> None:
    given = {"a b=c": " x", "d": "y\\z\nnext: #1 ", "e": ""}
    assert parse_properties(properties_text(given)) == given


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="set listeners by themselves"):
        Broker(users=PASSWORDS, settings={"listeners": "PLAINTEXT://:0"})
    for users in ({"": "x"}, {"alice": ""}, {ADMINISTRATOR: "x"}):
        with pytest.raises(ValueError, match="cannot be a user"):
            logins_of(users)
    with pytest.raises(ValueError, match=r"no user 'eve'; there are: alice"):
        Logins(passwords={ADMINISTRATOR: "p", "alice": "q"}).properties("eve")
    with pytest.raises(ValueError, match="none of PLAIN"):
        Logins(passwords={ADMINISTRATOR: "p"}).properties(mechanism="GSSAPI")
    with pytest.raises(ValueError, match="kafka_broker_users"):
        BrokerHandle("localhost:1").config(user="alice")


USERS = """
import pytest

@pytest.fixture(scope="session")
def kafka_broker_users():
    return {"alice": "secret"}
"""
LOGS_IN = """
import pytest
from ottla.client import connect, ConnectError

@pytest.mark.parametrize("number", range(4))
def test_login(kafka_broker, kafka_topic, number):
    with connect(kafka_broker.bootstrap_server, kafka_broker.config(user="alice")) as client:
        assert kafka_topic in client.topics()
    with pytest.raises(ConnectError, match="may want a login"):
        connect(kafka_broker.bootstrap_server)
"""


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")])
def test_the_broker_of_a_run_has_users(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "conftest.py").write_text(USERS)
    check_passed(run(tmp_path, LOGS_IN, *options), 4)
