"""Credentials: properties of every dialect, the exchange with a broker, and refusals without a password in them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ApiError
from ottla.client.addresses import Address
from ottla.client.aio import AsyncConnection
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.errors import ConnectError
from ottla.client.security import Security, credentials, security_of
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.fake_broker import FakeBroker, HangUp

HANDSHAKE, AUTHENTICATE = 17, 36
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "s3cret"}
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    "line",
    [
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret";',
        "org.apache.kafka.common.security.scram.ScramLoginModule required username='alice' password='s3cret';",
        "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required username=alice\n password=s3cret ;",
    ],
)
def test_a_line_of_jaas(line: str) -> None:
    assert credentials({"sasl.jaas.config": line}) == ("alice", "s3cret")


def test_quotes_in_a_line_of_jaas_and_what_beats_it() -> None:
    line = f'{SCRAM} required username="o\\"hara" password="a; b=\\\\c" user_password="other";'
    assert credentials({"sasl.jaas.config": line}) == ('o"hara', "a; b=\\c")
    assert credentials({"sasl.jaas.config": line, "sasl.username": "bob", "sasl.password": "p"}) == ("bob", "p")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is none of"),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not offered"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "needs a name and a password"),
        ({**SASL, "sasl.jaas.config": f"{SCRAM} required username=alice;"}, "needs a name and a password"),
        ({**SASL, "sasl.jaas.config": f"{SCRAM} required username=alice password=s3cret"}, "sasl.jaas.config: .*semicolon"),
        ({**SASL, "sasl.jaas.config": "x.Krb5LoginModule required keyTab=s3cret;"}, "Krb5LoginModule is not served"),
        ({**PLAIN, "sasl.client.callback.handler.class": "x.Y"}, "sasl.client.callback.handler.class is not served"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such/file"}, "cannot read a TLS file"),
    ],
)
def test_properties_that_make_no_sense(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        Security(properties)
    assert "s3cret" not in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_key_store_of_java_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ValueError, match="a JKS file"):
        Security({"security.protocol": "SSL", "ssl.truststore.location": str(store)})


def _open(broker: FakeBroker, properties: dict[str, str]) -> BlockingConnection:
    return BlockingConnection(Address("127.0.0.1", broker.port), security=Security(properties)).open()


def test_plain_sends_one_message() -> None:
    script = {HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(), AUTHENTICATE: lambda _body, _version: SaslAuthenticateResponse()}
    with FakeBroker(script) as broker:
        _open(broker, PLAIN).close()
        assert [body.mechanism for body in broker.asked(HANDSHAKE)] == ["PLAIN"]
        assert [bytes(body.auth_bytes) for body in broker.asked(AUTHENTICATE)] == [b"\0alice\0s3cret"]


def _refusal(_body: Any, _version: int) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=58, error_message=None)


def test_refusals_do_not_repeat_the_password() -> None:
    with FakeBroker({HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(), AUTHENTICATE: _refusal}) as broker:
        with pytest.raises(ApiError, match="name or password is wrong") as caught:
            _open(broker, PLAIN)
        assert "s3cret" not in str(caught.value)
    other = {HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"])}
    with FakeBroker({**other, AUTHENTICATE: _refusal}) as broker, pytest.raises(ApiError, match="offers SCRAM-SHA-256, not PLAIN"):
        _open(broker, PLAIN)


def test_tls_to_a_port_without_it() -> None:
    security = Security({"security.protocol": "SSL"})
    with FakeBroker({}) as broker, pytest.raises(ConnectError, match=r"no TLS|cannot reach|closed"):
        BlockingConnection(Address("127.0.0.1", broker.port), security=security, connect_timeout_s=0.3).open()


def test_only_what_is_wanted_is_made() -> None:
    assert security_of(None) is security_of({}) is security_of({"security.protocol": " plaintext", "sasl.username": "alice"}) is None
    made = security_of({**PLAIN, "security.protocol": "sasl_plaintext"})
    assert made is not None and made.uses_sasl and made.context is None


def _hang_up(_body: Any, _version: int) -> bytes:
    raise HangUp


def test_a_broker_that_closes_at_the_first_request_may_want_a_login() -> None:
    with FakeBroker({3: _hang_up}) as broker:
        with pytest.raises(ConnectError, match=r"closed the connection; it may want a login \(security.protocol=SASL"):
            BlockingConnection(Address("127.0.0.1", broker.port)).open().request(MetadataRequest(topics=[]))
        with pytest.raises(ConnectError, match="it may want a login"):
            asyncio.run(_ask_metadata(broker.port))


async def _ask_metadata(port: int) -> None:
    connection = await AsyncConnection.connect(Address("127.0.0.1", port))
    await connection.request(MetadataRequest(topics=[]))
