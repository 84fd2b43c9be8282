"""`ottla security cert`: an authority and certificates with which a broker and a client shake hands."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

from ottla.adapters.tls_context import server_context
from ottla.base.config import BrokerConfig
from tests.cli.conftest import Ottla


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shake_hands(certs: Path, host: str, client: str) -> dict[str, object]:
    """A handshake in memory; what the server gets to know of the client's certificate."""
    values = {
        "listeners": "SSL://:1", "ssl.keystore.location": str(certs / "broker.pem"), "ssl.client.auth": "required",
        "ssl.truststore.location": str(certs / "ca.pem"),
    }  # fmt: skip
    near = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    near.load_cert_chain(certs / f"{client}.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        near.wrap_bio(to_client, to_server, server_hostname=host),
        server_context(BrokerConfig(values).of_listeners.tls("SSL")).wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return dict(ends[1].getpeercert() or {})


def test_a_broker_and_a_client_shake_hands(offline: Ottla) -> None:
    result = offline("security", "cert", "broker", "alice", "--host", "kafka.example.org", "--host", "10.0.0.1", "-o", "json")
    assert result.code == 0 and "ssl.keystore.location=certs/broker.pem" in result.err
    files = [row["file"] for row in result.json()["certificates"]]
    assert files == ["certs/ca.pem", "certs/ca.key", "certs/broker.pem", "certs/alice.pem"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in Path("certs").iterdir() if path.name != "ca.pem"}
    assert modes == dict.fromkeys(("ca.key", "broker.pem", "alice.pem"), 0o600)
    for host in ("kafka.example.org", "10.0.0.1"):
        assert shake_hands(Path("certs"), host, "alice")["subject"] == ((("commonName", "alice"),),)
    with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
        shake_hands(Path("certs"), "localhost", "alice")


def test_a_file_is_replaced_only_where_it_was_asked_for(offline: Ottla) -> None:
    assert offline("security", "cert").code == 0
    first, authority = Path("certs/broker.pem").read_bytes(), Path("certs/ca.pem").read_bytes()
    again = offline("security", "cert", "alice", "broker")
    assert (again.code, again.out) == (1, "") and "certs/broker.pem is there already; --force replaces it" in again.err
    assert Path("certs/broker.pem").read_bytes() == first and not Path("certs/alice.pem").exists()
    assert offline("security", "cert", "--force", "--days", "2").code == 0
    assert Path("certs/broker.pem").read_bytes() != first and Path("certs/ca.pem").read_bytes() == authority
    assert shake_hands(Path("certs"), "localhost", "broker") and shake_hands(Path("certs"), "127.0.0.1", "broker")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("../x",), "no name"), (("ca",), "no name"), (("",), "no name"), (("a", "--host", "a b"), "neither a name"),
        (("a", "--days", "0"), "between 1"), (("a", "--days", "99999"), "between 1"),
    ],
)  # fmt: skip
def test_what_cannot_be(offline: Ottla, words: tuple[str, ...], what: str) -> None:
    result = offline("security", "cert", *words)
    assert (result.code, result.out) == (2, "") and what in result.err
    assert not Path("certs").exists()


def test_an_authority_that_is_not_whole(offline: Ottla) -> None:
    assert offline("security", "cert", "--dir", "x").code == offline("security", "cert", "--dir", "y").code == 0
    Path("x/ca.key").write_bytes(Path("y/ca.key").read_bytes())
    assert "do not fit" in offline("security", "cert", "alice", "--dir", "x").err
    Path("x/ca.key").write_bytes(b"nonsense")
    assert "cannot be read" in offline("security", "cert", "alice", "--dir", "x").err
    Path("x/ca.key").unlink()
    result = offline("security", "cert", "alice", "--dir", "x")
    assert result.code == 1 and "x/ca.key is missing" in result.err
    Path("file").touch()
    result = offline("security", "cert", "--dir", "file")
    assert result.code == 1 and result.err.startswith("error: cannot write file: ") and result.err.count("\n") == 1


def test_without_the_package(offline: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ottla.cli.access.certificates", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    result = offline("security", "cert")
    assert result.code == 1 and "pip install cryptography" in result.err and result.err.count("\n") == 1
