"""Credentials: properties of every dialect, the exchange with a broker, and refusals without a password in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ApiError
from ottla.client.addresses import Address
from ottla.client.blocking.connection import Connection
from ottla.client.errors import ConnectError
from ottla.client.security import Security, credentials
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.fake_broker import FakeBroker

HANDSHAKE, AUTHENTICATE = 17, 36
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "s3cret"}


@pytest.mark.parametrize(
    "line",
    [
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret";',
        "x.ScramLoginModule required username='alice' password='s3cret';",
        "x required username=alice password=s3cret;",
    ],
)
def test_a_line_of_jaas(line: str) -> None:
    assert credentials({"sasl.jaas.config": line}) == ("alice", "s3cret")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is none of"),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not offered"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "needs a name and a password"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such/file"}, "cannot read a TLS file"),
    ],
)
def test_properties_that_make_no_sense(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Security(properties)


def test_a_key_store_of_java_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ValueError, match="not PEM"):
        Security({"security.protocol": "SSL", "ssl.truststore.location": str(store)})


def _open(broker: FakeBroker, properties: dict[str, str]) -> Connection:
    return Connection(Address("127.0.0.1", broker.port), security=Security(properties)).open()


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
    with FakeBroker({**other, AUTHENTICATE: _refusal}) as broker, pytest.raises(ApiError, match="takes SCRAM-SHA-256, not PLAIN"):
        _open(broker, PLAIN)


def test_tls_to_a_port_without_it() -> None:
    security = Security({"security.protocol": "SSL"})
    with FakeBroker({}) as broker, pytest.raises(ConnectError, match=r"no TLS|cannot reach|closed"):
        Connection(Address("127.0.0.1", broker.port), security=security, connect_timeout_s=0.3).open()
