"""Attacks on logins and access rules. No attempt may succeed, and none may reveal which users exist. `ATTACKS` has the attacks by name. An
attack yields True for each attempt in which the attacker got what it must not get, otherwise False.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import unicodedata
from collections.abc import Callable, Iterator

import pytest

from ottla.base.acls import WILDCARD, AclOperation, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.security import scram_server
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.audit import AuditLog
from ottla.security.authentication import Exchange, StepResult
from ottla.security.credentials import ScramUsers, credential_text
from ottla.security.oauthbearer import OAuthBearerServer
from ottla.security.plain import PlainServer
from ottla.security.scram import HASHES, ScramClient
from ottla.security.scram_server import ScramServer, make_credential
from ottla.security.signing_keys import is_signed_by, read_key_set
from ottla.security.web_tokens import TOKEN_BYTES_MAX, WebToken
from tests.fakes import ManualClock
from tests.fakes.issuer import claims_at, first_message, jwks, public_jwk, rsa_key, signed
from tests.security.test_signing_keys import WRONG_TOKENS
from tests.security.test_web_tokens import NONSENSE, NOW_S, OPTIONS

SHA256 = "SCRAM-SHA-256"
USER, PASSWORD = "Zoë", "for Zoë, ÄÖ"
STORED = {USER: {name: credential_text(make_credential(name, PASSWORD, b"sixteen bytes ..", 4096)) for name in HASHES}}
NONCES = itertools.count()


def scram(mechanism: str = SHA256) -> ScramServer:
    users = ScramUsers(mechanism, lambda: STORED, lambda: b"the cluster's")
    return ScramServer(mechanism, users.find, users.decoy, f"server-{next(NONCES)}")


def step(exchange: Exchange, message: bytes) -> StepResult:
    outcomes: list[StepResult] = []
    exchange.step(message, outcomes.append)
    (outcome,) = outcomes
    return outcome


def is_in(outcome: StepResult) -> bool:
    return outcome.principal is not None


def proof_of(first: bytes, challenge: bytes, without_proof: str, password: str = PASSWORD) -> bytes:
    """Returns the correct proof for any messages, so that only the tested part is wrong."""
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    bare = first.decode().split(",", 2)[2]
    signed = f"{bare},{challenge.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))


def login(first: bytes, final: Callable[[str], str]) -> StepResult:
    """Does the last step of an exchange. `final` makes the last message without its proof from the correct nonce."""
    server = scram()
    challenge = step(server, first)
    if challenge.error is not None:
        return challenge
    nonce = dict(part.split("=", 1) for part in challenge.token.decode().split(","))["r"]
    without_proof = final(nonce)
    return step(server, f"{without_proof},p={proof_of(first, challenge.token, without_proof).decode()}".encode())


FIRST = f"n,,n={USER},r=client".encode()


def wrong_channel_binding() -> Iterator[bool]:
    """The channel-binding header of the first message differs from its copy in the last message, or channel binding is required."""
    bindings = ["p=tls-unique,,", "p=tls-exporter,,", "p=tls-server-end-point,,"]
    headers = [*bindings, "y,,", "n,a=root,", f"n,a={USER},", "", "n", "N,,", "n,,\0"]
    for header in headers:
        yield is_in(login(FIRST, lambda nonce, header=header: f"c={base64.b64encode(header.encode()).decode()},r={nonce}"))
    for header in ("p=tls-unique,,", "p=tls-exporter,,", "x,,", ",,", "n,b=root,", "n,a=root,", "nn,,"):
        first = f"{header}n={USER},r=client".encode()
        yield is_in(login(first, lambda nonce, header=header: f"c={base64.b64encode(header.encode()).decode()},r={nonce}"))


def repeated_nonces() -> Iterator[bool]:
    """Recorded messages are sent again with the same client nonce, and messages have nonces of another exchange."""
    recorded = scram()
    client = ScramClient(USER, PASSWORD, SHA256, "client")
    final = client.final(step(recorded, client.first()).token)
    assert is_in(step(recorded, final))
    for _ in range(100):
        server = scram()
        step(server, client.first())
        yield is_in(step(server, final))
    makers: list[Callable[[str], str]] = [
        lambda nonce: "client", lambda nonce: nonce[:-1], lambda nonce: nonce + "x", lambda nonce: nonce.upper(), lambda nonce: "",
        lambda nonce: nonce.removeprefix("client"), lambda nonce: f"{nonce},r=client", lambda nonce: f"x,r={nonce}",
    ]  # fmt: skip
    for make in makers:
        yield is_in(login(FIRST, lambda nonce, make=make: f"c=biws,r={make(nonce)}"))


def misshapen_messages() -> Iterator[bool]:
    """Messages with repeated, reordered or missing attributes, with required extensions, or with unescaped names."""
    firsts = [
        f"n,,r=client,n={USER}", f"n,,n={USER}", "n,,r=client", f"n,,n=,r=client,n={USER}", f"n,,n={USER},n={USER},r=client",
        f"n,,n={USER},r=client,r=client", f"n,,m=x,n={USER},r=client", f"n,,n={USER},r=client,m=x", f"n,,n={USER}=,r=client",
        f"n,,n={USER}=2c,r=client", f"n,,n={USER},r=", f"n,,N={USER},r=client", f"n={USER},r=client", "", "n,,", f"n,, n={USER},r=client",
    ]  # fmt: skip
    for first in firsts:
        yield is_in(login(first.encode(), lambda nonce: f"c=biws,r={nonce}"))
    finals: list[Callable[[str], str]] = [
        lambda nonce: f"r={nonce},c=biws", lambda nonce: f"c=biws,c=biws,r={nonce}", lambda nonce: f"c=biws,r={nonce},r={nonce}",
        lambda nonce: f"c=biws,r={nonce},m=x", lambda nonce: f"r={nonce}", lambda nonce: "c=biws", lambda nonce: f"c=biws,x=y,r={nonce}",
    ]  # fmt: skip
    for final in finals:
        yield is_in(login(FIRST, final))
    for message in (b"\xff" * 40, b"\0" * 40, b"n,,n=" + b"a" * 500_000, b",".join([b"a=b"] * 50_000)):
        yield is_in(step(scram(), message))


def wrong_proofs() -> Iterator[bool]:
    """Each bit of a correct proof is inverted in turn, and proofs have a wrong length."""
    def last(change: Callable[[bytes], bytes]) -> bool:
        server = scram()
        challenge = step(server, FIRST)
        nonce = challenge.token.decode().split(",")[0][2:]
        proof = base64.b64decode(proof_of(FIRST, challenge.token, f"c=biws,r={nonce}"))
        return is_in(step(server, f"c=biws,r={nonce},p={base64.b64encode(change(proof)).decode()}".encode()))

    assert last(lambda proof: proof)
    for bit in range(0, 256, 4):
        yield last(lambda proof, bit=bit: bytes(byte ^ (1 << bit % 8 if place == bit // 8 else 0) for place, byte in enumerate(proof)))
    changes: list[Callable[[bytes], bytes]] = [
        lambda proof: b"", lambda proof: bytes(32), lambda proof: proof[:-1], lambda proof: proof + b"\0", lambda proof: proof[::-1],
        lambda proof: proof * 2,
    ]  # fmt: skip
    for change in changes:
        yield last(change)


def other_forms_of_a_name() -> Iterator[bool]:
    """Names that are similar to a user's name, in both mechanisms, and as principals of rules and of a super user."""
    forms = {unicodedata.normalize(form, USER) for form in ("NFD", "NFKD")} | {
        "zoë", "ZOË", "Zoë ", " Zoë", "Zoë\0", "Zo\u00eb\u200b", "Z\u043e\u00eb", "Zoe", "Zo\u0451", "\uff3aoë", "Zoë\u0301",
        "User:Zoë", "Zoë,", "*",
    }  # fmt: skip
    allowing = AclAuthorizer(AuditLog(ManualClock()), super_users=[f"User:{USER}"])
    allowing.replace({Pattern(ResourceType.TOPIC, "orders"): [Rule(f"User:{USER}", WILDCARD, AclOperation.ALL, Permission.ALLOW)]})
    for name in sorted(forms - {USER}):
        client = ScramClient(name, PASSWORD, SHA256, "client")
        server = scram()
        yield is_in(step(server, client.final(step(server, client.first()).token)))
        yield is_in(step(PlainServer(lambda: {USER: PASSWORD}), f"\0{name}\0{PASSWORD}".encode()))
        yield allows(allowing, f"User:{name}", "orders")


