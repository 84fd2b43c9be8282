"""Makes the TLS context of a client from the `ssl.*` properties of Kafka's and librdkafka's clients: PEM or PKCS#12 files, or PEM texts.

A given truststore replaces the system's certificate authorities. A JKS file cannot be read; the error message has the command that converts
it. Properties that would weaken TLS if they were ignored are refused. Every error is a ValueError with a one-line message.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.security.cipher_names import tls12_ciphers
from ottla.security.key_stores import KeyStoreError, conversion, pem_of

BEGIN = b"-----BEGIN "
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
NOT_SERVED = ("ssl.crl.location", "ssl.engine.factory.class", "ssl.engine.location")

TRUST_FILES = ("ssl.truststore.location", "ssl.ca.location")
TRUST_TEXTS = ("ssl.truststore.certificates", "ssl.ca.pem")
OWN_FILES = ("ssl.keystore.location", "ssl.certificate.location")
OWN_TEXTS = ("ssl.keystore.certificate.chain", "ssl.certificate.pem")
KEY_FILES = ("ssl.key.location",)
KEY_TEXTS = ("ssl.keystore.key", "ssl.key.pem")
KEY_PASSWORDS = ("ssl.key.password", "ssl.keystore.password")
STORE_PASSWORDS = {"ssl.truststore.location": "ssl.truststore.password", "ssl.keystore.location": "ssl.keystore.password"}
_SYSTEMS = "probe"
"""librdkafka's value for the system's certificate authorities."""

Properties = Mapping[str, str]


class TlsDetails(NamedTuple):
    """The encryption of a connection. `certificate_end` is the time when the broker's certificate expires, None if the certificate is not
    checked."""

    version: str
    cipher: str
    certificate_end: datetime | None


def details_of(connected: socket.socket) -> TlsDetails | None:
    """Returns the encryption of a connected socket, None without TLS."""
    if not isinstance(connected, ssl.SSLSocket):
        return None
    cipher, end = connected.cipher(), (connected.getpeercert() or {}).get("notAfter")
    ends_at = datetime.fromtimestamp(ssl.cert_time_to_seconds(end), UTC) if isinstance(end, str) else None
    return TlsDetails(connected.version() or "", cipher[0] if cipher else "", ends_at)


def tls_context(properties: Properties) -> ssl.SSLContext:
    _refuse_what_is_not_served(properties)
    context = _trusting(properties)
    _show_certificate(context, properties)
    _restrict(context, properties)
    is_checked = properties.get("enable.ssl.certificate.verification", "true").strip().lower() != "false"
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("", "none", "https"):
        raise ValueError(f"ssl.endpoint.identification.algorithm={algorithm} is neither https nor empty")
    if not is_checked or algorithm != "https":
        context.check_hostname = False
    if not is_checked:
        context.verify_mode = ssl.CERT_NONE
    return context


def has_certificate(properties: Properties) -> bool:
    return any(properties.get(name) for name in (*OWN_FILES, *OWN_TEXTS))


def stores_of(properties: Properties) -> tuple[str, str, str]:
    """Returns three PEM texts: the authorities, the client's certificates and the client's key. A text is empty if it is not set; without a
    key, the text of the certificates must contain the key. Raises ValueError."""
    _refuse_what_is_not_served(properties)
    chain = _pem(properties, OWN_TEXTS, OWN_FILES)[1]
    return _pem(properties, TRUST_TEXTS, TRUST_FILES)[1], chain, _pem(properties, KEY_TEXTS, KEY_FILES)[1] or chain


def _refuse_what_is_not_served(properties: Properties) -> None:
    for name in NOT_SERVED:
        if properties.get(name):
            raise ValueError(f"{name} is not served")
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        kind = properties.get(name, "PEM").strip().upper()
        if kind not in ("PEM", "PKCS12"):
            path = properties.get(name.replace(".type", ".location"), "store")
            raise ValueError(f"{name}={kind} is not served, PEM and PKCS12 are; convert it: {conversion(path)}")


def _trusting(properties: Properties) -> ssl.SSLContext:
    """Makes a context that trusts only the given authorities, or the system's if none are given."""
    name, trusted = _pem(properties, TRUST_TEXTS, TRUST_FILES)
    try:
        return ssl.create_default_context(cadata=trusted or None)
    except ssl.SSLError:
        raise ValueError(f"{name} has no certificate that can be read") from None


