"""Stock clients log in with bearer tokens: valid ones, invalid ones, after a change of the issuer's keys, and until a token expires."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokens
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

import ottla.client
from ottla.client.aio import connect as connect_aio
from ottla.security.web_tokens import TOKEN_BYTES_MAX
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.conftest import SETTINGS
from tests.clients.test_sasl import address
from tests.fakes.https_server import HttpsServer
from tests.fakes.issuer import AUDIENCE, ISSUER, claims_at, jwks, public_jwk, rsa_key, signed, unsecured
from tests.fakes.token_endpoint import TokenEndpoint

Fresh = Callable[[str], str]
FILE, HTTPS, OPEN = "FILE", "HTTPS", "OPEN"


class Issuer:
    """The key sets of both listeners: one in a file, one at an HTTPS address."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "keys.json"
        self.server = HttpsServer(directory)
        self.pages: dict[str, bytes | str] = {}
        self.publish("first")

    def publish(self, *names: str) -> None:
        keys = jwks(*(public_jwk(rsa_key(name), name) for name in names))
        self.path.write_bytes(keys)
        self.pages["/keys"] = keys


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    made = Issuer(tmp_path_factory.mktemp("issuer"))
    with made.server.serving(made.pages):
        yield made


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    url, own = "sasl.oauthbearer.jwks.endpoint.url", "oauthbearer"
    settings = (
        *SETTINGS,
        f"listeners={FILE}://127.0.0.1:0,{HTTPS}://127.0.0.1:0,{OPEN}://127.0.0.1:0",
        f"listener.security.protocol.map={FILE}:SASL_PLAINTEXT,{HTTPS}:SASL_PLAINTEXT,{OPEN}:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"listener.name.file.{own}.{url}=file://{issuer.path}",
        f"listener.name.https.{own}.{url}={issuer.server.url}/keys",
        f"listener.name.https.{own}.ottla.sasl.oauthbearer.jwks.ca.location={issuer.server.authorities}",
        f"listener.name.open.{own}.ottla.sasl.oauthbearer.unsecured.allowed=true",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=1",
        f"sasl.oauthbearer.expected.issuer={ISSUER}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        "ottla.sasl.oauthbearer.required.scope=kafka",
        "sasl.oauthbearer.clock.skew.seconds=5",
        "connection.failed.authentication.delay.ms=10",
    )
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings).start()
    try:
        yield process
    finally:
        process.stop()


def right(**changed: Any) -> str:
    return signed(claims_at(int(time.time()), **changed))


def oversized() -> str:
    return right(groups="g" * TOKEN_BYTES_MAX)


WRONG: dict[str, tuple[Callable[[], str], str]] = {
    "expired": (lambda: right(iat=1, exp=2), "has expired"),
    "alg none": (lambda: unsecured(claims_at(int(time.time()))), "unknown key"),
    "another audience": (lambda: right(aud="others"), "another audience"),
    "another issuer": (lambda: right(iss="https://evil.test"), "another issuer"),
    "another key": (lambda: signed(claims_at(int(time.time())), rsa_key("evil")), "signature is wrong"),
    "no scope": (lambda: right(scope=None), "lacks the scope kafka"),
    "oversized": (oversized, f"more than {TOKEN_BYTES_MAX}"),
}


def librdkafka(bootstrap: str, make: Callable[[], str], **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "log_level": 0,
        "oauth_cb": lambda _config: (make(), time.time() + 600), **more,
    }  # fmt: skip


def outcome_of_sending(settings: dict[str, Any], topic: str) -> str:
    """Sends a record. Returns an empty text when it is acknowledged, else the text of the client's first error."""
    found: list[str] = []
    client = Producer({**settings, "error_cb": lambda error: found.append(error.str()), "message.timeout.ms": 60_000})
    client.produce(topic, b"value", on_delivery=lambda error, _record: found.append(error.str() if error else ""))
    deadline = time.monotonic() + 60
    while not found and time.monotonic() < deadline:
        client.poll(0.2)
    client.purge()
    client.flush(5)
    return found[0]


@pytest.mark.parametrize("listener", [FILE, HTTPS])
def test_librdkafka(broker: BrokerProcess, fresh: Fresh, listener: str) -> None:
    assert outcome_of_sending(librdkafka(address(broker, listener), right), fresh("token")) == ""


