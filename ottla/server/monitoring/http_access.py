"""Access to the HTTP port, and its certificate: password or bearer token, names in the Host header, TLS.

Files are read when the port is opened and again at a reload (SIGHUP), so a token or a certificate is renewed without a restart. If a new
file cannot be used, the old one stays in force. The time of a comparison does not show which bytes of a password or token differ.
"""

from __future__ import annotations

import ssl
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from hmac import compare_digest
from ipaddress import ip_address

from ottla.base.ports import AddressError

TOKEN_BYTES_MIN, TOKEN_BYTES_MAX = 16, 4096


class HttpAccess:
    """The rules of one port. Raises `AddressError` with one line if a file cannot be used."""

    def __init__(
        self,
        *,
        credentials: str = "",
        token_file: str = "",
        certificate_file: str = "",
        key_file: str = "",
        hosts: Sequence[str] = (),
        has_open_probes: bool = True,
    ) -> None:
        self._credentials = credentials.encode()
        self._token_file = token_file
        self._files = (certificate_file, key_file or certificate_file)
        self._hosts = tuple(host.lower() for host in hosts)
        self.has_open_probes = has_open_probes
        self.is_open_to_all = not credentials and not token_file
        self.is_encrypted = bool(certificate_file)
        if key_file and not certificate_file:
            raise AddressError("ottla.metrics.ssl.key is set without ottla.metrics.ssl.certificate")
        self._token = b""
        self.tls: ssl.SSLContext | None = None
        self.read_files()

    def read_files(self) -> None:
        """Reads token and certificate again. An invalid file changes nothing. Raises `AddressError`."""
        token = _read_token(self._token_file) if self._token_file else b""
        self.tls = _context(*self._files) if self.is_encrypted else None
        self._token = token

    def is_trusted(self, authorization: str) -> bool:
        """Whether the value of an Authorization header is valid, or none is needed."""
        if self.is_open_to_all:
            return True
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return bool(self._token) and compare_digest(given.strip().encode("latin-1", "replace"), self._token)
        try:
            decoded = b64decode(given, validate=True) if scheme.lower() == "basic" else b""
        except (Base64Error, ValueError):
            return False
        return bool(self._credentials) and compare_digest(decoded, self._credentials)

    def challenge(self) -> str:
        """Returns the header lines that ask for a password or token."""
        basic = 'WWW-Authenticate: Basic realm="ottla", charset="UTF-8"\r\n' if self._credentials else ""
        return basic + ('WWW-Authenticate: Bearer realm="ottla"\r\n' if self._token else "")

    def is_host(self, name: str, listen_host: str) -> bool:
        """Whether the Host header may have this name. A foreign name is refused on a loopback address and if `ottla.metrics.hosts` is set,
        because an attacker can make the name resolve to this address (DNS rebinding)."""
        if name in self._hosts:
            return True
        if is_loopback(listen_host):
            return is_loopback(name)
        return not self._hosts or is_address(name)


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return ip_address(host).is_loopback if is_address(host) else host == "localhost"


def _read_token(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            token = file.read(TOKEN_BYTES_MAX + 1).strip()
    except OSError as error:
        raise AddressError(f"ottla.metrics.token.file={path}: {error.strerror or error}") from None
    if not TOKEN_BYTES_MIN <= len(token) <= TOKEN_BYTES_MAX or b"\n" in token:
        raise AddressError(f"ottla.metrics.token.file={path}: a token is one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes")
    return token


def _context(certificate_file: str, key_file: str) -> ssl.SSLContext:
    """Makes a new context each time, so that the old one stays whole if the files cannot be loaded."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate_file, key_file, password=_no_password)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise AddressError(f"ottla.metrics.ssl.certificate={certificate_file} with the key in {key_file}: {reason}") from None
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise AddressError(f"ottla.metrics.ssl.certificate={certificate_file} with the key in {key_file}: {text}") from None
    return context


def _no_password() -> str:
    """Called for an encrypted key, instead of a question on the terminal."""
    raise ValueError("the key is encrypted; write it without a password")
