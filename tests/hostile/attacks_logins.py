"""Attacks by clients that have logged in, and by logins: delegation tokens, credentials and tries without end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from ottla.security.credentials import ITERATIONS_STORED_MAX
from ottla.wire.codec import decoder
from ottla.wire.framing import load, read_response_header
from ottla.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from ottla.wire.messages.create_delegation_token import CreatableRenewers
from ottla.wire.schema import Request
from tests.clients.wire_client import WireClient
from tests.hostile.attacks import ANSWER_SECONDS_MAX, OTHER_PORT, Target, attack

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LISTENERS = f"listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{OTHER_PORT}"
MECHANISMS = "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256"
USERS = f'listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN} required user_attacker="secret";'
NO_SUCH_KAFKA = "its login listener needs a configuration of its own"
TOKENS = 3000
IN_FLIGHT = 50


def logged_in(target: Target) -> WireClient:
    """A connection of a user with a password."""
    client = connect(target)
    assert not client.ask(load(17)[0](mechanism="PLAIN"), 1).error_code
    assert not client.ask(load(36)[0](auth_bytes=b"\0attacker\0secret"), 2).error_code
    return client


def connect(target: Target) -> WireClient:
    return WireClient(target.other_port, timeout=ANSWER_SECONDS_MAX, client_id="attacker")


def ask_all(client: WireClient, requests: Iterable[Request], version: int) -> list[Any]:
    """The answers, of a few requests at a time."""
    answers: list[Any] = []
    waiting: list[int] = []
    for request in requests:
        client.send(client.frame(request, version))
        waiting.append(type(request).API_KEY)
        if len(waiting) == IN_FLIGHT:
            answers += [answer(client, key, version) for key in waiting]
            waiting = []
    return answers + [answer(client, key, version) for key in waiting]


def answer(client: WireClient, key: int, version: int) -> Any:
    """The next answer, of whatever correlation id."""
    data = client.receive()
    assert data is not None, "the broker closed the connection"
    return decoder(load(key)[1], version)(data, read_response_header(key, version, data)[1])[0]


@attack(
    "3,000 delegation tokens of 100 renewers each, renewed, described 5 times and ended",
    LISTENERS, MECHANISMS, USERS, "delegation.token.secret.key=of-the-cluster", not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def many_tokens(target: Target) -> None:
    renewers = [CreatableRenewers(principal_type="User", principal_name=f"renewer-{number}") for number in range(100)]
    create, renew, expire, describe = (load(key)[0] for key in (38, 39, 40, 41))
    with logged_in(target) as client:
        target.begin()
        made = ask_all(client, (create(renewers=renewers, max_lifetime_ms=-1) for _ in target.numbers(TOKENS)), 3)
        assert not any(token.error_code for token in made)
        renewed = ask_all(client, (renew(hmac=token.hmac, renew_period_ms=-1) for token in made[:500]), 2)
        assert not any(found.error_code for found in renewed)
        for _ in range(5):
            assert len(client.ask(describe(owners=None), 3).tokens) == target.part(TOKENS)
        ended = ask_all(client, (expire(hmac=token.hmac, expiry_time_period_ms=-1) for token in made), 2)
        assert not any(found.error_code for found in ended)


@attack(
    "AlterUserScramCredentials of 500 users of the most iterations, 40 times, and 2,000 logins of users that there are not",
    LISTENERS, MECHANISMS, USERS, not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def many_credentials(target: Target) -> None:
    handshake, first = load(17)[0](mechanism="SCRAM-SHA-256"), load(36)[0](auth_bytes=b"n,,n=unknown,r=0123456789abcdef")
    target.begin()
    for first_user in range(0, target.part(20_000), 500):
        users = [credential(number) for number in range(first_user, first_user + 500)]
        assert not any(found.error_code for found in target.client.ask(load(51)[0](upsertions=users), 0).results)
    for _ in target.numbers(2000):
        with contextlib.suppress(OSError, AssertionError), connect(target) as client:
            client.ask(handshake, 1)
            client.ask(first, 2)


def credential(number: int) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=f"user-{number}", mechanism=1, iterations=ITERATIONS_STORED_MAX, salt=b"s" * 64, salted_password=b"p" * 32
    )
