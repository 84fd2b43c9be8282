"""The client's side of the SASL mechanism DIGEST-MD5 (RFC 2831) for ZooKeeper: `auth` only, without integrity or encryption.

It is weak by today's standards, but it is the only mechanism of ZooKeeper besides Kerberos, so the connection should use TLS. The password
is never sent, and the server proves that it knows it too. Options that ZooKeeper does not use are not supported.
"""

from __future__ import annotations

import hashlib
import re
from hmac import compare_digest

SERVICE, HOST = "zookeeper", "zk-sasl-md5"
"""The names that every ZooKeeper server uses, whatever its host."""
CHALLENGE_BYTES_MAX = 2048
_COUNT = "00000001"
_PAIR = re.compile(r'\s*([A-Za-z-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s",]+)\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")


class DigestLogin:
    """One login. `cnonce` is fresh randomness as printable text."""

    def __init__(self, username: str, password: str, cnonce: str) -> None:
        self._username = username
        self._password = password
        self._cnonce = cnonce
        self._proof = b""
        self.is_complete = False

    def answer(self, challenge: bytes) -> bytes:
        """Returns the answer to the server's token: the response to the first one, and an empty text to the second one, which proves that
        the server knows the password. Raises `ValueError` if the server breaks the protocol or does not know the password."""
        found = _pairs(challenge)
        if self._proof:
            if not compare_digest(found.get("rspauth", "").encode(), self._proof):
                raise ValueError("it does not know the password")
            self.is_complete = True
            return b""
        if found.get("algorithm") != "md5-sess" or not found.get("nonce") or "auth" not in found.get("qop", "auth").split(","):
            raise ValueError("it asks for something else than DIGEST-MD5")
        return self._response(found.get("realm", HOST), found["nonce"], has_utf8=found.get("charset") == "utf-8")

    def _response(self, realm: str, nonce: str, *, has_utf8: bool) -> bytes:
        uri = f"{SERVICE}/{HOST}"
        identity = b":".join(_hashed_form(part) for part in (self._username, realm, self._password))
        session = _md5(_md5(identity).digest() + f":{nonce}:{self._cnonce}".encode()).hexdigest()

        def proof(what: str) -> str:
            text = f"{session}:{nonce}:{_COUNT}:{self._cnonce}:auth:{_md5(f'{what}:{uri}'.encode()).hexdigest()}"
            return _md5(text.encode()).hexdigest()

        self._proof = proof("").encode()
        quoted = {"username": self._username, "realm": realm, "nonce": nonce, "cnonce": self._cnonce, "digest-uri": uri}
        parts = ["charset=utf-8"] if has_utf8 else []
        parts += [f"{name}={_quoted(value)}" for name, value in quoted.items()]
        parts += [f"nc={_COUNT}", "qop=auth", f"response={proof('AUTHENTICATE')}"]
        return ",".join(parts).encode()


def _pairs(challenge: bytes) -> dict[str, str]:
    if not 0 < len(challenge) <= CHALLENGE_BYTES_MAX:
        raise ValueError(f"a challenge of {len(challenge)} bytes")
    text = challenge.decode()
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ValueError("a challenge that cannot be read")
        found[pair[1].lower()] = _ESCAPE.sub(r"\1", pair[2][1:-1]) if pair[2].startswith('"') else pair[2]
        at = pair.end()
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _hashed_form(text: str) -> bytes:
    """Encodes as ISO 8859-1 if possible, else as UTF-8 (RFC 2831, 2.1.2.1)."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)
