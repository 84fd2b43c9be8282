"""The nodes of delegation tokens in the metadata store, in the form that Kafka uses in ZooKeeper.

Each token has one node, `/delegation_token/tokens/ID`, without its secret. Each change adds a sequential node that names the token. Other
brokers watch these nodes.
"""

from __future__ import annotations

from typing import Any

from ottla.base.delegation_token import DelegationToken
from ottla.base.ports import Create
from ottla.base.uuids import uuid_from_text
from ottla.metadata_store.node_json import NodeError, read_json, write_json
from ottla.metadata_store.znodes import quoted, unquoted

ROOT = "/delegation_token"
TOKENS = f"{ROOT}/tokens"
CHANGES = f"{ROOT}/token_changes"
BASE_PATHS = (ROOT, TOKENS, CHANGES)
"""Nodes that must exist before a token is written, parents first."""

VERSION = 3


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def token_at(path: str) -> str | None:
    """Returns the id of the token at this path; None for the path of another node."""
    return path.removeprefix(f"{TOKENS}/") if path.startswith(f"{TOKENS}/") else None


def is_token_id(text: str) -> bool:
    """Whether the text is a UUID in Kafka's form, so that it cannot change the path of a node."""
    try:
        uuid_from_text(text)
    except ValueError:
        return False
    return True


def token_bytes(token: DelegationToken) -> bytes:
    value = {
        "version": VERSION,
        "owner": quoted(token.owner),
        "tokenRequester": quoted(token.requester),
        "renewers": [quoted(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return write_json(value)


def read_token(data: bytes) -> DelegationToken:
    """Decodes a token. A token without a requester was requested by its owner. Raises `NodeError`."""
    value = read_json(data)
    owner, renewers = _principal(value.get("owner")), value.get("renewers", [])
    if not isinstance(renewers, list) or not isinstance(value.get("tokenId"), str):
        raise NodeError("a delegation token without an id, or with renewers that are no list")
    return DelegationToken(
        token_id=value["tokenId"], owner=owner, requester=_principal(value.get("tokenRequester", value.get("owner"))),
        renewers=tuple(map(_principal, renewers)), issue_ms=_time(value, "issueTimestamp"), expiry_ms=_time(value, "expiryTimestamp"),
        max_ms=_time(value, "maxTimestamp"),
    )  # fmt: skip


def change(token_id: str) -> Create:
    """Returns the operation that announces a change of this token to other brokers."""
    return Create(f"{CHANGES}/token_change_", token_id.encode(), is_sequential=True)


def read_change(data: bytes) -> str:
    """Returns the id of the changed token. Raises `NodeError`."""
    text = data.decode("utf-8", "replace")
    if not is_token_id(text):
        raise NodeError("a change of delegation tokens names no token")
    return text


def _principal(found: Any) -> str:
    if not isinstance(found, str):
        raise NodeError("a delegation token with a principal that is no text")
    text = unquoted(found)
    if ":" not in text:
        raise NodeError(f"{text!r} is no principal")
    return text


def _time(value: dict[str, Any], name: str) -> int:
    found = value.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise NodeError(f"a delegation token without {name}")
    return found
