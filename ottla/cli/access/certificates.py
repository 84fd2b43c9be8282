"""Makes certificates for trying TLS: a certificate authority (CA), and keys with certificates that the CA signs.

For experiments and tests only, because the CA's key is stored beside the certificates. Importing this module raises `Refused` without the
package cryptography (extra `ottla[security]`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from ottla.cli.command import Refused

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError:
    raise Refused("certificates are made by the package cryptography; install it: pip install cryptography") from None

CLOCKS_DIFFER = timedelta(minutes=5)
"""A certificate is valid from this long before its creation, so that machines with a slow clock accept it."""


class Pair(NamedTuple):
    """A private key and its certificate, as PEM."""

    key: bytes
    certificate: bytes

    @property
    def until(self) -> datetime:
        """The time at which the certificate expires, in UTC."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


def make_authority(days: int) -> Pair:
    """Makes a CA, valid for `days`. The CA may sign certificates of brokers and clients, but not of other CAs."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("ottla authority for trying things")
    uses = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(uses, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(key, builder.sign(key, hashes.SHA256()))


def issue(authority: Pair, name: str, hosts: Sequence[str], days: int) -> Pair:
    """Makes a key and a certificate for a broker at `hosts`, or for a client. Raises `Refused` if the CA cannot be read, or its key does
    not fit its certificate."""
    try:
        signer = load_pem_private_key(authority.key, None)
        root = x509.load_pem_x509_certificate(authority.certificate)
    except (ValueError, TypeError) as error:
        raise Refused(f"the authority cannot be read: {error}") from None
    if not isinstance(signer, ec.EllipticCurvePrivateKey) or signer.public_key() != root.public_key():
        raise Refused("the authority's key and its certificate do not fit each other")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(name), root.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return _pair(key, builder.sign(signer, hashes.SHA256()))


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pair(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Pair:
    return Pair(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), certificate.public_bytes(Encoding.PEM))
