"""The TLS of a client: each way to give certificates, what is trusted, and refusals that say what to do."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from ottla.cli.access.certificates import issue, make_authority
from ottla.client.tls import has_certificate, tls_context
from tests.client.pem import CERTIFICATE, ENCRYPTED_KEY, KEY, OTHER_KEY, PASSWORD
from tests.security.test_key_stores import PASSWORD as STORE_PASSWORD
from tests.security.test_key_stores import pkcs12


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The paths of PEM files by what they hold."""
    texts = {
        "certificate": CERTIFICATE, "key": KEY, "both": KEY + CERTIFICATE, "encrypted": ENCRYPTED_KEY, "other": OTHER_KEY,
        "described": "subject=localhost ä\n" + CERTIFICATE,
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "jks").write_bytes(b"\xfe\xed\xfe\xed\0\0")
    (tmp_path / "pkcs12").write_bytes(b"\x30\x82\x09\x41")
    return {path.name: str(path) for path in tmp_path.iterdir()}


def trusted(properties: dict[str, str]) -> int:
    return len(tls_context(properties).get_ca_certs())


def test_what_is_given_replaces_the_authorities_of_the_system(files: dict[str, str]) -> None:
    assert trusted({"ssl.truststore.location": files["certificate"], "ssl.truststore.type": "PEM"}) == 1
    assert trusted({"ssl.ca.location": files["described"]}) == 1
    assert trusted({"ssl.truststore.certificates": CERTIFICATE * 2}) == 1
    assert trusted({"ssl.truststore.certificates": "subject=localhost ä\n" + CERTIFICATE}) == 1
    assert trusted({"ssl.ca.pem": CERTIFICATE.replace("\n", "\\n")}) == 1
    systems = len(ssl.create_default_context().get_ca_certs())
    assert trusted({}) == trusted({"ssl.ca.location": "probe"}) == systems


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.keystore.location": "both"},
        {"ssl.certificate.location": "certificate", "ssl.key.location": "key"},
        {"ssl.certificate.location": "certificate", "ssl.key.location": "encrypted", "ssl.key.password": PASSWORD},
    ],
)
def test_a_certificate_from_files(files: dict[str, str], properties: dict[str, str]) -> None:
    named = {name: files.get(value, value) for name, value in properties.items()}
    assert has_certificate(named) and tls_context(named).verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.keystore.certificate.chain": CERTIFICATE, "ssl.keystore.key": KEY},
        {"ssl.keystore.certificate.chain": CERTIFICATE, "ssl.keystore.key": ENCRYPTED_KEY, "ssl.key.password": PASSWORD},
        {"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY},
    ],
)
def test_a_certificate_in_the_properties(properties: dict[str, str]) -> None:
    assert has_certificate(properties) and tls_context(properties).check_hostname
    assert not has_certificate({"ssl.ca.pem": CERTIFICATE})


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ssl.keystore.certificate.chain": CERTIFICATE, "ssl.keystore.key": OTHER_KEY}, "does not fit the certificate"),
        ({"ssl.keystore.certificate.chain": CERTIFICATE, "ssl.keystore.key": ENCRYPTED_KEY}, "need ssl.key.password"),
        (
            {"ssl.keystore.certificate.chain": CERTIFICATE, "ssl.keystore.key": ENCRYPTED_KEY, "ssl.key.password": "wrong"},
            "is ssl.key.password right",
        ),
        ({"ssl.keystore.key": KEY}, "ssl.keystore.key is a key without a certificate"),
        ({"ssl.truststore.certificates": "nonsense"}, "ssl.truststore.certificates is no PEM text"),
        ({"ssl.truststore.certificates": KEY}, "ssl.truststore.certificates has no certificate"),
        ({"ssl.truststore.type": "JKS", "ssl.truststore.location": "a.jks"}, "keytool -importkeystore -srckeystore a.jks"),
        ({"ssl.keystore.type": "BCFKS", "ssl.keystore.location": "a.bcfks"}, "is not served, PEM and PKCS12 are"),
        ({"ssl.crl.location": "crl.pem"}, "ssl.crl.location is not served"),
        ({"ssl.enabled.protocols": "TLSv1.3,TLSv1"}, "names TLSv1; there are"),
        ({"ssl.cipher.suites": "ROT13"}, "no cipher that OpenSSL knows"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.2"}, "suites of TLS 1.3 alone"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "neither https nor empty"),
        ({"ssl.ca.location": "/no/such/file"}, "cannot read a TLS file: ssl.ca.location=/no/such/file: no such file"),
    ],
)
def test_what_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        tls_context(properties)
    assert "\n" not in str(refusal.value) and "PRIVATE" not in str(refusal.value) and "wrong" not in str(refusal.value)


def test_other_stores_are_known_by_their_bytes(files: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"ssl.truststore.location=.*: a JKS file; convert it: keytool "):
        tls_context({"ssl.truststore.location": files["jks"]})
    with pytest.raises(ValueError, match=r"ssl.keystore.location=.*PKCS#12"):
        tls_context({"ssl.keystore.location": files["pkcs12"], "ssl.keystore.password": "p"})


def test_stores_of_pkcs12(tmp_path: Path) -> None:
    authority = make_authority(2)
    keys, trust = tmp_path / "keys", tmp_path / "trust"
    keys.write_bytes(pkcs12(issue(authority, "alice", [], 2), [authority]))
    trust.write_bytes(pkcs12(None, [authority]))
    given = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(keys), "ssl.keystore.password": STORE_PASSWORD}
    assert trusted({**given, "ssl.truststore.location": str(trust), "ssl.truststore.password": STORE_PASSWORD}) == 1
    with pytest.raises(ValueError, match=r"ssl\.truststore\.location=.*: the password is wrong"):
        trusted({**given, "ssl.truststore.location": str(trust)})


def test_versions_ciphers_and_what_is_checked() -> None:
    context = tls_context({"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"})
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" in [cipher["name"] for cipher in context.get_ciphers()]
    assert tls_context({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}).minimum_version is ssl.TLSVersion.TLSv1_3
    for algorithm in ("", " ", "none"):
        unnamed = tls_context({"ssl.endpoint.identification.algorithm": algorithm})
        assert not unnamed.check_hostname and unnamed.verify_mode is ssl.CERT_REQUIRED
    assert tls_context({"enable.ssl.certificate.verification": "false"}).verify_mode is ssl.CERT_NONE
