"""The TLS contexts of a listener and of connections to the same listener of other brokers: PEM files or inline PEM, as Kafka's `ssl.*`
settings name them. What is wrong with them is one line.

The certificates that clients are checked against are those of the truststore and no others. A key in the settings is handed to OpenSSL by
a file in memory where the system has those, and else by a file that only this user can read and that is gone at once.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from ottla.base.ports import AddressError
from ottla.base.settings.security import TlsOptions
from ottla.security.distinguished_name import CertificateError, valid_until

JKS_MAGIC = b"\xfe\xed\xfe\xed"
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def server_context(options: TlsOptions, now: datetime | None = None) -> ssl.SSLContext:
    """Raises `AddressError` with one line."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, options, now)
    context.verify_mode = CLIENT_AUTH[options.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, options)
    return context


def broker_context(options: TlsOptions, now: datetime | None = None) -> ssl.SSLContext:
    """For connections to the same listener of other brokers, which are shown this broker's certificate. Raises `AddressError` with one
    line."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, options, now)
    context.check_hostname = options.checks_host
    _trust(context, options)
    return context


def _context(protocol: int, options: TlsOptions, now: datetime | None) -> ssl.SSLContext:
    where = f"listener {options.listener}"
    context = ssl.SSLContext(protocol)
    context.minimum_version = min(VERSIONS[name] for name in options.protocols)
    context.maximum_version = max(VERSIONS[name] for name in options.protocols)
    chain = options.certificate_chain or _read(options.keystore, "ssl.keystore.location", where)
    _check_ends(chain, where, now or datetime.now(UTC))
    try:
        if options.ciphers:
            context.set_ciphers(":".join(options.ciphers))
        with _file(chain) as certificate, _file(options.key or chain) as key:
            context.load_cert_chain(certificate, key, options.key_password or "")
    except ssl.SSLError as error:
        raise AddressError(f"{where}: {_reason(error)}") from None
    return context


def _trust(context: ssl.SSLContext, options: TlsOptions) -> None:
    where = f"listener {options.listener}"
    try:
        context.load_verify_locations(cadata=options.trusted or _read(options.truststore, "ssl.truststore.location", where))
    except ssl.SSLError as error:
        raise AddressError(f"{where}: {_reason(error)}") from None


def _reason(error: ssl.SSLError) -> str:
    known = {
        "KEY_VALUES_MISMATCH": "the private key does not fit the certificate (ssl.keystore.*)",
        "NO_CIPHER_MATCH": "ssl.cipher.suites names no cipher that OpenSSL has",
    }
    reason = getattr(error, "reason", None) or str(error)
    if "No cipher" in reason:
        reason = "NO_CIPHER_MATCH"
    return known.get(reason, f"OpenSSL cannot use what ssl.keystore.* and ssl.truststore.* name: {reason}")


def _read(path: str | None, setting: str, where: str) -> str:
    if not path:
        raise AddressError(f"{where}: TLS needs {setting}, a PEM file")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise AddressError(f"{where}: cannot read {setting}={path}: {error.strerror}") from None
    if data.startswith(JKS_MAGIC):
        raise AddressError(
            f"{where}: {setting}={path} is a JKS file; convert it: keytool -importkeystore -srckeystore {path} -destkeystore store.p12 "
            "-deststoretype PKCS12 && openssl pkcs12 -in store.p12 -out store.pem"
        )
    if b"-----BEGIN " not in data:
        raise AddressError(f"{where}: {setting}={path} is not PEM; of PKCS#12: openssl pkcs12 -in {path} -out store.pem")
    return data.decode("ascii", "replace")


def _check_ends(chain: str, where: str, now: datetime) -> None:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    first = chain.find(begin)
    if first < 0 or end not in chain:
        raise AddressError(f"{where}: ssl.keystore.* holds no certificate")
    try:
        until = valid_until(ssl.PEM_cert_to_DER_cert(chain[first : chain.index(end, first) + len(end)]))
    except (CertificateError, ValueError) as error:
        raise AddressError(f"{where}: the certificate of ssl.keystore.* cannot be read: {error}") from None
    if until <= now:
        raise AddressError(f"{where}: the certificate of ssl.keystore.* has expired on {until:%Y-%m-%d %H:%M} UTC")


@contextmanager
def _file(text: str) -> Iterator[str]:
    """A path under which OpenSSL finds the text."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla-tls")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield file.name
