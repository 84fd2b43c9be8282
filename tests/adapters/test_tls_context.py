"""What is wrong with the TLS of a listener stops the start with one line that says what to do."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ottla.adapters.tls_context import end_warning, server_context
from ottla.base.config import BrokerConfig
from ottla.base.ports import AddressError
from tests.clients.certificates import Authority

YEAR_2100 = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), need_program)


def context(settings: dict[str, str], now: datetime | None = None) -> ssl.SSLContext:
    return server_context(BrokerConfig({"listeners": "SSL://:1", **settings}).of_listeners.tls("SSL"), now)


def test_files_and_inline_pem(authority: Authority) -> None:
    both = authority.issue("broker")
    by_file = context({"ssl.keystore.location": str(both), "ssl.enabled.protocols": "TLSv1.3"})
    assert by_file.minimum_version is ssl.TLSVersion.TLSv1_3 and by_file.verify_mode is ssl.CERT_NONE and by_file.get_ca_certs() == []
    text = both.read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    inline = context({
        "ssl.keystore.key": text[:at], "ssl.keystore.certificate.chain": text[at:], "ssl.client.auth": "required",
        "ssl.truststore.certificates": "subject=ä\n" + authority.ca.read_text(),
    })  # fmt: skip
    assert inline.verify_mode is ssl.CERT_REQUIRED and len(inline.get_ca_certs()) == 1, "no authorities but those that are given"


@pytest.fixture
def broken(authority: Authority, tmp_path: Path) -> dict[str, Path]:
    """Files that cannot be used, by what is wrong with them."""
    good, other = authority.issue("good").read_text(), authority.issue("other").read_text()
    at = "-----BEGIN CERTIFICATE"
    texts = {
        "mixed": (good[: good.index(at)] + other[other.index(at) :]).encode(), "jks": b"\xfe\xed\xfe\xed\0\0\0\2", "binary": b"\x30\x82",
        "key only": good[: good.index(at)].encode(), "cut": (good[: good.index(at) + 100] + "\n-----END CERTIFICATE-----\n").encode(),
        "good": good.encode(),
    }  # fmt: skip
    found = {}
    for name, data in texts.items():
        found[name] = tmp_path / name
        found[name].write_bytes(data)
    return found


@pytest.mark.parametrize(
    ("name", "more", "reason"),
    [
        ("mixed", {}, "does not fit"),
        ("jks", {}, "keytool -importkeystore"),
        ("binary", {}, "PKCS#12"),
        ("good", {"ssl.keystore.type": "JKS", "ssl.client.auth": "required"}, "ssl.truststore.location"),
        ("key only", {}, "no certificate"),
        ("cut", {}, "cannot be read"),
        ("absent", {}, "No such file"),
        ("good", {"ssl.client.auth": "required"}, "ssl.truststore.location"),
        ("good", {"ssl.cipher.suites": "NONSENSE"}, "no cipher"),
        ("good", {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.2"}, "suites of TLS 1.3 alone"),
    ],
)
def test_what_is_refused(broken: dict[str, Path], tmp_path: Path, name: str, more: dict[str, str], reason: str) -> None:
    with pytest.raises(AddressError, match=reason) as refusal:
        context({"ssl.keystore.location": str(broken.get(name, tmp_path / "absent")), **more})
    assert "\n" not in str(refusal.value) and str(refusal.value).startswith("listener SSL: ")


def test_ciphers_by_the_names_of_java(broken: dict[str, Path]) -> None:
    def ciphers(names: str) -> set[str]:
        made = context({"ssl.keystore.location": str(broken["good"]), "ssl.cipher.suites": names})
        of_tls13 = made.minimum_version is ssl.TLSVersion.TLSv1_3
        return {cipher["name"] for cipher in made.get_ciphers() if of_tls13 or not cipher["name"].startswith("TLS_")}

    assert ciphers("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_AES_256_GCM_SHA384") == {"ECDHE-ECDSA-AES256-GCM-SHA384"}
    assert "TLS_AES_256_GCM_SHA384" in ciphers("TLS_AES_256_GCM_SHA384")


def test_an_expired_certificate_is_refused(broken: dict[str, Path]) -> None:
    with pytest.raises(AddressError, match="has expired on"):
        context({"ssl.keystore.location": str(broken["good"])}, YEAR_2100)


@pytest.mark.parametrize(
    ("days", "warning"),
    [
        (31, None),
        (29, "the certificate of ssl.keystore.* ends in 29 days, on 2100-01-01 00:00 UTC"),
        (0, "the certificate of ssl.keystore.* has expired on 2100-01-01 00:00 UTC"),
    ],
)
def test_a_certificate_that_ends_soon(days: int, warning: str | None) -> None:
    assert end_warning(YEAR_2100, YEAR_2100 - timedelta(days=days)) == warning


def test_tls_without_a_keystore_is_refused() -> None:
    with pytest.raises(AddressError, match=r"TLS needs ssl\.keystore\.location"):
        context({})


def test_stores_of_pkcs12(authority: Authority, tmp_path: Path, need_program: Callable[[str], str]) -> None:
    keys, trust = tmp_path / "keys.p12", tmp_path / "trust.p12"
    openssl = [need_program("openssl"), "pkcs12", "-export", "-passout", "pass:changeit"]
    subprocess.run([*openssl, "-in", str(authority.issue("stored")), "-out", str(keys)], check=True, timeout=120)
    subprocess.run([*openssl, "-nokeys", "-in", str(authority.ca), "-out", str(trust)], check=True, timeout=120)
    settings = {
        "ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(keys), "ssl.keystore.password": "changeit",
        "ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(trust), "ssl.truststore.password": "changeit",
        "ssl.client.auth": "required",
    }  # fmt: skip
    assert len(context(settings).get_ca_certs()) == 1
    with pytest.raises(AddressError, match=r"ssl\.truststore\.location=.*the password is wrong") as refusal:
        context({**settings, "ssl.truststore.password": "topsecret"})
    assert "topsecret" not in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("password", [None, "wrong"])
def test_the_password_of_a_private_key(
    authority: Authority, tmp_path: Path, need_program: Callable[[str], str], password: str | None
) -> None:
    plain, locked = authority.issue("locked"), tmp_path / "locked.pem"
    command = [need_program("openssl"), "pkcs8", "-topk8", "-in", str(plain), "-out", str(locked), "-passout", "pass:topsecret"]
    subprocess.run(command, check=True, timeout=120)
    text = plain.read_text()
    locked.write_text(locked.read_text() + text[text.index("-----BEGIN CERTIFICATE") :])
    settings = {"ssl.keystore.location": str(locked)}
    with pytest.raises(AddressError, match=r"wrong or missing \(ssl.key.password\)"):
        context(settings if password is None else {**settings, "ssl.key.password": password})
    context({**settings, "ssl.key.password": "topsecret"})
    context({**settings, "ssl.keystore.password": "topsecret"})
