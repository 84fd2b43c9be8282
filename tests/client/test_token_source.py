"""Where tokens come from by properties of every dialect, and when another one is fetched."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.core.bearer_token import BearerToken
from ottla.client.errors import AuthenticationError, ClientError, ConnectError
from ottla.client.security import Security, security_of
from ottla.client.token_source import RETRY_S, TokenKeeper
from ottla.security.web_tokens import read_token
from tests.fakes.token_endpoint import TokenEndpoint

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
HANDLERS = "org.apache.kafka.common.security.oauthbearer"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"
SECRET = "s3cret"


def line(options: str) -> dict[str, str]:
    return {**SASL, "sasl.jaas.config": f"{MODULE} {options};"}


def first(properties: dict[str, str], **more: Any) -> bytes:
    exchange = Security(properties, **more).new_exchange()
    assert exchange is not None
    return exchange.first()


def claims(message: bytes) -> dict[str, Any]:
    return read_token(message.split(b"Bearer ")[1].split(b"\x01")[0].decode()).claims


def test_a_token_without_a_signature_from_a_line_of_jaas() -> None:
    options = (
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|a|b" unsecuredLoginNumberClaim_level="7"'
        ' unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_traceId="9"'
    )
    message = first(line(options))
    found = claims(message)
    assert {name: found[name] for name in ("sub", "scope", "level")} == {"sub": "alice", "scope": ["a", "b"], "level": 7}
    assert found["exp"] - found["iat"] == pytest.approx(60) and message.endswith(b"\x01traceId=9\x01\x01")


def test_a_token_without_a_signature_from_properties_of_librdkafka() -> None:
    config = "principalClaimName=user principal=alice scope=a,b lifeSeconds=60 extension_traceId=9"
    message = first({**SASL, "enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": config})
    found = claims(message)
    assert (found["user"], found["scope"]) == ("alice", ["a", "b"]) and b"traceId=9" in message


@pytest.mark.parametrize(
    "given",
    [
        line(f'clientId="app" clientSecret="{SECRET}" scope="kafka" extension_pool="x"'),
        line(f'clientId="app" clientSecret="{SECRET}" scope="kafka" extension_pool="x"')
        | {"sasl.login.callback.handler.class": f"{HANDLERS}.secured.OAuthBearerLoginCallbackHandler"},
        {
            **SASL, "sasl.jaas.config": f"{MODULE};", "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET, "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "pool=x",
        },
        {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "app", "sasl.oauthbearer.client.secret": SECRET, "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "pool=x",
        },
    ],
)  # fmt: skip
def test_client_credentials_of_every_dialect(given: dict[str, str]) -> None:
    with TokenEndpoint(lambda: "opaque").serving() as endpoint:
        assert first({**given, URL: endpoint.url}) == b"n,,\x01auth=Bearer opaque\x01pool=x\x01\x01"
    (asked,) = endpoint.asked
    assert asked.authorization == "Basic YXBwOnMzY3JldA==" and "scope=kafka" in asked.body


def test_a_function_of_the_program() -> None:
    made = iter([("one", 2e9), "two", "no token", ("three", 1.0)])
    security = Security({**SASL, "sasl.oauthbearer.extensions": "pool=x"}, lambda: next(made))
    assert security.may_block
    assert b"Bearer one\x01pool=x" in (security.new_exchange() or pytest.fail()).first()
    assert not security.may_block
    assert b"Bearer two" in first(SASL, token=lambda: next(made))
    with pytest.raises(AuthenticationError, match="the program's function gives no token"):
        first(SASL, token=lambda: next(made))
    past = Security(SASL, lambda: next(made))
    past.new_exchange()
    assert past.may_block, "a token that has expired is not used again"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (SASL, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, or for tests unsecuredLoginStringClaim_sub"),
        (line('unsecuredLoginStringClaim_user="a"'), "unsecuredLoginStringClaim_sub"),
        (line('unsecuredLoginStringClaim_sub="a" unsecuredLoginLifetimeSeconds="soon"'), "unsecuredLoginLifetimeSeconds=soon is no number"),
        ({**line(f'clientSecret="{SECRET}"'), URL: "https://host/token"}, "needs a client id: "),
        ({**line('clientId="a"'), URL: "https://host/token"}, "needs a client secret: "),
        ({**line(f'clientId="a" clientSecret="{SECRET}"'), URL: f"ftp://{SECRET}@host/token"}, f"{URL} is neither https"),
        ({**line(f'clientId="a" clientSecret="{SECRET}" extension_auth="x"'), URL: "http://h/"}, "the SASL extension 'auth'"),
        ({**SASL, URL: "http://h/", "sasl.oauthbearer.jwt.retriever.class": "my.Retriever"}, "my.Retriever is not served"),
        ({**SASL, "sasl.login.callback.handler.class": "my.Handler"}, "my.Handler is not served"),
        ({**SASL, "sasl.login.refresh.window.factor": "2"}, "is not between 0.5 and 1"),
        ({**SASL, "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "only oidc with client_credentials"),
        ({**SASL, "sasl.jaas.config": f"{PLAIN} password={SECRET};"}, "PlainLoginModule is not for OAUTHBEARER"),
    ],
)  # fmt: skip
def test_properties_that_make_no_sense(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        Security(properties)
    assert SECRET not in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_function_without_the_mechanism_for_it() -> None:
    with pytest.raises(ValueError, match=r"is for sasl\.mechanism=OAUTHBEARER, not PLAIN"):
        Security({"security.protocol": "SASL_PLAINTEXT", "sasl.username": "a", "sasl.password": "b"}, lambda: "t")
    with pytest.raises(ValueError, match=r"needs security\.protocol=SASL_SSL"):
        security_of({}, lambda: "t")


class Source:
    """Tokens that live for a hundred seconds, or errors."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.count = 0
        self.error: ClientError | None = None

    def __call__(self) -> BearerToken:
        self.count += 1
        if self.error is not None:
            raise self.error
        return BearerToken(f"t{self.count}", self.now_s + 100)


