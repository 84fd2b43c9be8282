"""Which connections are treated as brokers: they must be on the listener for brokers, prove that they know the cluster's secret, and have
logged in as a user with CLUSTER_ACTION."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.audit import AuditLog
from ottla.security.cluster_identity import MECHANISM, ClusterIdentity, Connecting
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.fakes import SeededRandom
from tests.server.test_authentication import ALICE, ANYTHING, HANDSHAKE, HELLO, World

PROOF = SaslHandshakeRequest(mechanism=MECHANISM)
SETTINGS = {
    "zookeeper.connect": "z:2181", "broker.id": "2", "listeners": "SASL://:1,OTHER://:2",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT", "inter.broker.listener.name": "SASL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}  # fmt: skip
LOGIN = {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256", "ottla.inter.broker.login": "broker=secret"}
RULES = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


def identity(broker_id: int) -> ClusterIdentity:
    return ClusterIdentity(
        SeededRandom(broker_id), lambda done: done(b"s" * 32), broker_id=broker_id, broker_epoch=lambda: 7,
        cluster_id=lambda: "c", epoch_of=lambda _broker_id: 7,
    )  # fmt: skip


def world(**settings: str) -> World:
    made = World(settings={**SETTINGS, **settings})
    made.broker.cluster_identity = identity(2)
    return made


def prove(made: World) -> int:
    """Executes the exchange by which broker 1 proves its identity. Returns the error of the last step."""
    made.send(PROOF)
    if made.codes()[-1]:
        return made.codes()[-1]
    exchanges: list[Connecting | None] = []
    identity(1).connecting(2, exchanges.append)
    (connecting,) = exchanges
    assert connecting is not None
    made.send(SaslAuthenticateRequest(auth_bytes=connecting.first()))
    token = connecting.answer(bytes(made.answers()[-1].auth_bytes))
    made.send(SaslAuthenticateRequest(auth_bytes=token))
    return made.codes()[-1]


def test_without_a_mechanism_for_brokers_the_secret_is_enough() -> None:
    made = world()
    assert prove(made) == 0 and made.info.is_inter_broker and made.info.principal == "Broker:1"


def test_with_one_the_broker_logs_in_first() -> None:
    made = world(**LOGIN)
    assert prove(made) == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    made.send(HANDSHAKE)
    assert made.channel.is_closed and not made.info.is_inter_broker
    made = world(**LOGIN, **{"connections.max.reauth.ms": "5000"})
    made.send(HANDSHAKE, HELLO, ALICE)
    assert not made.info.is_inter_broker, "a user who has logged in on the listener for brokers is none by that"
    assert prove(made) == 0 and made.info.is_inter_broker and made.info.principal == "User:alice"


def test_a_broker_logs_in_again_before_its_session_ends_and_stays_one() -> None:
    made = world(**LOGIN, **{"connections.max.reauth.ms": "5000"})
    made.send(HANDSHAKE, HELLO, ALICE)
    assert prove(made) == 0
    for _ in range(4):
        made.timers.advance(4_000)
        made.send(HANDSHAKE, HELLO, ALICE, ANYTHING)
        assert made.codes()[-4:] == [0] * 4 and made.info.is_inter_broker and not made.channel.is_closed
    made.timers.advance(6_000)
    made.send(ANYTHING)
    assert made.channel.is_closed, "a session that is not renewed ends, a broker's as well"


def test_on_another_listener_there_are_no_brokers() -> None:
    made = world(**{"inter.broker.listener.name": "OTHER"})
    assert prove(made) == ErrorCode.UNSUPPORTED_SASL_MECHANISM and not made.info.is_inter_broker


@pytest.mark.parametrize("is_super", [True, False])
def test_with_access_rules_the_user_needs_the_right(is_super: bool, caplog: pytest.LogCaptureFixture) -> None:
    made = world(**LOGIN, **RULES)
    made.broker.authorizer = AclAuthorizer(AuditLog(made.clock), super_users=["User:alice"] if is_super else [])
    made.send(HANDSHAKE, HELLO, ALICE)
    assert prove(made) == (0 if is_super else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert made.info.is_inter_broker is is_super
    found = 'not taken for a broker: principal="User:alice" host="test" reason="it has no right to CLUSTER_ACTION; name it in super.users"'
    assert (found in caplog.text) is not is_super


def test_without_the_secret_a_super_user_stays_a_client() -> None:
    made = world(**LOGIN)
    made.send(HANDSHAKE, HELLO, ALICE, PROOF, SaslAuthenticateRequest(auth_bytes=bytes(29) + b"c"))
    assert made.codes()[-1] == ErrorCode.SASL_AUTHENTICATION_FAILED and not made.info.is_inter_broker
