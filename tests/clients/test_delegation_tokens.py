"""Delegation tokens work with Kafka's tool and producer and with Ottla's, and a connection ends when its token expires."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.client.blocking.cluster import Cluster
from ottla.client.core import token_admin
from ottla.client.errors import ConnectError, KafkaError
from ottla.client.security import Security
from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.clients.java_program import Java

KEY = "a key of the brokers"
USERS = {"alice": "for-alice", "bob": "for-bob"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = (
        *SETTINGS,
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        *(f"ottla.sasl.plain.users.{user}={password}" for user, password in USERS.items()),
        f"delegation.token.secret.key={KEY}",
        "connection.failed.authentication.delay.ms=10",
    )
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings).start()
    try:
        yield process
    finally:
        process.stop()


def as_user(user: str) -> dict[str, str]:
    jaas = f'{PLAIN} required username="{user}" password="{USERS[user]}";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def by_token(token_id: str, hmac: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    jaas = f'{SCRAM} required username="{token_id}" password="{hmac}" tokenauth="true";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def connect(broker: BrokerProcess, properties: dict[str, str]) -> Cluster:
    return Cluster(broker.address, security=Security(properties))


def text_of(hmac: bytes) -> str:
    return base64.b64encode(hmac).decode()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_and_its_end_logs_out(broker: BrokerProcess, mechanism: str) -> None:
    with connect(broker, as_user("alice")) as alice:
        token = token_admin.create_token(alice, renewers=["User:bob"])
        with connect(broker, by_token(token.token_id, text_of(token.hmac), mechanism)) as worker:
            with pytest.raises(KafkaError, match="delegation tokens"):
                token_admin.create_token(worker)
            since = len(broker.log_text())
            with connect(broker, as_user("bob")) as bob:
                assert [found.token_id for found in token_admin.describe_tokens(bob)] == [token.token_id]
                token_admin.expire_token(bob, token.hmac)
            with pytest.raises((ConnectError, KafkaError)):
                token_admin.describe_tokens(worker)
        assert "'User:alice' may not log in any more" in broker.log_text()[since:]
        assert token_admin.describe_tokens(alice) == []


def test_a_wrong_secret_is_refused(broker: BrokerProcess) -> None:
    with connect(broker, as_user("alice")) as alice:
        token = token_admin.create_token(alice, lifetime_ms=60_000)
        for token_id, hmac in ((token.token_id, "wrong"), ("unknown", text_of(token.hmac))):
            with connect(broker, by_token(token_id, hmac)) as worker, pytest.raises(KafkaError, match="invalid credentials"):
                token_admin.describe_tokens(worker)
            assert f'authentication refused: user="{token_id}" host="127.0.0.1" mechanism="SCRAM-SHA-256"' in broker.log_text()
        token_admin.expire_token(alice, token.hmac)


def test_tokens_survive_a_restart_without_their_secret(broker: BrokerProcess) -> None:
    with connect(broker, as_user("alice")) as alice:
        token = token_admin.create_token(alice)
    broker.restart()
    with connect(broker, as_user("alice")) as alice:
        assert token_admin.describe_tokens(alice) == [token]
        token_admin.expire_token(alice, token.hmac)
    stored = b"".join(path.read_bytes() for path in broker.data.glob("*") if path.is_file())
    assert token.token_id.encode() in stored
    assert not [secret for secret in (token.hmac, text_of(token.hmac).encode(), KEY.encode()) if secret in stored]


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
def test_kafkas_tool_and_ours(broker: BrokerProcess, tmp_path: Path, need_program: Callable[[str], str]) -> None:
    java, alice, worker = Java(need_program), tmp_path / "alice.properties", tmp_path / "worker.properties"
    alice.write_text("".join(f"{name}={value}\n" for name, value in as_user("alice").items()))
    common = ("--bootstrap-server", broker.address, "--command-config", str(alice))

    def ours(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ottla.cli.main", "kafka-delegation-tokens", *words, *common]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    created = java.run(TOOL, *common, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert created.returncode == 0, created.stderr
    token_id = re.findall(r"tokenId : (\S+)", created.stdout)[0]
    hmac = re.findall(rf"^{re.escape(token_id)} +(\S+)", created.stdout, re.MULTILINE)[0]
    worker.write_text("".join(f"{name}={value}\n" for name, value in by_token(token_id, hmac).items()))

    of_alice = ("--describe", "--owner-principal", "User:alice")
    described = java.run(TOOL, *common, *of_alice)
    assert (described.stdout, described.returncode) == (ours(*of_alice).stdout, 0) and token_id in described.stdout
    refused = java.run(TOOL, *common[:2], "--command-config", str(worker), "--describe")
    assert refused.returncode == 1 and "not allowed" in refused.stderr

    renewed = ours("--renew", "--renew-time-period", "-1", "--hmac", hmac).stdout
    assert re.fullmatch(rf"Calling renew token operation with hmac :{re.escape(hmac)} , renew-time-period :-1\n"
                        r"Completed renew operation. New expiry date : \d{4}-\d\d-\d\dT\d\d:\d\d", renewed)  # fmt: skip
    ended = java.run(TOOL, *common, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in ended.stdout
    assert java.run(TOOL, *common, "--describe").stdout == ours("--describe").stdout
    assert "owners: [User:alice]\nTotal number of tokens : 0\n" in ours(*of_alice).stdout
    gone = ours("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert gone.returncode == 1 and "DelegationTokenNotFoundException: Delegation Token is not found on server." in gone.stderr
