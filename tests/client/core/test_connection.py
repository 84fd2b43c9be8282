"""The opening and the requests of a connection, without a socket: each exchange whole, byte by byte and in odd pieces."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.core.connection import ALLOWED, ConnectionProtocol, State
from ottla.client.core.sasl import exchange
from ottla.client.errors import AuthenticationError, ConnectError, KafkaError, MalformedResponseError, UnsupportedVersionError, UsageError
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.core.talk import ScriptedPeer, open_protocol, versions_answer

HEARTBEAT, HANDSHAKE, AUTHENTICATE, API_VERSIONS = 12, 17, 36, 18
STEPS = [1, 7, 1 << 30]

pytestmark = pytest.mark.parametrize("step", STEPS, ids=["byte by byte", "by sevens", "whole"])


def _opened(step: int, script: dict[int, Any] | None = None, **options: Any) -> tuple[ConnectionProtocol, ScriptedPeer]:
    protocol, peer = ConnectionProtocol("b:9092", **options), ScriptedPeer(script)
    open_protocol(protocol, peer, step)
    return protocol, peer


def _feed(protocol: ConnectionProtocol, data: bytes, step: int) -> list[Any]:
    return [protocol.response(frame) for at in range(0, len(data), step) for frame in protocol.frames.feed(data[at : at + step])]


def test_a_request_is_sent_in_the_newest_version_that_both_know(step: int) -> None:
    protocol, peer = _opened(
        step,
        {
            API_VERSIONS: lambda _body, _version: versions_answer({HEARTBEAT: (1, 2)}),
            HEARTBEAT: lambda _body, _version: HeartbeatResponse(error_code=27),
        },
    )
    (answer,) = _feed(protocol, peer.answer(protocol.request(HeartbeatRequest(group_id="g"))), step)
    assert answer.error_code == 27
    assert [(key, version) for key, version, _ in peer.requests] == [(API_VERSIONS, 3), (HEARTBEAT, 2)]


@pytest.mark.parametrize(("options", "asked"), [({}, -1), ({"with_extensions": True}, 0)])
def test_extensions_are_asked_for_on_demand_and_only_in_a_tagged_field(step: int, options: dict[str, bool], asked: int) -> None:
    """An older broker, which does not know the version with tagged fields, gets the same request as ever."""

    def versions(body: Any, version: int) -> Any:
        seen.append(body.ottla_extensions)
        return b"\0\0\0\x0a\0\0\0\x01\0\x23\0\0\0\0" if version else versions_answer()

    seen: list[int] = []
    _opened(step, {API_VERSIONS: versions}, **options)
    assert seen == [asked, -1]


def test_answers_come_in_the_order_of_the_requests(step: int) -> None:
    codes = iter([1, 2, 3])
    protocol, peer = _opened(step, {HEARTBEAT: lambda _body, _version: HeartbeatResponse(error_code=next(codes))})
    data = b"".join(protocol.request(HeartbeatRequest()) for _ in range(3))
    assert len(protocol.pending) == 3
    assert [answer.error_code for answer in _feed(protocol, peer.answer(data), step)] == [1, 2, 3]
    assert not protocol.pending


def test_an_old_broker_is_asked_again_in_version_0(step: int) -> None:
    def versions(_body: Any, version: int) -> Any:
        return b"\0\0\0\x0a\0\0\0\x01\0\x23\0\0\0\0" if version else versions_answer({HEARTBEAT: (0, 1)})

    protocol, peer = _opened(step, {API_VERSIONS: versions})
    assert [version for _, version, _ in peer.requests] == [3, 0]
    assert protocol.versions.version_of(HEARTBEAT) == 1


def test_plain_sends_name_and_password_in_one_token(step: int) -> None:
    script = {
        HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(),
        AUTHENTICATE: lambda _body, _version: SaslAuthenticateResponse(),
    }
    _, peer = _opened(step, script, sasl=exchange("PLAIN", "alice", "s3cret", ""))
    bodies = {key: body for key, _, body in peer.requests}
    assert bodies[HANDSHAKE].mechanism == "PLAIN"
    assert bytes(bodies[AUTHENTICATE].auth_bytes) == b"\0alice\0s3cret"


def test_scram_ends_when_the_server_has_proved_itself(step: int) -> None:
    """The example of RFC 7677."""
    server = iter(
        [
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ]
    )
    script = {
        HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(),
        AUTHENTICATE: lambda _body, _version: SaslAuthenticateResponse(auth_bytes=next(server)),
    }
    protocol, peer = _opened(step, script, sasl=exchange("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO"))
    assert protocol.is_ready
    tokens = [bytes(body.auth_bytes) for key, _, body in peer.requests if key == AUTHENTICATE]
    assert tokens[1].endswith(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")


def test_a_second_exchange_follows_the_first(step: int) -> None:
    script = {
        HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(),
        AUTHENTICATE: lambda _body, _version: SaslAuthenticateResponse(),
    }
    protocol, peer = _opened(step, script, sasl=exchange("PLAIN", "alice", "secret", ""), proof=exchange("PLAIN", "broker", "secret", ""))
    assert protocol.is_ready
    assert [key for key, _, _ in peer.requests if key != 18] == [HANDSHAKE, AUTHENTICATE, HANDSHAKE, AUTHENTICATE]
    tokens = [bytes(body.auth_bytes) for key, _, body in peer.requests if key == AUTHENTICATE]
    assert tokens == [b"\0alice\0secret", b"\0broker\0secret"]


def test_a_server_that_cannot_prove_itself_is_refused(step: int) -> None:
    server = iter([b"r=nonceX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"v=AAAA"])
    script = {
        HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(),
        AUTHENTICATE: lambda _body, _version: SaslAuthenticateResponse(auth_bytes=next(server)),
    }
    protocol = ConnectionProtocol("b:9092", sasl=exchange("SCRAM-SHA-256", "user", "pencil", "nonce"))
    with pytest.raises(AuthenticationError, match="could not prove"):
        open_protocol(protocol, ScriptedPeer(script), step)
    assert protocol.state is State.CLOSED


@pytest.mark.parametrize(
    ("handshake", "authenticate", "message"),
    [
        (SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"]), None, "b:9092 offers SCRAM-SHA-256, not PLAIN"),
        (SaslHandshakeResponse(error_code=31), None, "b:9092 does not accept this client as a broker: its user lacks the permission"),
        (SaslHandshakeResponse(), SaslAuthenticateResponse(error_code=58), "name or password is wrong"),
        (SaslHandshakeResponse(), SaslAuthenticateResponse(error_code=58, error_message="no such user"), "no such user"),
    ],
)
def test_a_refused_authentication_closes_and_never_repeats_the_password(step: int, handshake: Any, authenticate: Any, message: str) -> None:
    script = {HANDSHAKE: lambda _body, _version: handshake, AUTHENTICATE: lambda _body, _version: authenticate}
    protocol = ConnectionProtocol("b:9092", sasl=exchange("PLAIN", "alice", "s3cret", ""))
    with pytest.raises(KafkaError, match=message) as caught:
        open_protocol(protocol, ScriptedPeer(script), step)
    assert "s3cret" not in str(caught.value)
    assert protocol.state is State.CLOSED


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("answer", [_frame(b"\0\0\0\x63\0"), _frame(b"\0\0\0\x02"), _frame(struct.pack(">iB", 2, 0))])
def test_another_answer_than_was_asked_for_closes_the_connection(step: int, answer: bytes) -> None:
    protocol, _ = _opened(step)
    protocol.request(HeartbeatRequest())
    with pytest.raises(MalformedResponseError, match="b:9092 does not answer to Heartbeat 4 like a Kafka broker"):
        _feed(protocol, answer, step)
    with pytest.raises(ConnectError, match="is closed"):
        protocol.request(HeartbeatRequest())


def test_an_answer_that_nothing_asked_for_closes_the_connection(step: int) -> None:
    protocol, _ = _opened(step)
    with pytest.raises(MalformedResponseError, match="nothing was asked"):
        _feed(protocol, _frame(b"\0\0\0\x63\0"), step)


def test_a_peer_without_versions_is_no_broker(step: int) -> None:
    script = {API_VERSIONS: lambda _body, _version: versions_answer(error_code=42)}
    with pytest.raises(MalformedResponseError, match="refused the request for its API versions"):
        open_protocol(ConnectionProtocol("b:9092"), ScriptedPeer(script), step)


def test_an_api_that_is_not_offered_is_named(step: int) -> None:
    protocol, _ = _opened(step, {API_VERSIONS: lambda _body, _version: versions_answer({HEARTBEAT: (90, 99)})})
    with pytest.raises(UnsupportedVersionError, match="Heartbeat 90 to 99"):
        protocol.request(HeartbeatRequest())


def test_a_value_without_a_place_in_the_version_is_the_clients_own_error(step: int) -> None:
    protocol, _ = _opened(step)
    with pytest.raises(KafkaError) as caught:
        protocol.request(HeartbeatRequest(group_id="g" * 70_000), version=3)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert not protocol.pending


@pytest.mark.parametrize("wrong", [{"group_id": 5}, {"group_id": None}, {"group_id": b"g"}, {"generation_id": "7"}])
def test_a_value_of_the_wrong_type_is_a_usage_error(step: int, wrong: dict[str, Any]) -> None:
    protocol, _ = _opened(step)
    with pytest.raises(UsageError, match="request Heartbeat cannot"):
        protocol.request(HeartbeatRequest(**wrong))
    assert not protocol.pending and protocol.is_ready


def test_no_state_but_the_closed_one_is_final(step: int) -> None:
    assert {state for state, following in ALLOWED.items() if not following} == {State.CLOSED}
    protocol, _ = _opened(step)
    protocol.close()
    protocol.close()
    assert protocol.state is State.CLOSED