def test_a_token_is_renewed_in_the_last_part_of_its_time() -> None:
    source = Source()
    keeper = TokenKeeper(source, now=lambda: source.now_s)
    texts = []
    for now_s in (1000.0, 1079.0, 1080.0, 1159.0):
        source.now_s = now_s
        texts.append(keeper.token().text)
    assert texts == ["t1", "t1", "t2", "t2"]


def test_the_old_token_serves_while_no_other_can_be_had() -> None:
    source = Source()
    keeper = TokenKeeper(source, now=lambda: source.now_s)
    keeper.token()
    source.error, source.now_s = ConnectError("away"), 1090.0
    assert keeper.token().text == keeper.token().text == "t1" and source.count == 2
    source.now_s += RETRY_S
    assert keeper.token().text == "t1" and source.count == 3
    source.now_s = 1100.0 + RETRY_S
    with pytest.raises(ConnectError, match="away"):
        keeper.token()
    source.error = None
    assert keeper.token().text == "t5"


def test_a_refused_token_is_not_sent_again() -> None:
    source = Source()
    keeper = TokenKeeper(source, now=lambda: source.now_s)
    refused = keeper.token()
    keeper.discard(refused)
    assert keeper.token().text == "t2"
    keeper.discard(refused)
    assert keeper.token().text == "t2", "another one is there by now"


def test_a_token_may_be_refused_while_another_one_is_fetched() -> None:
    """As where one thread fetches and another one gets the refusal."""
    source = Source()
    keeper = TokenKeeper(lambda: (keeper.discard(first), source())[1], now=lambda: source.now_s)
    first = BearerToken("none", 0)
    first = keeper.token()
    source.error, source.now_s = ConnectError("away"), 1090.0
    with pytest.raises(ConnectError, match="away"):
        keeper.token()


@pytest.mark.parametrize("url", ["https://issuer:99999/", "https://issuer:x/", "http://[::1/token", "http://issuer:0/", "https:///token"])
def test_an_address_that_is_none_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(ValueError, match=r"is neither https://HOST/PATH") as refusal:
        Security({**line(f'clientId="app" clientSecret="{SECRET}"'), URL: url})
    assert "\n" not in str(refusal.value)


def test_an_address_that_cannot_be_sent_is_an_error_of_the_login() -> None:
    properties = {**line(f'clientId="app" clientSecret="{SECRET}"'), "sasl.login.retry.backoff.max.ms": "0"}
    with TokenEndpoint(lambda: "opaque").serving() as endpoint, pytest.raises(ConnectError, match=r"cannot reach .*: no address"):
        first({**properties, URL: f"{endpoint.url}/t\u00f6ken"})
