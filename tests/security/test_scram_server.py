"""The server's half of SCRAM, tried with our client's half, with the RFC's example, and with clients that cheat."""

from __future__ import annotations

import base64

import pytest

from ottla.security.authentication import StepResult
from ottla.security.credentials import ScramUsers, credential_text
from ottla.security.scram import ScramClient
from ottla.security.scram_server import MESSAGE_BYTES_MAX, ScramCredential, ScramServer, make_credential

SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SECRET = b"the broker's own"


def server(mechanism: str = SHA256, *, nonce: str = "server", users: dict[str, ScramCredential] | None = None) -> ScramServer:
    known = users if users is not None else {"alice": make_credential(mechanism, "pencil", b"salt", 4096)}
    stored = {name: {mechanism: credential_text(credential)} for name, credential in known.items()}
    found = ScramUsers(mechanism, lambda: stored, lambda: SECRET)
    return ScramServer(mechanism, found.find, found.decoy, nonce)


def step(exchange: ScramServer, token: bytes) -> StepResult:
    outcomes: list[StepResult] = []
    exchange.step(token, outcomes.append)
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize("mechanism", [SHA256, SHA512])
@pytest.mark.parametrize("name", ["alice", "a,b=c", "Zoë"])
def test_both_halves_agree(mechanism: str, name: str) -> None:
    exchange = server(mechanism, users={name: make_credential(mechanism, "pencil", b"salt", 4096)})
    client = ScramClient(name, "pencil", mechanism, "client")
    first = step(exchange, client.first())
    last = step(exchange, client.final(first.token))
    assert first.error is None and first.principal is None
    assert last.principal == f"User:{name}"
    client.check(last.token)


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    users = {"user": make_credential(SHA256, "pencil", salt, 4096)}
    exchange = server(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", users=users)
    first = step(exchange, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.token == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = step(
        exchange,
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    )
    assert (last.token, last.principal) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "User:user")


def refusal(name: str, password: str) -> StepResult:
    exchange = server()
    client = ScramClient(name, password, SHA256, "client")
    return step(exchange, client.final(step(exchange, client.first()).token))


def test_a_wrong_password_and_an_unknown_name_look_the_same() -> None:
    assert refusal("alice", "pen")._replace(claimed="") == refusal("mallory", "pencil")._replace(claimed="")
    assert refusal("alice", "pen").error and refusal("alice", "pen").principal is None


def test_an_unknown_name_has_always_the_same_salt() -> None:
    salts = [step(server(nonce="n"), ScramClient(name, "p", SHA256, "c").first()).token for name in ("eve", "eve", "mallory")]
    assert salts[0] == salts[1] != salts[2]


@pytest.mark.parametrize(
    "first",
    [b"", b"n,,", b"n,,n=alice", b"n,,r=x", b"p=tls-unique,,n=alice,r=x", b"n,a=bob,n=alice,r=x", b"n,,n=al=ice,r=x", b"\xff,,n=alice,r=x"],
)
def test_a_first_message_that_makes_no_sense_is_refused(first: bytes) -> None:
    assert step(server(), first).error


def test_a_final_message_must_belong_to_the_exchange() -> None:
    """Refused messages: other nonces, another channel binding, no proof, bytes behind the proof."""
    exchange = server()
    client = ScramClient("alice", "pencil", SHA256, "client")
    good = client.final(step(exchange, client.first()).token)
    for bad in (
        good.replace(b"r=clientserver", b"r=clientclient"), good.replace(b"c=biws", b"c=eSws"), good[: good.index(b",p=")],
        good + b"AAAA", b"", good.replace(b"p=", b"p=*"),
    ):  # fmt: skip
        cheated = server()
        step(cheated, client.first())
        outcome = step(cheated, bad)
        assert outcome.error and outcome.principal is None, bad
    assert step(exchange, good).principal == "User:alice"


def test_credentials_need_enough_rounds() -> None:
    with pytest.raises(ValueError, match="too few"):
        make_credential(SHA256, "pencil", b"salt", 4095)


def test_a_message_that_is_too_long_is_refused_and_not_kept() -> None:
    """The first message is kept until the login ends, and any client may send it."""
    users = ScramUsers("SCRAM-SHA-256", dict, lambda: b"secret")
    server = ScramServer("SCRAM-SHA-256", users.find, users.decoy, "server")
    outcomes: list[StepResult] = []
    server.step(b"n,,n=unknown,r=" + b"r" * MESSAGE_BYTES_MAX, outcomes.append)
    assert outcomes[0].error and not server._signed


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_known_name_costs_the_same_work_as_an_unknown_one(user: str) -> None:
    """Formerly the time of an answer showed whether a user exists: 44 or 109 microseconds."""
    stored = {"alice": {"SCRAM-SHA-256": credential_text(make_credential("SCRAM-SHA-256", "secret", b"salt" * 4, 4096))}}
    users = ScramUsers("SCRAM-SHA-256", lambda: stored, lambda: b"secret")
    decoys: list[str] = []

    def decoy(name: str) -> ScramCredential:
        decoys.append(name)
        return users.decoy(name)

    server = ScramServer("SCRAM-SHA-256", users.find, decoy, "server")
    outcomes: list[StepResult] = []
    server.step(f"n,,n={user},r=nonce".encode(), outcomes.append)
    assert decoys == [user] and outcomes[0].error is None


def test_a_known_user_logs_in_before_the_cluster_has_a_secret() -> None:
    stored = {"alice": {"SCRAM-SHA-256": credential_text(make_credential("SCRAM-SHA-256", "secret", b"salt" * 4, 4096))}}
    users = ScramUsers("SCRAM-SHA-256", lambda: stored, lambda: None)
    for user, is_refused in (("alice", False), ("mallory", True)):
        outcomes: list[StepResult] = []
        ScramServer("SCRAM-SHA-256", users.find, users.decoy, "server").step(f"n,,n={user},r=nonce".encode(), outcomes.append)
        assert bool(outcomes[0].error) is is_refused
