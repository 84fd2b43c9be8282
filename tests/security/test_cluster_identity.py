"""The exchange by which brokers prove their identity to each other. No other party can, whichever messages it has read, repeats or
invents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.authentication import StepResult
from ottla.security.cluster_identity import (
    HELLO_BYTES_MAX,
    NONCE_BYTES,
    Accepting,
    ClusterIdentity,
    Connecting,
    Hello,
    Peer,
    Secret,
    hello_bytes,
    read_hello,
)
from tests.fakes.randomness import SeededRandom

SECRET = bytes(range(32))
CLUSTER = "the-cluster"


class Broker:
    """One broker's half, and the peers that it has accepted."""

    def __init__(self, broker_id: int, *, secret: bytes | None = SECRET, cluster: str = CLUSTER, epoch: int = 7, known: int = -1) -> None:
        self.broker_id = broker_id
        read: Secret = lambda done: done(secret)  # noqa: E731
        self.identity = ClusterIdentity(
            SeededRandom(broker_id), read, broker_id=broker_id, broker_epoch=lambda: epoch, cluster_id=lambda: cluster,
            epoch_of=lambda _broker_id: known,
        )  # fmt: skip
        self.accepted: list[Peer] = []

    def connecting(self, peer_id: int) -> Connecting:
        found: list[Connecting | None] = []
        self.identity.connecting(peer_id, found.append)
        assert found[0] is not None
        return found[0]

    def accepting(self) -> Accepting:
        return self.identity.accepting(self.accepted.append)


def step(exchange: Accepting, token: bytes) -> StepResult:
    outcomes: list[StepResult] = []
    exchange.step(token, outcomes.append)
    (outcome,) = outcomes
    return outcome


def converse(one: Connecting, other: Accepting) -> StepResult:
    """Runs an exchange, and returns its outcome on the accepting side."""
    outcome = step(other, one.first())
    if outcome.error is not None:
        return outcome
    token = one.answer(outcome.token)
    assert token is not None
    outcome = step(other, token)
    if outcome.error is None:
        assert one.answer(outcome.token) is None, "both are done"
    return outcome


def test_two_brokers_of_one_cluster_know_each_other() -> None:
    one, other = Broker(1), Broker(2)
    outcome = converse(one.connecting(2), other.accepting())
    assert outcome.principal == "Broker:1" and outcome.error is None
    assert other.accepted == [Peer(1, 7)]


@pytest.mark.parametrize(
    ("one", "receiver", "other", "reason"),
    [
        (Broker(1, cluster="another"), 2, Broker(2), "belongs to cluster the-cluster"),
        (Broker(1), 3, Broker(2), "this is broker 2"),
        (Broker(2), 2, Broker(2), "this is broker 2"),
        (Broker(1, epoch=-1), 2, Broker(2), "broker 1 is not registered"),
        (Broker(1, epoch=7), 2, Broker(2, known=8), "has registered again, with epoch 8"),
        (Broker(1), 2, Broker(2, secret=None), "cannot be read"),
    ],
)
def test_who_does_not_belong_here_is_refused_at_once(one: Broker, receiver: int, other: Broker, reason: str) -> None:
    outcome = step(other.accepting(), one.connecting(receiver).first())
    assert outcome.error is not None and reason in outcome.error and not outcome.token and not other.accepted


def test_an_epoch_that_is_not_known_yet_is_accepted() -> None:
    other = Broker(2, known=6)
    assert converse(Broker(1).connecting(2), other.accepting()).error is None


def test_another_secret_proves_nothing_on_either_side() -> None:
    thief, broker = Broker(1, secret=bytes(32)), Broker(2)
    connecting, accepting = thief.connecting(2), broker.accepting()
    challenge = step(accepting, connecting.first())
    with pytest.raises(ValueError, match="does not know the cluster's secret"):
        connecting.answer(challenge.token)
    assert step(accepting, bytes(32)).error is not None and not broker.accepted


def test_a_proof_cannot_be_sent_back_used_again_or_towards_another_broker() -> None:
    broker, other = Broker(2), Broker(3)
    recorded = Broker(1).connecting(2)
    accepting = broker.accepting()
    challenge = step(accepting, recorded.first()).token
    proof = recorded.answer(challenge)
    assert proof is not None and step(accepting, proof).error is None and len(broker.accepted) == 1
    again = broker.accepting()
    step(again, recorded.first())
    assert step(again, proof).error is not None, "the nonce is another"
    reflected = broker.accepting()
    answered = step(reflected, recorded.first()).token
    assert step(reflected, answered[NONCE_BYTES:]).error is not None, "the proof of the side that accepts"
    elsewhere = other.accepting()
    assert step(elsewhere, recorded.first()).error == "this is broker 3"
    hello = hello_bytes(replace(read_hello(recorded.first()), receiver=3))
    step(elsewhere, hello)
    assert step(elsewhere, proof).error is not None
    assert len(broker.accepted) == 1 and not other.accepted


def test_what_the_proof_covers_cannot_be_changed_on_the_way() -> None:
    for change in ({"sender": 4}, {"broker_epoch": 8}, {"nonce": bytes(NONCE_BYTES)}):
        broker, honest = Broker(2), Broker(1).connecting(2)
        accepting = broker.accepting()
        forged = hello_bytes(replace(read_hello(honest.first()), **change))  # type: ignore[arg-type]
        challenge = step(accepting, forged)
        with pytest.raises(ValueError, match="does not know"):
            honest.answer(challenge.token)
        assert not broker.accepted


@given(st.binary(max_size=HELLO_BYTES_MAX + 9))
def test_garbage_in_place_of_a_greeting(token: bytes) -> None:
    broker = Broker(2)
    exchange = broker.accepting()
    for _ in range(2):
        assert step(exchange, token).error is not None
    assert not broker.accepted


@given(st.binary(max_size=80))
def test_garbage_in_place_of_a_proof(token: bytes) -> None:
    broker = Broker(2)
    exchange = broker.accepting()
    step(exchange, Broker(1).connecting(2).first())
    assert step(exchange, token).error is not None and not broker.accepted
    with pytest.raises(ValueError, match="does not know"):
        Broker(1).connecting(2).answer(token)


@given(st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1), st.text(min_size=1, max_size=30))
def test_greetings_travel(sender: int, receiver: int, broker_epoch: int, cluster_id: str) -> None:
    hello = Hello(nonce=bytes(range(16)), sender=sender, receiver=receiver, broker_epoch=broker_epoch, cluster_id=cluster_id)
    assert read_hello(hello_bytes(hello)) == hello
