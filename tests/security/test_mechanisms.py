"""The SASL mechanisms of a listener, and logins, which use the settings and the credentials of that moment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ottla.base.config import BrokerConfig, Endpoint
from ottla.security.authentication import Exchange, StepResult
from ottla.security.credentials import credential_text
from ottla.security.mechanisms import ListenerMechanisms
from ottla.security.scram import ScramClient
from ottla.security.scram_server import make_credential
from tests.fakes import ManualClock, SeededRandom
from tests.fakes.issuer import claims_at, first_message, jwks, public_jwk, rsa_key, signed, unsecured
from tests.fakes.threads import ManualThreads

SHA256 = "SCRAM-SHA-256"
SASL, PLAINTEXT = Endpoint("SASL_PLAINTEXT", "", 1, "SASL_PLAINTEXT"), Endpoint("PLAINTEXT", "", 2)
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://:1,PLAINTEXT://:2", "sasl.enabled.mechanisms": f"PLAIN,{SHA256}", "ottla.sasl.plain.users.bob": "b",
}  # fmt: skip


def step(exchange: Exchange, token: bytes) -> StepResult:
    outcomes: list[StepResult] = []
    exchange.step(token, outcomes.append)
    (outcome,) = outcomes
    return outcome


def ports(*documents: bytes) -> SimpleNamespace:
    """Returns those parts of a broker's `Ports` (its ways to the operating system) that the mechanisms use."""
    found, clock = iter(documents), ManualClock()
    return SimpleNamespace(
        random=SeededRandom(1), clock=clock, ages=SimpleNamespace(clock=clock), threads=ManualThreads(),
        read_document=lambda _url, _authorities: next(found),
    )  # fmt: skip


def made(
    secret: bytes | None = b"secret", stored: dict[str, dict[str, str]] | None = None
) -> tuple[ListenerMechanisms, list[int], BrokerConfig]:
    asked: list[int] = []
    config = BrokerConfig(SETTINGS)

    def read(done: Callable[[bytes | None], object]) -> None:
        asked.append(1)
        done(secret)

    return ListenerMechanisms(config, ports(), lambda: stored or {}, read), asked, config


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


TOKENS = {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "OAUTHBEARER"}


def of_tokens(world: SimpleNamespace, **settings: str) -> tuple[ListenerMechanisms, BrokerConfig]:
    config = BrokerConfig({**TOKENS, **{name.replace("_", "."): value for name, value in settings.items()}})
    return ListenerMechanisms(config, world, dict, lambda _done: None), config


def test_tokens_are_checked_by_the_keys_of_the_listener(caplog: pytest.LogCaptureFixture) -> None:
    world = ports(jwks(public_jwk(rsa_key(), "first")))
    mechanisms, _ = of_tokens(
        world, sasl_oauthbearer_jwks_endpoint_url="file:///keys", sasl_oauthbearer_allow_unverified_audience="true",
        sasl_oauthbearer_allow_unverified_issuer="true",
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "ottla.security"):
        mechanisms.prepare([SASL])
    for claim in ("audience", "issuer"):
        assert f"listener SASL_PLAINTEXT: sasl.oauthbearer.allow.unverified.{claim} lets clients log in with any {claim}" in caplog.text
    outcomes: list[StepResult] = []
    for key in (rsa_key(), rsa_key("other")):
        token = signed(claims_at(world.clock.wall_ms() // 1000), key)
        (mechanisms.of(SASL) or {})["OAUTHBEARER"]().step(first_message(token), outcomes.append)
    world.threads.run_all()
    assert [outcome.principal for outcome in outcomes] == ["User:alice", None]
    assert outcomes[1].token == b'{"status":"invalid_token"}'


def test_unsecured_tokens_are_announced_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = ports()
    mechanisms, config = of_tokens(world, ottla_sasl_oauthbearer_unsecured_allowed="true")
    with caplog.at_level(logging.WARNING, "ottla.security"):
        mechanisms.prepare([SASL])
    assert "lets clients log in under any name" in caplog.text
    message = first_message(unsecured(claims_at(world.clock.wall_ms() // 1000)))
    begin = (mechanisms.of(SASL) or {})["OAUTHBEARER"]
    assert step(begin(), message).principal == "User:alice"
    own = "listener.name.sasl_plaintext.oauthbearer.ottla.sasl.oauthbearer.unsecured.allowed"
    config.take_over(BrokerConfig({**TOKENS, "sasl.enabled.mechanisms": "SCRAM-SHA-256", own: "false"}))
    assert step(begin(), message).principal is None
