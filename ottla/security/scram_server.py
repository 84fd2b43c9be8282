"""The server's side of SCRAM (RFC 5802, RFC 7677): an exchange of two steps that proves a password without sending it.

The stored `ScramCredential` reveals neither the password nor a client's proof. An unknown user gets a decoy (`credentials.py`), and fails
at the same step with the same message as after a wrong password, so that names cannot be probed. A client that requires channel
binding is refused, because it is not supported. With the extension `tokenauth=true` the name is the id of a delegation token, and the
client becomes its owner (KIP-48; the credentials of tokens are made in `delegation_token_logins.py`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from ottla.security.authentication import StepResult
from ottla.security.scram import HASHES, ITERATIONS_MIN, attributes

SALT_BYTES = 16
MESSAGE_BYTES_MAX = 4 << 10
"""Maximum size of a client's message. A connection keeps the first message until the login ends, and any client may send one. 4 KiB:
the longest name has 1,024 bytes, or 3,072 if every character is escaped."""


class ScramCredential(NamedTuple):
    """The stored form of a user's password for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationTokenLogin(NamedTuple):
    """The data for checking a login by delegation token."""

    credential: ScramCredential
    owner: str | None
    """The owner's principal; None for a token that allows no login."""
    ends_ms: Callable[[], int | None]
    """Returns the current end of the token (wall time); None if the token was deleted."""


FindToken = Callable[[str, str, Callable[[DelegationTokenLogin], object]], object]
"""Arguments: mechanism, token id, callback. Passes the data for the login to the callback, now or later."""


def make_credential(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Makes a credential. It hashes for many iterations, so it is called in a thread. Raises `ValueError` for too few iterations."""
    if iterations < ITERATIONS_MIN:
        raise ValueError(f"{iterations} rounds are too few, {mechanism} needs {ITERATIONS_MIN}")
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name), iterations)


class ScramServer:
    """One authentication (`authentication.Exchange`). `nonce` is fresh randomness. `decoy` returns the credential for an unknown user. It
    is also used for every login by token if `find_token` is None."""

    def __init__(
        self, mechanism: str, find: Callable[[str], ScramCredential | None], decoy: Callable[[str], ScramCredential], nonce: str,
        find_token: FindToken | None = None,
    ) -> None:  # fmt: skip
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._decoy = decoy
        self._nonce = nonce
        self._find_token = find_token
        self._token: DelegationTokenLogin | None = None
        self._username = ""
        self._credential: ScramCredential | None = None
        self._binding = b""
        self._signed = ""
        """The messages so far, which both sides sign."""

    def step(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        try:
            if len(token) > MESSAGE_BYTES_MAX:
                raise ValueError("the message is too long for SCRAM")
            if self._credential is None:
                self._first(token, done)
            else:
                done(self._final(token, self._credential))
        except (ValueError, binascii.Error):
            done(self._refused())

    def _first(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        """Processes the client's name and nonce; answers with the salt and the number of iterations."""
        binding, authorized_as, bare = token.decode("utf-8").split(",", 2)
        if binding not in ("n", "y"):
            raise ValueError("channel binding is not offered")
        _check_order(bare.split(","), ("n=", "r="))
        said = attributes(bare.encode())
        self._username, nonce = _unescaped(said.get("n", "")), said.get("r", "")
        if not self._username or not nonce or (authorized_as and _unescaped(authorized_as.removeprefix("a=")) != self._username):
            raise ValueError("no name, no nonce, or two different names")
        self._nonce = nonce + self._nonce
        self._binding = f"{binding},{authorized_as},".encode()
        if "tokenauth=true" not in bare.lower().split(",")[2:]:
            done(self._challenge(bare, self._stored_or_decoy(self._username)))
        elif self._find_token is None:
            done(self._challenge(bare, self._decoy(self._username)))
        else:
            self._find_token(self._mechanism, self._username, lambda login: done(self._token_challenge(bare, login)))

    def _stored_or_decoy(self, name: str) -> ScramCredential:
        """Returns the user's credential, else the decoy. Does the same work for known and unknown names, so that the response time does not
        reveal which names exist."""
        found = self._find(name)
        try:
            decoy = self._decoy(name)
        except ValueError:
            if found is None:
                raise
            return found
        return found or decoy

    def _token_challenge(self, bare: str, login: DelegationTokenLogin) -> StepResult:
        self._token = login
        return self._challenge(bare, login.credential)

    def _challenge(self, bare: str, credential: ScramCredential) -> StepResult:
        self._credential = credential
        answer = f"r={self._nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._signed = f"{bare},{answer}"
        return StepResult(token=answer.encode())

    def _final(self, token: bytes, credential: ScramCredential) -> StepResult:
        """Checks the client's proof; answers with the server's proof."""
        said = attributes(token)
        without_proof, _, _ = token.decode("utf-8").rpartition(",p=")
        _check_order(without_proof.split(","), ("c=", "r="))
        proof = base64.b64decode(said.get("p", ""), validate=True)
        is_right_exchange = said.get("r") == self._nonce and base64.b64decode(said.get("c", ""), validate=True) == self._binding
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if not is_right_exchange or len(proof) != len(signature):
            return self._refused()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            return self._refused()
        verifier = b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, self._hash))
        if self._token is not None:
            return self._by_token(self._token, verifier)
        name, find = self._username, self._find
        if find(name) is None:
            return self._refused()
        return StepResult(token=verifier, principal=f"User:{name}", is_valid=lambda: find(name) is not None)

    def _by_token(self, login: DelegationTokenLogin, verifier: bytes) -> StepResult:
        ends_ms = login.ends_ms()
        if login.owner is None or ends_ms is None:
            return self._refused()

        def is_valid() -> bool:
            """Whether the token exists and its end was not moved before the end of this session."""
            now_ends_ms = login.ends_ms()
            return now_ends_ms is not None and now_ends_ms >= ends_ms

        return StepResult(token=verifier, principal=login.owner, is_valid=is_valid, ends_ms=ends_ms, is_by_token=True)

    def _refused(self) -> StepResult:
        reason = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {self._mechanism}"
        return StepResult(error=reason, claimed=self._username)


def _check_order(parts: list[str], expected: tuple[str, str]) -> None:
    """Raises `ValueError` if a message does not begin with these attributes, has one of them twice, has a proof (`p`) or requires an
    extension (`m`)."""
    named = [part[:2] for part in parts]
    if tuple(named[:2]) != expected or any(name in named[2:] for name in (*expected, "m=", "p=")):
        raise ValueError("attributes in another order, twice, or an extension that is not known")


def _unescaped(name: str) -> str:
    """Decodes a name in a SCRAM message: `=2C` is a comma, `=3D` an equals sign. Raises `ValueError` for any other `=`."""
    plain = name.replace("=2C", ",")
    if "=" in plain.replace("=3D", ""):
        raise ValueError("a name that is not escaped")
    return plain.replace("=3D", "=")
