"""Key stores, recognised by their content: PEM and PKCS#12 are converted to PEM; for others, one line says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ottla.cli.access.certificates import Pair, issue, make_authority
from ottla.security.key_stores import KeyStoreError, pem_of

PASSWORD = "topsecret"
KEY, CERTIFICATE = "-----BEGIN PRIVATE KEY-----", "-----BEGIN CERTIFICATE-----"


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make_authority(2)


@pytest.fixture(scope="module")
def pair(authority: Pair) -> Pair:
    return issue(authority, "broker", ["localhost"], 2)


def pkcs12(pair: Pair | None, others: list[Pair], password: str | None = PASSWORD) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12 as made

    key = None if pair is None else serialization.load_pem_private_key(pair.key, None)
    certificate = None if pair is None else x509.load_pem_x509_certificate(pair.certificate)
    chain = [x509.load_pem_x509_certificate(other.certificate) for other in others]
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return made.serialize_key_and_certificates(b"broker", key, certificate, chain, encryption)  # type: ignore[arg-type]


def test_a_keystore_of_pkcs12_is_a_key_its_certificate_and_the_chain(authority: Pair, pair: Pair) -> None:
    found = pem_of(pkcs12(pair, [authority]), "broker.p12", PASSWORD)
    assert found == (pair.key + pair.certificate + authority.certificate).decode()
    assert pem_of(pkcs12(pair, [], None), "broker.p12", None) == (pair.key + pair.certificate).decode()


def test_a_truststore_of_pkcs12_is_its_certificates(authority: Pair) -> None:
    other = make_authority(2)
    found = pem_of(pkcs12(None, [authority, other]), "trust.p12", PASSWORD)
    assert KEY not in found and found.count(CERTIFICATE) == 2


def test_pem_stays_as_it_is(pair: Pair) -> None:
    assert pem_of(b"Bag Attributes\n" + pair.certificate, "x", "ignored") == "Bag Attributes\n" + pair.certificate.decode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", "a JKS file"),
        (b"\xce\xce\xce\xce\0\0\0\2", "a JCEKS file"),
        (b"\xfe\xed\xfe\xed\0\0\0\2", "keytool -importkeystore -srckeystore a.jks -destkeystore store.p12 -deststoretype PKCS12"),
        (b"\xce\xce\xce\xce\0\0\0\2", "keytool"),
        (b"", "neither PEM nor PKCS#12"),
        (b"hello", "neither PEM nor PKCS#12"),
        (b"\x30\x82\x01", "PKCS#12"),
    ],
)
def test_what_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(KeyStoreError, match=reason) as refusal:
        pem_of(data, "a.jks", PASSWORD)
    assert "\n" not in str(refusal.value) and PASSWORD not in str(refusal.value)


@pytest.mark.parametrize("password", ["wrong", "", None])
def test_a_wrong_password(pair: Pair, password: str | None) -> None:
    with pytest.raises(KeyStoreError, match="the password is wrong"):
        pem_of(pkcs12(pair, []), "broker.p12", password)


def test_without_the_package_the_refusal_says_what_to_do(pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = pkcs12(pair, [])
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(KeyStoreError, match=r"pip install cryptography\), or convert it: openssl pkcs12 -in broker.p12 -out store.pem"):
        pem_of(store, "broker.p12", PASSWORD)
