"""The mechanisms of a listener, and exchanges made from what the settings and the store say at that moment."""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.config import BrokerConfig, Endpoint
from ottla.security.authentication import Exchange, Outcome
from ottla.security.credentials import credential_text
from ottla.security.mechanisms import ListenerMechanisms
from ottla.security.scram import ScramClient
from ottla.security.scram_server import make_credential
from tests.fakes import SeededRandom

SHA256 = "SCRAM-SHA-256"
SASL, PLAINTEXT = Endpoint("SASL_PLAINTEXT", "", 1, "SASL_PLAINTEXT"), Endpoint("PLAINTEXT", "", 2)
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://:1,PLAINTEXT://:2", "sasl.enabled.mechanisms": f"PLAIN,{SHA256}", "ottla.sasl.plain.users.bob": "b",
}  # fmt: skip


def step(exchange: Exchange, token: bytes) -> Outcome:
    outcomes: list[Outcome] = []
    exchange.step(token, outcomes.append)
    (outcome,) = outcomes
    return outcome


def made(
    secret: bytes | None = b"secret", stored: dict[str, dict[str, str]] | None = None
) -> tuple[ListenerMechanisms, list[int], BrokerConfig]:
    asked: list[int] = []
    config = BrokerConfig(SETTINGS)

    def read(done: Callable[[bytes | None], object]) -> None:
        asked.append(1)
        done(secret)

    return ListenerMechanisms(config, SeededRandom(1), lambda: stored or {}, read), asked, config


def test_only_sasl_listeners_have_any() -> None:
    mechanisms, _, _ = made()
    assert mechanisms.of(PLAINTEXT) is None
    assert list(mechanisms.of(SASL) or ()) == ["PLAIN", SHA256]


def test_users_of_plain_are_those_of_the_moment() -> None:
    mechanisms, _, config = made()
    begin = (mechanisms.of(SASL) or {})["PLAIN"]
    assert step(begin(), b"\0bob\0b").principal == "User:bob"
    config.take_over(BrokerConfig({**SETTINGS, "ottla.sasl.plain.users.bob": "c"}))
    assert step(begin(), b"\0bob\0b").error and step(begin(), b"\0bob\0c").principal == "User:bob"
    config.set_dynamic({}, {"sasl.jaas.config": "nonsense"})
    assert step(begin(), b"\0bob\0c").error


def test_scram_finds_users_where_they_are_stored_and_shows_decoys_for_others() -> None:
    stored = {"alice": {SHA256: credential_text(make_credential(SHA256, "pencil", b"salt", 4096))}}
    mechanisms, asked, _ = made(stored=stored)
    mechanisms.prepare([PLAINTEXT])
    assert asked == []
    mechanisms.prepare([SASL, PLAINTEXT])
    assert asked == [1]
    exchange = (mechanisms.of(SASL) or {})[SHA256]()
    client = ScramClient("alice", "pencil", SHA256, "nonce")
    last = step(exchange, client.final(step(exchange, client.first()).token))
    client.check(last.token)
    assert last.principal == "User:alice" and last.is_valid is not None and last.is_valid()
    del stored["alice"]
    assert not last.is_valid()
    decoys = [step((mechanisms.of(SASL) or {})[SHA256](), ScramClient("eve", "p", SHA256, "n").first()).token for _ in range(2)]
    assert decoys[0].partition(b",s=")[2] == decoys[1].partition(b",s=")[2] and decoys[0] != decoys[1]


def test_without_the_secret_an_unknown_user_is_refused_at_once() -> None:
    mechanisms, asked, _ = made(secret=None)
    for _ in range(2):
        assert step((mechanisms.of(SASL) or {})[SHA256](), ScramClient("eve", "p", SHA256, "n").first()).error
    assert asked == [1, 1]