def _show_certificate(context: ssl.SSLContext, properties: Properties) -> None:
    name, chain = _pem(properties, OWN_TEXTS, OWN_FILES)
    key_name, key = _pem(properties, KEY_TEXTS, KEY_FILES)
    if not chain:
        if key:
            raise ValueError(f"{key_name} is a key without a certificate: set ssl.keystore.certificate.chain or ssl.certificate.location")
        return
    password = next((properties[found] for found in KEY_PASSWORDS if properties.get(found)), "")
    try:
        with _file_of(chain) as chain_path, _file_of(key or chain) as key_path:
            context.load_cert_chain(chain_path, key_path, password)
    except ssl.SSLError as error:
        raise ValueError(_certificate_fault(error, name, key_name or name, has_password=bool(password))) from None


def _certificate_fault(error: ssl.SSLError, name: str, key_name: str, *, has_password: bool) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the private key of {key_name} does not fit the certificate of {name}"
    hint = "is ssl.key.password right?" if has_password else "does it need ssl.key.password?"
    return f"the certificate of {name} with the private key of {key_name} cannot be used ({error.reason or error}); {hint}"


def _restrict(context: ssl.SSLContext, properties: Properties) -> None:
    names = [name.strip() for name in properties.get("ssl.enabled.protocols", "").split(",") if name.strip()]
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        raise ValueError(f"ssl.enabled.protocols names {unknown[0]}; there are {', '.join(VERSIONS)}")
    if names:
        context.minimum_version = min(VERSIONS[name] for name in names)
        context.maximum_version = max(VERSIONS[name] for name in names)
    suites = [name.strip() for name in properties.get("ssl.cipher.suites", "").replace(",", ":").split(":") if name.strip()]
    ciphers = tls12_ciphers(suites)
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise ValueError("ssl.cipher.suites has no cipher that OpenSSL knows; the names are IANA's or OpenSSL's") from None
    elif suites:
        if names and "TLSv1.3" not in names:
            raise ValueError("ssl.cipher.suites has suites of TLS 1.3 alone, which ssl.enabled.protocols leaves out")
        context.minimum_version = ssl.TLSVersion.TLSv1_3


# PEM


def _pem(properties: Properties, texts: tuple[str, ...], files: tuple[str, ...]) -> tuple[str, str]:
    """Returns the name of the first property that is set, and its PEM text. Both are empty if no property is set."""
    for name in texts:
        if properties.get(name, "").strip():
            if BEGIN not in properties[name].encode():
                raise ValueError(f"{name} is no PEM text")
            text = properties[name].encode("ascii", "replace").decode()  # only comments can have other characters than ASCII
            return name, text.replace("\\n", "\n")  # librdkafka accepts PEM in one line, with \n
    for name in files:
        if properties.get(name, "").strip() and not (name == "ssl.ca.location" and properties[name] == _SYSTEMS):
            return name, _read(name, properties[name], properties.get(STORE_PASSWORDS.get(name, "")))
    return "", ""


def _read(name: str, path: str, password: str | None) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ValueError(f"cannot read a TLS file: {name}={path}: {(error.strerror or str(error)).lower()}") from None
    try:
        return pem_of(data, path, password)
    except KeyStoreError as error:
        raise ValueError(f"{name}={path}: {error}") from None


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """Yields the path of a file with the text for OpenSSL: in memory if the system supports it, else a temporary file that only this user
    can read.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla-tls")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as named:
        named.write(text)
        named.flush()
        yield named.name
