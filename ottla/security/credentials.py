"""SCRAM credentials as they are stored with a user, in Kafka's text, and what an unknown user is shown in their place.

    SCRAM-SHA-256 = salt=...,stored_key=...,server_key=...,iterations=8192        (base64)

Neither the password nor a client's proof can be made from it. A text that cannot be read counts as absent.
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
"""Most rounds that a credential may ask of clients, as in Kafka."""

Stored = Mapping[str, Mapping[str, str]]
"""The stored credentials: user, mechanism, text."""


def credential_text(credential: ScramCredential) -> str:
    fields = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
    encoded = [f"{name}={base64.b64encode(value).decode()}" for name, value in fields.items()]
    return ",".join([*encoded, f"iterations={credential.iterations}"])


def read_credential(text: str) -> ScramCredential | None:
    """None for a text that is no credential."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored_key, server_key = (base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key"))
        iterations = int(fields["iterations"])
    except (KeyError, ValueError, binascii.Error):
        return None
    return ScramCredential(salt, stored_key, server_key, iterations) if salt and iterations >= ITERATIONS_MIN else None


def credential_of(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The credential from what PBKDF2 made of the password, which a client that sets a password sends."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name), iterations)


class ScramUsers:
    """Finds the credentials of one mechanism. `secret`: the cluster's, None as long as it is not known."""

    def __init__(self, mechanism: str, stored: Callable[[], Stored], secret: Callable[[], bytes | None]) -> None:
        self.mechanism = mechanism
        self._stored = stored
        self._secret = secret

    def find(self, user: str) -> ScramCredential | None:
        text = self._stored().get(user, {}).get(self.mechanism)
        found = read_credential(_UNKNOWN_TEXT if text is None else text)  # the work is the same for a name that is not known
        return None if text is None else found

    def decoy(self, user: str) -> ScramCredential:
        """What an unknown user is shown: always the same, of the commonest form among the real ones, and no proof fits it."""
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
"""Users whose credentials a decoy is shaped after: a login must not look at all of them."""
_UNKNOWN_TEXT = credential_text(ScramCredential(bytes(SALT_BYTES), bytes(32), bytes(32), ITERATIONS_MIN))
"""Is read where no credential is stored."""
