"""Reads key stores as PEM text. PEM and PKCS#12 are recognised by their content, not by the file name. JKS and JCEKS are refused with the
command that converts them.

PKCS#12 needs the package cryptography (extra `ottla[security]`), because Python does not expose OpenSSL's functions for it.
"""

from __future__ import annotations

PEM_BEGIN = b"-----BEGIN "
JAVA_KINDS = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
"""The formats of Java that are recognised, by the first four bytes of a file."""
DER_SEQUENCE = b"\x30"


class KeyStoreError(Exception):
    """A store cannot be used. The message is one line; the caller adds the setting and the store's path."""


def pem_of(data: bytes, path: str, password: str | None) -> str:
    """Returns PEM as text, and PKCS#12 as PEM: the unencrypted key if there is one, then the certificates. Bytes of PEM outside of ASCII,
    which only comments can have, become `?`. `path` is used in the commands that errors show. Raises `KeyStoreError`."""
    if (kind := JAVA_KINDS.get(data[:4])) is not None:
        raise KeyStoreError(f"a {kind} file; convert it: {conversion(path)}")
    if PEM_BEGIN in data:
        return data.decode("ascii", "replace").replace("\ufffd", "?")
    if not data.startswith(DER_SEQUENCE):
        raise KeyStoreError("neither PEM nor PKCS#12")
    return _pem_of_pkcs12(data, path, password)


def conversion(path: str) -> str:
    """Returns the command that converts a JKS or JCEKS file to PKCS#12. keytool recognises both."""
    return f"keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12"


def _pem_of_pkcs12(data: bytes, path: str, password: str | None) -> str:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ModuleNotFoundError:
        raise KeyStoreError(
            f"PKCS#12, which needs the package cryptography (pip install cryptography), or convert it: openssl pkcs12 -in {path} "
            "-out store.pem"
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
        certificates = [one.certificate for one in (store.cert, *store.additional_certs) if one is not None]
        parts = [certificate.public_bytes(Encoding.PEM) for certificate in certificates]
        if store.key is not None:
            parts.insert(0, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    except ValueError as error:
        hint = "the password is wrong, or it is no PKCS#12" if "password" in str(error).lower() else f"cannot be read as PKCS#12: {error}"
        raise KeyStoreError(hint.splitlines()[0]) from None
    return b"".join(parts).decode("ascii")