class Requester:
    """A client of an authorizer."""

    host, listener, is_inter_broker = "10.0.0.1", "CLIENTS", False

    def __init__(self, principal: str) -> None:
        self.principal = principal


def allows(authorizer: AclAuthorizer, principal: str, topic: str) -> bool:
    return authorizer.permits(Requester(principal), AclOperation.READ, ResourceType.TOPIC, topic)


def denials_in_any_order() -> Iterator[bool]:
    """One denying rule among rules that allow, in every order of storage, with every kind of pattern and rule."""
    patterns = [Pattern(ResourceType.TOPIC, name, kind) for name, kind in (
        ("orders", PatternType.LITERAL), (WILDCARD, PatternType.LITERAL), ("ord", PatternType.PREFIXED), ("orders", PatternType.PREFIXED),
    )]  # fmt: skip
    allowing = [(pattern, Rule("User:eve", WILDCARD, AclOperation.ALL, Permission.ALLOW)) for pattern in patterns[:3]]
    for pattern, who, host, operation in itertools.product(
        patterns, ("User:eve", "User:*"), (WILDCARD, Requester.host), (AclOperation.READ, AclOperation.ALL)
    ):
        denial = (pattern, Rule(who, host, operation, Permission.DENY))
        for order in itertools.permutations([*allowing, denial]):
            authorizer = AclAuthorizer(AuditLog(ManualClock()))
            authorizer.replace({})
            stored: dict[Pattern, list[Rule]] = {}
            for where, rule in order:
                stored.setdefault(where, []).append(rule)
                authorizer.put(where, stored[where])
            yield allows(authorizer, "User:eve", "orders")


