"""A secured broker that the fixture has not started: its options come from a file of Kafka's client options."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ottla.client import connect
from ottla.client.core.group_admin import list_groups
from ottla.testing.broker import Broker
from ottla.testing.foreign_broker import ForeignLogins, foreign_broker
from ottla.testing.handle import OF_AN_OWN_BROKER
from tests.testing.test_plugin import USES, check_passed, run

PASSWORDS = {"alice": 'a "secret"; with=\\ blanks', "bob": "b#1"}
AS_ALICE = f"""
import pytest

@pytest.fixture(scope="session")
def kafka_broker_users():
    return {{"alice": {PASSWORDS["alice"]!r}}}

def test_clients(kafka_broker, kafka_topic):
    for user in (None, "alice"):
        producer = kafka_broker.producer(user=user)
        producer.produce(kafka_topic, "x")
        assert producer.flush(60) == 0
    assert len(kafka_broker.records(kafka_topic)) == 2
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(users=PASSWORDS, tls=True, topics=["there"]) as broker:
        yield broker


def test_a_suite_runs_against_it(secured: Broker, tmp_path: Path) -> None:
    before = set(secured.topics())
    options = secured.write_java_config(tmp_path / "client.properties")
    check_passed(run(tmp_path, USES + AS_ALICE, OTTLA_BOOTSTRAP_CONFIG=str(options)), 2)
    assert set(secured.topics()) == before


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_clients_of_each_library_connect_by_the_options(secured: Broker, tmp_path: Path) -> None:
    """The authority is a text in the file, which not all libraries take."""
    options = secured.java_config(user="bob", mechanism="SCRAM-SHA-512")
    text = Path(options.pop("ssl.truststore.location")).read_text()
    lines = [f"{name}={value}" for name, value in options.items() if name != "bootstrap.servers"]
    path = tmp_path / "client.properties"
    path.write_text("\n".join([*lines, "ssl.truststore.certificates=" + text.replace("\n", "\\n"), "client.id=ignored"]))
    with foreign_broker(secured.direct_server, str(path), {"alice": PASSWORDS["alice"]}) as foreign:
        assert foreign.protocol == "SASL_SSL" and "there" in foreign.topics()
        for user in (None, "alice"):
            with connect(foreign.bootstrap_server, foreign.config(user=user)) as own:
                assert "there" in own.topics()
        with connect(foreign.bootstrap_server, foreign.java_config(user="alice")) as own:
            assert "there" in own.topics()
        assert "there" in foreign.admin(client="confluent-kafka").list_topics(timeout=60).topics
        with closing(foreign.producer(client="kafka-python", user="alice")) as python:
            python.send("there", b"python").get(60)

        async def aio() -> None:
            async with foreign.aio_producer() as asynchronous:
                await asynchronous.send_and_wait("there", b"aio")

        asyncio.run(aio())
        assert [record.value for record in foreign.records("there")] == [b"python", b"aio"]
        authority = Path(foreign.config()["ssl.ca.location"])
        assert stat.S_IMODE(authority.stat().st_mode) == 0o600
        with pytest.raises(ValueError, match="no password of the user 'carol' is known; the fixture kafka_broker_users has: alice"):
            foreign.config(user="carol")
    assert not authority.exists()


def test_options_that_make_no_sense_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    for text, expected in (
        (None, r"OTTLA_BOOTSTRAP_CONFIG=\S+ cannot be read: No such file"),
        ("client.id=x", r"has no bootstrap.servers, and neither OTTLA_BOOTSTRAP nor KAFKA_BOOTSTRAP_SERVERS is set"),
        ("bootstrap.servers=h:1\nsecurity.protocol=TLS", r"security.protocol=TLS is none of PLAINTEXT, SSL"),
        ("bootstrap.servers=h:1\nclient.id=\\u00", r"OTTLA_BOOTSTRAP_CONFIG=\S+ cannot be read: "),
    ):
        if text is not None:
            path.write_text(text)
        with pytest.raises(ValueError, match=expected) as refusal, foreign_broker("", str(path), {}):
            pass
        assert "\n" not in str(refusal.value)


def test_options_without_security_are_those_of_an_open_broker(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=h:1\nclient.id=x\n")
    with foreign_broker("", str(path), {}) as foreign:
        assert foreign.logins is None and foreign.direct_server == "h:1" and foreign.protocol == "PLAINTEXT"


def test_a_login_without_a_name_is_for_clients_that_know_it(tmp_path: Path) -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://h/"}
    logins = ForeignLogins(options, {}, tmp_path)
    assert logins.java_properties() == options
    with pytest.raises(ValueError, match="OAUTHBEARER without name and password"):
        logins.properties()
    with pytest.raises(ValueError, match="have no users"):
        ForeignLogins({"security.protocol": "SSL"}, {"alice": "x"}, tmp_path).properties("alice")


def test_reset_deletes_only_topics_that_this_process_created(broker: Broker) -> None:
    """A broker that somebody else runs has topics of others."""
    broker.add_record("of-others", "precious")
    with foreign_broker(broker.direct_server, "", {}) as foreign:
        foreign.create_topic("created", partitions=2)
        foreign.add_record("made-by-a-record", "x")
        foreign.add_record("of-others", "x")
        foreign.reset()
        topics = broker.topics()
        assert "of-others" in topics and not {"created", "made-by-a-record"} & set(topics)
        assert len(broker.records("of-others")) == 2
        foreign.reset()
    assert "of-others" in broker.topics()


def test_reset_leaves_groups_of_others(broker: Broker, topic: str) -> None:
    broker.add_record(topic, "x")
    with closing(broker.consumer(topic, client="confluent-kafka", group_id="of-others")) as consumer:
        assert consumer.poll(60).value() == b"x"
        consumer.commit(asynchronous=False)
    with foreign_broker(broker.direct_server, "", {}) as foreign:
        foreign.reset()
        assert "of-others" in [group.group_id for group in list_groups(foreign._client())]


def test_what_only_an_own_broker_can_do_is_refused_by_its_name(broker: Broker) -> None:
    with foreign_broker(broker.direct_server, "", {}) as foreign:
        for name in sorted(OF_AN_OWN_BROKER):
            assert hasattr(broker, name)
            with pytest.raises(AttributeError, match=f"'{name}' is not for a broker that somebody else runs .OTTLA_BOOTSTRAP.; it needs"):
                getattr(foreign, name)
        with pytest.raises(AttributeError, match="'ForeignBroker' object has no attribute 'snapshots'"):
            foreign.snapshots  # type: ignore[attr-defined]  # noqa: B018
