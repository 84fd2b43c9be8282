"""An issuer of bearer tokens for tests: its keys, its key set, and tokens with any content."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec_key
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

Key = RSAPrivateKey | EllipticCurvePrivateKey
ISSUER, AUDIENCE = "https://issuer.test", "brokers"


def rsa_key(name: str = "first", bits: int = 2048) -> RSAPrivateKey:
    """Returns a key; the same name always has the same key, because making a key is slow."""
    return _made(name, bits)


@lru_cache
def _made(name: str, bits: int) -> RSAPrivateKey:
    return generate_rsa_key(65537, bits)


@lru_cache
def ec_key() -> EllipticCurvePrivateKey:
    return generate_ec_key(SECP256R1())


def public_jwk(key: Key, key_id: str | None, **members: Any) -> dict[str, Any]:
    if isinstance(key, RSAPrivateKey):
        found = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        found = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    found.pop("key_ops", None)
    return {**found, **({} if key_id is None else {"kid": key_id}), **members}


def jwks(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


def claims_at(now_s: int, **changed: Any) -> dict[str, Any]:
    """Returns claims that are valid now, with the given changes; None omits a claim."""
    right = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + 600, "scope": "kafka read"}
    return {name: value for name, value in {**right, **changed}.items() if value is not None}


def signed(claims: dict[str, Any], key: Any = None, key_id: str | None = "first", algorithm: str = "RS256", **header: Any) -> str:
    headers = {**({} if key_id is None else {"kid": key_id}), **header}
    return jwt.encode(claims, rsa_key() if key is None else key, algorithm, headers)


def unsecured(claims: dict[str, Any]) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."


def part(value: Any) -> str:
    """Returns a part of a token in compact form."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def first_message(token: str, name: str = "") -> bytes:
    """Returns the client's first message of OAUTHBEARER."""
    return f"n,{f'a={name}' if name else ''},\x01auth=Bearer {token}\x01\x01".encode()