def tricks_with_prefixes() -> Iterator[bool]:
    """Topics that a rule with a prefix, or with a star in its name, must not allow."""
    authorizer = AclAuthorizer(AuditLog(ManualClock()))
    rule = Rule("User:eve", WILDCARD, AclOperation.READ, Permission.ALLOW)
    authorizer.replace({
        Pattern(ResourceType.TOPIC, "team-", PatternType.PREFIXED): [rule], Pattern(ResourceType.TOPIC, "a*", PatternType.LITERAL): [rule],
        Pattern(ResourceType.TOPIC, WILDCARD, PatternType.PREFIXED): [rule], Pattern(ResourceType.GROUP, "x", PatternType.PREFIXED): [rule],
        Pattern(ResourceType.TOPIC, "Zo\u00eb", PatternType.PREFIXED): [rule],
    })  # fmt: skip
    assert allows(authorizer, "User:eve", "team-a") and allows(authorizer, "User:eve", "a*") and allows(authorizer, "User:eve", "*x")
    names = [
        "team", "tea", "Team-a", "TEAM-a", "team\u2010a", "\u200bteam-a", " team-a", "xteam-a", "ab", "a", "x", "xy", "Zoe\u0308-a",
        "team\0-", "", "orders", "tean-", "team,", "team.",
    ]  # fmt: skip
    for name in names:
        yield allows(authorizer, "User:eve", name)


def wrong_bearer_tokens() -> Iterator[bool]:
    """Tokens that are malformed, unsigned, signed by another key, or too long."""
    keys = read_key_set(jwks(public_jwk(rsa_key(), "first")))

    def verify(token: WebToken, done: Callable[[str], object]) -> None:
        key = keys.find(token)
        done("" if key is not None and is_signed_by(token, key) else "refused")

    texts = [*NONSENSE.values(), *(make() for make, _ in WRONG_TOKENS.values()), "a" * (TOKEN_BYTES_MAX * 10)]
    for text in texts:
        server = OAuthBearerServer(OPTIONS, verify, lambda: NOW_S * 1000)
        yield is_in(step(server, first_message(text))) or is_in(step(server, b"\x01"))


