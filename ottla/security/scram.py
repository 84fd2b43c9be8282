"""The client's side of SCRAM (RFC 5802, RFC 7677), without a socket: two messages of the client, and a check that the server knows the
password too."""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 1_000_000
"""Maximum number of iterations that the client accepts. More would be an attack on the client's CPU."""

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The numbers of the mechanisms in Kafka's messages about credentials."""


class ScramClient:
    """One authentication. `nonce` is fresh randomness. Methods raise `ValueError` if the server breaks the protocol. With `is_by_token` the
    name is the id of a delegation token and the password its HMAC (KIP-48)."""

    def __init__(self, username: str, password: str, mechanism: str, nonce: str, *, is_by_token: bool = False) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}{',tokenauth=true' if is_by_token else ''}"
        self._server_signature = b""
        self._hashed: tuple[bytes, bytes] | None = None
        """The server's first message, and the password hashed with its salt and iterations."""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def hash_ahead(self, server_first: bytes) -> None:
        """Does the slow part of `final` in advance. It ignores an invalid message, which `final` then refuses."""
        with suppress(ValueError):
            self._hash_password(server_first)

    def final(self, server_first: bytes) -> bytes:
        """Returns the client's proof, computed with the server's salt and number of iterations."""
        salted = self._hash_password(server_first)
        without_proof = f"c=biws,r={attributes(server_first)['r']}"
        signed = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Raises `ValueError` unless the server has proved that it knows the password too."""
        fields = attributes(server_final)
        if "e" in fields:
            raise ValueError(f"the server refused: {fields['e']}")
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._server_signature):
            raise ValueError("the server could not prove that it knows the password")

    def _hash_password(self, server_first: bytes) -> bytes:
        """Returns the hashed password. Keeps the result for the same message, so the iterations are done once."""
        if self._hashed is None or self._hashed[0] != server_first:
            fields = attributes(server_first)
            nonce, rounds = fields.get("r", ""), fields.get("i", "")
            if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not rounds.isdecimal():
                raise ValueError("the server's first SCRAM message makes no sense")
            if not ITERATIONS_MIN <= int(rounds) <= ITERATIONS_MAX:
                raise ValueError(f"the server asks for {rounds} SCRAM rounds")
            salt = base64.b64decode(fields.get("s", ""))
            self._hashed = server_first, hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(rounds))
        return self._hashed[1]

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()


def attributes(message: bytes) -> dict[str, str]:
    """Returns the attributes of a SCRAM message by their letters."""
    return {part[:1]: part[2:] for part in message.decode("utf-8", "replace").split(",") if part[1:2] == "="}