@pytest.mark.parametrize("name", WRONG)
def test_librdkafka_with_a_wrong_token(broker: BrokerProcess, fresh: Fresh, name: str) -> None:
    """With a wrong token the client gets only the status; the broker's log has the reason."""
    make, reason = WRONG[name]
    error = outcome_of_sending(librdkafka(address(broker, FILE), make), fresh("token"))
    assert ("insufficient_scope" if name == "no scope" else "invalid_token") in error and reason not in error
    # The line is written after the client has confirmed the status, and at most once in ten seconds for each reason, for all clients
    # together.
    eventually(lambda: any(reason in line and "mechanism=" in line for line in broker.log_text().splitlines()))


class Tokens(AbstractTokenProvider):
    """kafka-python's source of tokens."""

    def __init__(self, make: Callable[[], str]) -> None:
        super().__init__()
        self._make = make

    def token(self) -> str:
        return self._make()

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


def test_kafka_python(broker: BrokerProcess, fresh: Fresh) -> None:
    common = {"bootstrap_servers": address(broker, HTTPS), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with closing(KafkaProducer(**common, sasl_oauth_token_provider=Tokens(right))) as producer:
        assert producer.send(fresh("token"), b"value").get(60).offset == 0


class AsyncTokens(AioTokens):
    """aiokafka's source of tokens."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    async def token(self) -> str:
        return self._make()


def test_aiokafka(broker: BrokerProcess, fresh: Fresh) -> None:
    async def send(make: Callable[[], str]) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=address(broker, FILE), security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=AsyncTokens(make),
        )  # fmt: skip
        try:
            await producer.start()
            return int((await producer.send_and_wait(fresh("token"), b"value")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send(right)) == 0
    with pytest.raises(AioError):
        asyncio.run(send(lambda: right(iat=1, exp=2)))


def test_unsecured_tokens_only_on_the_listener_that_allows_them(broker: BrokerProcess, fresh: Fresh) -> None:
    def make() -> str:
        return unsecured(claims_at(int(time.time())))

    assert outcome_of_sending(librdkafka(address(broker, OPEN), make), fresh("token")) == ""
    assert "invalid_token" in outcome_of_sending(librdkafka(address(broker, OPEN), right), fresh("token"))
    assert "invalid_token" in outcome_of_sending(librdkafka(address(broker, HTTPS), make), fresh("token"))


def test_a_rotated_key_is_found_without_a_restart(broker: BrokerProcess, issuer: Issuer, fresh: Fresh) -> None:
    def second() -> str:
        return signed(claims_at(int(time.time())), rsa_key("second"), "second")

    issuer.publish("first", "second")
    try:
        for listener in (FILE, HTTPS):
            assert outcome_of_sending(librdkafka(address(broker, listener), second), fresh("token")) == ""
    finally:
        issuer.publish("first")


def test_a_session_ends_with_its_token_and_a_fresh_one_goes_on(broker: BrokerProcess, fresh: Fresh) -> None:
    """Tokens expire after a few seconds: the client authenticates again and loses no record (KIP-368)."""
    topic, answers, made = fresh("token"), [0, 0], [0]

    def short(_config: str) -> tuple[str, float]:
        made[0] += 1
        ends = int(time.time()) + 5
        return right(exp=ends), ends

    client = Producer({**librdkafka(address(broker, FILE), right), "oauth_cb": short, "linger.ms": 0})

    def delivered(error: Any, _record: Any) -> None:
        answers[error is not None] += 1

    deadline = time.monotonic() + 60
    while made[0] < 4 and time.monotonic() < deadline:
        client.produce(topic, b"value", on_delivery=delivered)
        client.poll(0.05)
    assert client.flush(60) == 0
    assert made[0] >= 4 and answers[0] > 0 and answers[1] == 0


def test_a_token_stands_nowhere_in_the_log(broker: BrokerProcess, fresh: Fresh) -> None:
    token, wrong = right(), right(aud="others")
    for text in (token, wrong):
        outcome_of_sending(librdkafka(address(broker, FILE), lambda text=text: text), fresh("token"))
    log = broker.log_text()
    assert not [part for text in (token, wrong) for part in text.split(".")[1:] if part in log]


OWN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
OPEN_LINE = (
    f'{MODULE} unsecuredLoginStringClaim_sub="alice" unsecuredLoginStringClaim_iss="{ISSUER}" unsecuredLoginStringClaim_aud="{AUDIENCE}"'
    ' unsecuredLoginListClaim_scope=",kafka";'
)


@pytest.fixture
def endpoint(issuer: Issuer) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(right).serving() as made:
        yield made


def of_endpoint(endpoint: TokenEndpoint) -> dict[str, str]:
    url = {"sasl.oauthbearer.token.endpoint.url": endpoint.url}
    return {**OWN, **url, "sasl.jaas.config": f'{MODULE} clientId="app" clientSecret="s3cret";'}


def test_our_client_with_every_source_of_tokens(broker: BrokerProcess, endpoint: TokenEndpoint, fresh: Fresh, tmp_path: Path) -> None:
    topic, file = fresh("token"), tmp_path / "token"
    file.write_text(right())
    sources: list[tuple[str, dict[str, str], dict[str, Any]]] = [
        (FILE, of_endpoint(endpoint), {}),
        (HTTPS, {**OWN, "sasl.oauthbearer.token.endpoint.url": file.as_uri()}, {}),
        (FILE, OWN, {"bearer_token": right}),
        (OPEN, {**OWN, "sasl.jaas.config": OPEN_LINE}, {}),
    ]
    for listener, config, more in sources:
        with ottla.client.connect(address(broker, listener), config, **more) as client, client.producer() as producer:
            producer.produce(topic, b"value")
    assert len(endpoint.asked) == 1, "one token for all connections of a client"

    async def ends() -> list[Any]:
        async with await connect_aio(address(broker, FILE), of_endpoint(endpoint)) as client:
            return await client.list_offsets({ottla.client.TopicPartition(topic, 0): ottla.client.LATEST})

    assert asyncio.run(ends())


@pytest.mark.parametrize("name", ["expired", "no scope"])
def test_our_client_with_a_wrong_token(broker: BrokerProcess, name: str) -> None:
    token = WRONG[name][0]()
    with pytest.raises(ottla.client.AuthenticationError, match="insufficient_scope" if name == "no scope" else "invalid_token") as refusal:
        ottla.client.connect(address(broker, FILE), OWN, bearer_token=lambda: token)
    assert token not in str(refusal.value)


def test_our_client_goes_on_when_its_token_ends(broker: BrokerProcess, fresh: Fresh) -> None:
    """Ottla's blocking and asyncio clients continue under load with tokens that expire after a few seconds."""
    topic, made = fresh("token"), [0]

    def short() -> str:
        made[0] += 1
        return right(exp=int(time.time()) + 6)

    deadline = time.monotonic() + 60
    with ottla.client.connect(address(broker, FILE), OWN, bearer_token=short) as client, client.producer() as producer:
        count = 0
        while made[0] < 2 and time.monotonic() < deadline:
            producer.produce(topic, b"value")
            producer.flush()
            count += 1
        position = ottla.client.TopicPartition(topic, 0)
        assert made[0] >= 2 and client.list_offsets({position: ottla.client.LATEST})[position].offset == count

    async def ask() -> int:
        async with await connect_aio(address(broker, FILE), OWN, bearer_token=short) as client:
            answers = 0
            while made[0] < 4 and time.monotonic() < deadline:
                answers += len(await asyncio.gather(*(client.brokers() for _ in range(5))))
            return answers

    assert asyncio.run(ask()) and made[0] >= 4


def test_the_command_line_with_a_token(broker: BrokerProcess, endpoint: TokenEndpoint, fresh: Fresh, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in of_endpoint(endpoint).items()))
    here = ("-b", address(broker, FILE))

    def ottla_command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "ottla", *words], capture_output=True, text=True, check=False)

    topic = fresh("token")
    assert ottla_command("topic", "create", topic, *here, "--command-config", str(file)).returncode == 0
    options = [word for name, value in of_endpoint(endpoint).items() for word in ("-X", f"{name}={value}")]
    assert topic in ottla_command("topic", "list", *here, *options).stdout
    endpoint.script.append((401, b'{"error":"invalid_client"}'))
    refused = ottla_command("topic", "list", *here, *options)
    assert refused.returncode == 1 or refused.returncode == 3
    assert "HTTP status 401 (invalid_client)" in refused.stderr and "s3cret" not in refused.stderr
    assert [line.partition(": ")[0] for line in refused.stderr.splitlines()] == ["warning", "error"]