ATTACKS: dict[str, tuple[Callable[[], Iterator[bool]], int]] = {
    "wrong channel binding": (wrong_channel_binding, 17),
    "repeated and foreign nonces": (repeated_nonces, 108),
    "misshapen messages": (misshapen_messages, 27),
    "wrong proofs": (wrong_proofs, 70),
    "other forms of a name": (other_forms_of_a_name, 45),
    "denials in any order": (denials_in_any_order, 768),
    "tricks with prefixes": (tricks_with_prefixes, 19),
    "wrong bearer tokens": (wrong_bearer_tokens, len(NONSENSE) + len(WRONG_TOKENS) + 1),
}
"""Each with how many tries it has."""


@pytest.mark.parametrize("name", ATTACKS)
def test_no_try_gets_through(name: str) -> None:
    attack, count = ATTACKS[name]
    tries = list(attack())
    assert (len(tries), [number for number, is_through in enumerate(tries) if is_through]) == (count, [])


def test_an_honest_login_gets_through() -> None:
    """A correct login succeeds, so the attacks do not fail for another reason."""
    assert login(FIRST, lambda nonce: f"c=biws,r={nonce}").principal == f"User:{USER}"
    assert is_in(step(PlainServer(lambda: {USER: PASSWORD}), f"\0{USER}\0{PASSWORD}".encode()))
    right = OAuthBearerServer(OPTIONS, lambda _token, done: done(""), lambda: NOW_S * 1000)
    assert is_in(step(right, first_message(signed(claims_at(NOW_S)))))


@pytest.mark.parametrize("mechanism", HASHES)
def test_users_cannot_be_found_out_by_messages(mechanism: str) -> None:
    """The answers about 200 unknown names look like the answers about an existing user: form of the challenge, stable salt, last message.
    """
    seen, salts = set(), set()
    for name in [USER, *(f"user-{number}" for number in range(200))]:
        challenges, server = [], scram(mechanism)
        for exchange in (scram(mechanism), server):
            client = ScramClient(name, "wrong", mechanism, "client")
            challenges.append(dict(part.split("=", 1) for part in step(exchange, client.first()).token.decode().split(",")))
            refusal = step(exchange, client.final(f"r={challenges[-1]['r']},s={challenges[-1]['s']},i={challenges[-1]['i']}".encode()))
        assert challenges[0]["s"] == challenges[1]["s"]
        salts.add(challenges[0]["s"])
        seen.add((len(challenges[0]["s"]), challenges[0]["i"], refusal.error, refusal.token, refusal.principal))
    assert len(seen) == 1 and len(salts) == 201


def test_users_cannot_be_found_out_by_the_work_of_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker computes the same number of hashes for an unknown name as for an existing one, so the time of its answer reveals nothing.
    """
    counted = [0]

    class Counting:
        compare_digest = staticmethod(hmac.compare_digest)

        @staticmethod
        def digest(key: bytes, data: bytes, name: str) -> bytes:
            counted[0] += 1
            return hmac.digest(key, data, name)

    monkeypatch.setattr(scram_server, "hmac", Counting)
    work = []
    for name in (USER, "no-user", "user"):
        server, client = scram(), ScramClient(name, "wrong", SHA256, "client")
        final = client.final(step(server, client.first()).token)
        counted[0] = 0
        step(server, final)
        work.append(counted[0])
    assert len(set(work)) == 1 and work[0] > 0


def test_plain_gives_the_same_answer_for_a_wrong_name_and_a_wrong_password() -> None:
    users = {USER: PASSWORD}
    errors = {step(PlainServer(lambda: users), f"\0{name}\0wrong".encode()).error for name in (USER, *(f"user-{n}" for n in range(100)))}
    assert len(errors) == 1
