"""A broker whose security is not whole does not start: one line that says what is missing, no READY, no listener without it. `ottla status`
finds those that run."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from ottla.cli.access.certificates import issue, make_authority
from tests.cli.conftest import Ottla, Result

SASL = "listeners=SASL_PLAINTEXT://127.0.0.1:0"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with key stores by what is right or wrong with them."""
    directory = tmp_path_factory.mktemp("stores")
    authority = make_authority(2)
    one, other = (issue(authority, name, ["localhost"], 2) for name in ("one", "other"))
    (directory / "right").write_bytes(one.key + one.certificate)
    (directory / "mixed").write_bytes(one.key + other.certificate)
    (directory / "jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (directory / "directory").mkdir()
    return directory


def refusal(run: Ottla, data: Path, *settings: str) -> str:
    result = run("start", "-d", data, *(word for setting in settings for word in ("--set", setting)))
    assert (result.code, result.out) == (1, ""), result.err
    lines = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "Traceback" not in result.err, result.err
    return lines[0]


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        ("mixed", "listener SSL: the private key does not fit the certificate"),
        ("jks", ": a JKS file; convert it: keytool -importkeystore"),
        ("absent", "cannot read ssl.keystore.location=.*absent: No such file"),
        ("directory", "cannot read ssl.keystore.location=.*directory: Is a directory"),
    ],
)
def test_a_keystore_that_cannot_be_used(offline: Ottla, tmp_path: Path, stores: Path, store: str, reason: str) -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    found = refusal(offline, tmp_path / "data", listeners, f"ssl.keystore.location={stores / store}")
    assert re.search(reason, found), found


def test_an_expired_certificate(offline: Ottla, tmp_path: Path, stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Later:
            return cls(2100, 1, 1, tzinfo=tz)

    monkeypatch.setattr("ottla.adapters.tls_context.datetime", Later)
    found = refusal(offline, tmp_path / "data", "listeners=SSL://127.0.0.1:0", f"ssl.keystore.location={stores / 'right'}")
    assert "has expired on" in found


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["listeners=SSL://127.0.0.1:0"], "TLS needs ssl.keystore.location"),
        (["listeners=SSL://127.0.0.1:0", "ssl.keystore.location=RIGHT", "ssl.client.auth=required"], "needs ssl.truststore.location"),
        (["listeners=SSL://127.0.0.1:0", "ssl.keystore.location=RIGHT", "ssl.principal.mapping.rules=RULE:x"], "listener SSL: "),
        (["listeners=SSL://127.0.0.1:0", "ssl.keystore.location=RIGHT", "ssl.enabled.protocols=SSLv3"], "ssl.enabled.protocols"),
        ([SASL], "sasl.enabled.mechanisms names GSSAPI"),
        ([SASL, "sasl.enabled.mechanisms=SCRAM-SHA-1"], "sasl.enabled.mechanisms names SCRAM-SHA-1"),
        ([SASL, "sasl.enabled.mechanisms=PLAIN"], "the mechanism PLAIN has no users"),
        (["listeners=TLS://127.0.0.1:0"], "listener.security.protocol.map has no protocol for TLS"),
        ([SASL, "sasl.enabled.mechanisms=OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url=https://127.0.0.1:1/keys"],
         "needs sasl.oauthbearer.expected.audience, or sasl.oauthbearer.allow.unverified.audience=true"),
        (["super.users=User:admin"], "authorizer.class.name"),
        (["authorizer.class.name=org.example.Mine"], "authorizer.class.name"),
        (["authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=admin"], "super.users"),
    ],
)
def test_a_listener_that_lacks_something(offline: Ottla, tmp_path: Path, stores: Path, settings: list[str], reason: str) -> None:
    found = refusal(offline, tmp_path / "data", *(setting.replace("RIGHT", str(stores / "right")) for setting in settings))
    assert reason in found


BY_TOKEN = [
    "zookeeper.connect=127.0.0.1:1", "broker.id=1", SASL, "security.inter.broker.protocol=SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=OAUTHBEARER", "sasl.mechanism.inter.broker.protocol=OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url=https://127.0.0.1:1/keys", "sasl.oauthbearer.expected.audience=kafka",
    "sasl.oauthbearer.expected.issuer=https://127.0.0.1:1",
]  # fmt: skip
TOKENS = "sasl.oauthbearer.token.endpoint.url"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ([], f"needs {TOKENS}"),
        ([f"{TOKENS}=https://127.0.0.1:1/token"], "needs a client id"),
        ([f"{TOKENS}=file:///absent/token"], "cannot read the token in /absent/token"),
    ],
)
def test_a_broker_that_could_get_no_token_for_the_others(offline: Ottla, tmp_path: Path, settings: list[str], reason: str) -> None:
    """Before it asks for ZooKeeper, which is not there."""
    assert reason in refusal(offline, tmp_path / "data", *BY_TOKEN, *settings)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_status_of_a_broker_with_tls_or_a_login(offline: Ottla, tmp_path: Path, stores: Path, protocol: str) -> None:
    settings = {
        "listeners": f"{protocol}://127.0.0.1:0", "ssl.keystore.location": str(stores / "right"),
        "sasl.enabled.mechanisms": "PLAIN", "ottla.sasl.plain.users.a": "b",
    }  # fmt: skip
    found = status(offline, tmp_path / "data", settings)
    assert found.code == 0 and found.json()["answer_ms"] > 0 and found.json()["reason"] is None


def test_status_of_a_broker_that_asks_for_certificates_has_the_reason(offline: Ottla, tmp_path: Path, stores: Path) -> None:
    authority = tmp_path / "authority"
    authority.write_bytes(make_authority(2).certificate)
    settings = {
        "listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(stores / "right"), "ssl.client.auth": "required",
        "ssl.truststore.location": str(authority), "ssl.truststore.type": "PEM",
    }  # fmt: skip
    found = status(offline, tmp_path / "data", settings)
    assert found.code == 3 and "with TLS: " in found.json()["reason"] and "certificate" in found.json()["reason"]


def status(run: Ottla, data: Path, settings: dict[str, str]) -> Result:
    """Returns the result of `ottla status` for a broker with these settings."""
    command = [sys.executable, "-m", "ottla.cli.main", "start", "-d", str(data)]
    command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("READY")
            return run("status", "-d", data, "-o", "json")
        finally:
            process.kill()
