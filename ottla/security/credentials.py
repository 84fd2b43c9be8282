"""SCRAM credentials in Kafka's stored text, and decoys for unknown users.

    SCRAM-SHA-256 = salt=...,stored_key=...,server_key=...,iterations=8192 (base64)

Neither the password nor a client's proof can be computed from it. An unreadable credential is treated like an unknown user.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping

from ottla.security.scram import HASHES, ITERATIONS_MIN
from ottla.security.scram_server import SALT_BYTES, ScramCredential

ITERATIONS_STORED_MAX = 16384
"""Maximum iterations of a new credential, as in Kafka."""

Stored = Mapping[str, Mapping[str, str]]
"""The stored credentials: user, mechanism, text."""


def credential_text(credential: ScramCredential) -> str:
    fields = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
    encoded = [f"{name}={base64.b64encode(value).decode()}" for name, value in fields.items()]
    return ",".join([*encoded, f"iterations={credential.iterations}"])


def read_credential(text: str) -> ScramCredential | None:
    """Parses a credential. Returns None for any other text, an empty salt or too few iterations."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored_key, server_key = (base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key"))
        iterations = int(fields["iterations"])
    except (KeyError, ValueError, binascii.Error):
        return None
    return ScramCredential(salt, stored_key, server_key, iterations) if salt and iterations >= ITERATIONS_MIN else None


def credential_of(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """Makes a credential from the salted password (PBKDF2), which a client sends when it sets a password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name), iterations)


class ScramUsers:
    """Finds the credentials of one mechanism. `secret` returns the cluster's secret, None while it is unknown."""

    def __init__(self, mechanism: str, stored: Callable[[], Stored], secret: Callable[[], bytes | None]) -> None:
        self.mechanism = mechanism
        self._stored = stored
        self._secret = secret

    def find(self, user: str) -> ScramCredential | None:
        text = self._stored().get(user, {}).get(self.mechanism)
        found = read_credential(_UNKNOWN_TEXT if text is None else text)  # an unknown name takes the same work
        return None if text is None else found

    def decoy(self, user: str) -> ScramCredential:
        """Returns the decoy of an unknown user. Its salt size and number of iterations are the most common ones among some stored
        credentials. While they do not change, a name always gets the same decoy. No proof matches it. Raises `ValueError` while the
        cluster's secret is unknown."""
        secret = self._secret()
        if secret is None:
            raise ValueError("the cluster's secret is not known yet")
        salt_bytes, iterations = self._commonest_form()
        salt = hmac.digest(secret, f"salt {self.mechanism} {user}".encode(), "sha512")[:salt_bytes]
        key = hmac.digest(secret, f"key {self.mechanism} {user}".encode(), HASHES[self.mechanism])
        return ScramCredential(salt, key, key, iterations)

    def _commonest_form(self) -> tuple[int, int]:
        forms: Counter[tuple[int, int]] = Counter()
        for number, texts in enumerate(self._stored().values()):
            if number >= FORMS_LOOKED_AT:
                break
            found = read_credential(texts.get(self.mechanism, ""))
            if found is not None:
                forms[len(found.salt), found.iterations] += 1
        return max(sorted(forms), key=lambda form: forms[form], default=(SALT_BYTES, ITERATIONS_MIN))


FORMS_LOOKED_AT = 20
"""Number of users whose salt size and iterations are examined for a decoy. A login must not visit all users."""
_UNKNOWN_TEXT = credential_text(ScramCredential(bytes(SALT_BYTES), bytes(32), bytes(32), ITERATIONS_MIN))
"""Parsed if no credential is stored, so that an unknown name takes the same time."""
