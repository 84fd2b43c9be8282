"""Makes the TLS contexts of a listener: for accepted connections, and for connecting to the same listener of another broker. The input is
PEM or PKCS#12 files, or inline PEM, as in Kafka's `ssl.*` settings. Every mistake in them raises an error of one line.

Certificates of clients and brokers are checked only against the truststore. OpenSSL reads certificates and private key from a file in
memory if the system supports that, otherwise from a temporary file that only this user can read.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from ottla.base.counted import counted
from ottla.base.ports import AddressError
from ottla.base.settings.security import TlsOptions
from ottla.security.cipher_names import tls12_ciphers
from ottla.security.distinguished_name import CertificateError, valid_until
from ottla.security.key_stores import KeyStoreError, pem_of

CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
ENDS_SOON = timedelta(days=30)
HANDSHAKE_STEPS_MAX = 10
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def server_context(options: TlsOptions, now: datetime | None = None) -> ssl.SSLContext:
    """Makes the context for accepted connections. Raises `AddressError` with one line, also for an expired certificate."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, options, now)
    context.verify_mode = CLIENT_AUTH[options.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, options)
    return context


def broker_context(options: TlsOptions, now: datetime | None = None) -> ssl.SSLContext:
    """Makes the context for connecting to other brokers; it presents this broker's certificate. Raises `AddressError` with one line, also
    for an expired certificate."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, options, now)
    context.check_hostname = options.checks_host
    _trust(context, options)
    return context


def certificate_end(options: TlsOptions) -> datetime:
    """Returns the end of validity of the listener's certificate. Raises `AddressError` with one line."""
    return _end_of(_chain(options), f"listener {options.listener}")


def end_warning(until: datetime, now: datetime) -> str | None:
    """Returns a warning if the certificate has expired or expires within `ENDS_SOON`, else None."""
    left, when = until - now, f"{until:%Y-%m-%d %H:%M} UTC"
    if left > ENDS_SOON:
        return None
    state = f"ends in {counted(left.days, 'day')}, on" if left > timedelta(0) else "has expired on"
    return f"the certificate of ssl.keystore.* {state} {when}"


def check_own_handshake(listener: str, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Does a handshake in memory between two brokers with these settings. Raises `AddressError` if it fails: the truststore does not
    contain the authority of their own certificate, or they have no version or cipher in common. Host names are not checked."""
    checks_host, client.check_hostname = client.check_hostname, False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    try:
        for _ in range(HANDSHAKE_STEPS_MAX):
            for end in list(ends):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    ends.remove(end)
            if not ends:
                return
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or _reason(error)
        text = f"listener {listener}: other brokers could not connect with ssl.keystore.* and ssl.truststore.*: {reason}"
        raise AddressError(text) from None
    finally:
        client.check_hostname = checks_host
    raise AssertionError("a handshake in memory neither succeeds nor fails")


def _context(protocol: int, options: TlsOptions, now: datetime | None) -> ssl.SSLContext:
    where = f"listener {options.listener}"
    context = ssl.SSLContext(protocol)
    context.minimum_version = min(VERSIONS[name] for name in options.protocols)
    context.maximum_version = max(VERSIONS[name] for name in options.protocols)
    context.options |= ssl.OP_NO_RENEGOTIATION
    chain = _chain(options)
    if (until := _end_of(chain, where)) <= (now or datetime.now(UTC)):
        raise AddressError(f"{where}: the certificate of ssl.keystore.* has expired on {until:%Y-%m-%d %H:%M} UTC")
    try:
        if ciphers := tls12_ciphers(options.ciphers):
            context.set_ciphers(ciphers)
        elif options.ciphers:
            if "TLSv1.3" not in options.protocols:
                raise AddressError(f"{where}: ssl.cipher.suites has suites of TLS 1.3 alone, which ssl.enabled.protocols leaves out")
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        with _file(chain) as certificate, _file(options.key or chain) as key:
            context.load_cert_chain(certificate, key, options.key_password or "")
    except ssl.SSLError as error:
        if "ENCRYPTED" in (options.key or chain) and getattr(error, "reason", None) != "KEY_VALUES_MISMATCH":
            raise AddressError(f"{where}: the password of the private key is wrong or missing (ssl.key.password)") from None
        raise AddressError(f"{where}: {_reason(error)}") from None
    return context


def _trust(context: ssl.SSLContext, options: TlsOptions) -> None:
    where = f"listener {options.listener}"
    try:
        trusted = options.trusted or _read(options.truststore, "ssl.truststore.location", where, options.truststore_password)
        context.load_verify_locations(cadata=trusted.encode("ascii", "replace").decode())  # only comments can have other than ASCII
    except ssl.SSLError as error:
        raise AddressError(f"{where}: {_reason(error)}") from None


def _reason(error: ssl.SSLError) -> str:
    known = {
        "KEY_VALUES_MISMATCH": "the private key does not fit the certificate (ssl.keystore.*)",
        "NO_CIPHER_MATCH": "ssl.cipher.suites names no cipher that OpenSSL has",
    }
    reason = getattr(error, "reason", None) or str(error).partition(" (_ssl")[0]
    if "No cipher" in reason:
        reason = "NO_CIPHER_MATCH"
    return known.get(reason, f"OpenSSL cannot use what ssl.keystore.* and ssl.truststore.* name: {reason}")


def _read(path: str | None, setting: str, where: str, password: str | None) -> str:
    if not path:
        raise AddressError(f"{where}: TLS needs {setting}, a file of PEM or PKCS#12")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise AddressError(f"{where}: cannot read {setting}={path}: {error.strerror}") from None
    try:
        return pem_of(data, path, password)
    except KeyStoreError as error:
        raise AddressError(f"{where}: {setting}={path}: {error}") from None


def _chain(options: TlsOptions) -> str:
    """Returns the certificates as PEM, with the private key unless `options.key` has it."""
    where = f"listener {options.listener}"
    return options.certificate_chain or _read(options.keystore, "ssl.keystore.location", where, options.keystore_password)


def _end_of(chain: str, where: str) -> datetime:
    """Returns the end of validity of the first certificate."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    first = chain.find(begin)
    if first < 0 or end not in chain:
        raise AddressError(f"{where}: ssl.keystore.* holds no certificate")
    try:
        return valid_until(ssl.PEM_cert_to_DER_cert(chain[first : chain.index(end, first) + len(end)]))
    except (CertificateError, ValueError) as error:
        raise AddressError(f"{where}: the certificate of ssl.keystore.* cannot be read: {error}") from None


@contextmanager
def _file(text: str) -> Iterator[str]:
    """Provides the text under a path that OpenSSL can open."""
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
