"""Logins by delegation token: SCRAM with the token's id as the name and its HMAC as the password (KIP-48).

The HMAC is computed from the id with `delegation.token.secret.key`, so it is not stored. The SCRAM credential takes many iterations. It is
computed in a thread at the token's first login, and the newest credentials are cached. For an unknown token the same computation gives a
decoy, so the login is refused at the same step, with the same message, as after a wrong password.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from functools import partial

from ottla.base.bounded_cache import remembered
from ottla.base.delegation_token import DelegationToken
from ottla.base.ports import Threads
from ottla.security.scram import ITERATIONS_MIN
from ottla.security.scram_server import SALT_BYTES, DelegationTokenLogin, ScramCredential, make_credential

CREDENTIALS_MAX = 1_000
"""Maximum number of cached credentials; computing one takes about a millisecond."""
HMACS_BYTES_MAX = 8 << 20
"""Memory for cached HMACs. 8 MiB: enough for the maximum number of tokens (`cluster/delegation_tokens.py`)."""


@remembered(HMACS_BYTES_MAX)
def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    """Returns the HMAC of a token, as Kafka computes it."""
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def token_password(token_mac: bytes) -> str:
    """Returns a token's HMAC in the form that clients use as password."""
    return base64.b64encode(token_mac).decode()


class TokenLogins:
    """Finds the data for a login by token (`scram_server.FindToken`)."""

    def __init__(self, secret_key: bytes, find: Callable[[str], DelegationToken | None], threads: Threads) -> None:
        """`find` returns a token that allows a login now."""
        self._secret_key = secret_key
        self._find = find
        self._threads = threads
        self._kept: dict[tuple[str, str], ScramCredential] = {}

    def find(self, mechanism: str, token_id: str, done: Callable[[DelegationTokenLogin], object]) -> None:
        credential = self._kept.get((mechanism, token_id))
        if credential is not None:
            done(self._login(credential, token_id))
            return

        def made(credential: ScramCredential) -> None:
            if self._find(token_id) is not None:
                if len(self._kept) >= CREDENTIALS_MAX:
                    del self._kept[next(iter(self._kept))]
                self._kept[mechanism, token_id] = credential
            done(self._login(credential, token_id))

        self._threads.run(partial(_credential, self._secret_key, mechanism, token_id), made)

    def _login(self, credential: ScramCredential, token_id: str) -> DelegationTokenLogin:
        token = self._find(token_id)
        return DelegationTokenLogin(credential, None if token is None else token.owner, lambda: self._ends_ms(token_id))

    def _ends_ms(self, token_id: str) -> int | None:
        token = self._find(token_id)
        return None if token is None else min(token.expiry_ms, token.max_ms)


def _credential(secret_key: bytes, mechanism: str, token_id: str) -> ScramCredential:
    salt = hmac.digest(secret_key, f"salt {mechanism} {token_id}".encode(), "sha512")[:SALT_BYTES]
    return make_credential(mechanism, token_password(token_hmac(secret_key, token_id)), salt, ITERATIONS_MIN)
