"""The public keys of a token issuer (JWKS, RFC 7517), and the check of signatures. Needs PyJWT and cryptography.

Keys are read and signatures are checked in threads. A key set is read at the start, when a token arrives and the set is too old, and when a
token names an unknown key. For unknown keys the set is read at most once in `retry_backoff_max_ms` (in `refresh_ms`, if that is shorter),
because clients can invent key ids. Tokens with unknown keys wait together while the set is read. If reading fails, the previous set remains
valid, and the next token after a pause causes another attempt. The pause doubles with each failure, up to `retry_backoff_max_ms`.

Only algorithms with public keys are supported. A key is bound to the algorithms of its type, so a public key cannot be used as a shared
secret; `none` is not an algorithm. RSA keys of less than 2,048 bits are ignored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.ports import Clock, ReadDocument, Threads
from ottla.base.settings.oauthbearer import TokenOptions
from ottla.security.web_tokens import WebToken

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger("ottla.security")

KEYS_MAX = 100
"""Maximum number of keys read from a set."""
RSA_BITS_MIN = 2048
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",), "Ed25519": ("EdDSA",)}
_PUBLIC = ("kty", "n", "e", "crv", "x", "y")
"""The fields read from a key: no private part, even if present."""

NOT_READ = "the issuer's keys could not be read"
UNKNOWN = "the token is signed by an unknown key"
WRONG = "the token's signature is wrong"


class KeySet(NamedTuple):
    """Keys by id and algorithm, and by algorithm alone. The id of a key without id is empty."""

    by_id: Mapping[tuple[str, str], PyJWK]
    by_algorithm: Mapping[str, tuple[PyJWK, ...]]

    def find(self, token: WebToken) -> PyJWK | None:
        """Returns the key that a token names; for a token without key id, the only key of its algorithm. Returns None if there is no such
        key."""
        if token.key_id is not None:
            return self.by_id.get((token.key_id, token.algorithm))
        found = self.by_algorithm.get(token.algorithm, ())
        return found[0] if len(found) == 1 else None


def read_key_set(data: bytes) -> KeySet:
    """Parses a key set; slow, so it is called in a thread. Raises `ValueError` if it has no key for signatures."""
    try:
        entries = json.loads(data)["keys"]
    except (TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"no JWKS: {type(error).__name__}") from None
    by_id: dict[tuple[str, str], PyJWK] = {}
    by_algorithm: dict[str, tuple[PyJWK, ...]] = {}
    for entry in entries[:KEYS_MAX] if isinstance(entries, list) else ():
        for algorithm in _algorithms(entry) if isinstance(entry, dict) else ():
            key = _key(entry, algorithm)
            if key is not None:
                by_id.setdefault((str(entry.get("kid", "")), algorithm), key)
                by_algorithm[algorithm] = (*by_algorithm.get(algorithm, ()), key)
    if not by_id:
        raise ValueError("there is no public key for signatures in it")
    return KeySet(by_id, by_algorithm)


def is_signed_by(token: WebToken, key: PyJWK) -> bool:
    """Whether the token is signed by the key; slow, so it is called in a thread."""
    from jwt import PyJWS, PyJWTError

    try:
        PyJWS(algorithms=[token.algorithm]).decode_complete(token.text, key, algorithms=[token.algorithm])
    except (PyJWTError, ValueError):
        return False
    return True


class SigningKeys:
    """The keys at one address."""

    def __init__(self, options: TokenOptions, read: ReadDocument, clock: Clock, threads: Threads) -> None:
        assert options.jwks_url is not None
        self._options = options
        self._url = options.jwks_url
        self._read = read
        self._clock = clock
        self._threads = threads
        self._keys: KeySet | None = None
        self._waiting: list[Callable[[], object]] | None = None
        """Callbacks that wait for the keys; None while no keys are being read."""
        self._read_ms: int | None = None
        """Start of the last reading, successful or not."""
        self._failures = 0

    def prepare(self) -> None:
        """Reads the keys before the first client connects."""
        if self._keys is None and self._waiting is None:
            self._load(lambda: None)

    def verify(self, token: WebToken, done: Callable[[str], object]) -> None:
        """Checks a token's signature; calls `done` with the reason of a refusal, empty if the signature is right (`oauthbearer.Verify`)."""
        key = None if self._keys is None else self._keys.find(token)
        if self._is_load_due(is_known=key is not None):
            self._load(lambda: self._check(token, done))
        else:
            self._check(token, done)

    def _check(self, token: WebToken, done: Callable[[str], object]) -> None:
        if self._keys is None:
            done(NOT_READ)
            return
        key = self._keys.find(token)
        if key is None:
            done(UNKNOWN)
            return
        self._threads.run(lambda: is_signed_by(token, key), lambda is_right: done("" if is_right else WRONG))

    def _is_load_due(self, *, is_known: bool) -> bool:
        if self._waiting is not None:
            return not is_known
        if self._read_ms is None:
            return True
        age_ms = self._clock.monotonic_ms() - self._read_ms
        options = self._options
        if self._failures:
            return age_ms >= min(options.retry_backoff_ms << min(self._failures - 1, 32), options.retry_backoff_max_ms)
        return age_ms >= (options.refresh_ms if is_known else min(options.refresh_ms, options.retry_backoff_max_ms))

    def _load(self, then: Callable[[], object]) -> None:
        if self._waiting is not None:
            self._waiting.append(then)
            return
        self._waiting = [then]
        self._read_ms = self._clock.monotonic_ms()
        url, authorities, read = self._url, self._options.jwks_authorities, self._read

        def work() -> KeySet | str:
            try:
                return read_key_set(read(url, authorities))
            except (OSError, ValueError) as error:
                return str(error) or type(error).__name__

        self._threads.run(work, self._loaded)

    def _loaded(self, found: KeySet | str) -> None:
        waiting, self._waiting = self._waiting or [], None
        if isinstance(found, KeySet):
            self._keys, self._failures = found, 0
        else:
            self._failures += 1
            log.warning("the keys for tokens cannot be read from %s: %s", self._url, found)
        for then in waiting:
            then()


def _algorithms(entry: dict[str, Any]) -> tuple[str, ...]:
    """Returns the algorithms whose signatures may be checked with a key. The result is empty if the key is not for signatures."""
    operations = entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or (operations is not None and "verify" not in operations):
        return ()
    kind = entry.get("kty")
    possible = _RSA if kind == "RSA" else _CURVES.get(str(entry.get("crv")), ()) if kind in ("EC", "OKP") else ()
    return tuple(name for name in possible if entry.get("alg", name) == name)


def _key(entry: dict[str, Any], algorithm: str) -> PyJWK | None:
    from jwt import PyJWK, PyJWTError

    try:
        key = PyJWK({name: entry[name] for name in _PUBLIC if name in entry}, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    return None if getattr(key.key, "key_size", RSA_BITS_MIN) < RSA_BITS_MIN and algorithm in _RSA else key
