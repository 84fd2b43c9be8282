"""The nodes of delegation tokens are Kafka's, byte for byte, and damaged ones are noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.base.delegation_token import DelegationToken
from ottla.metadata_store import delegation_token_nodes as nodes
from ottla.metadata_store import znodes
from ottla.metadata_store.znodes import NodeError

ID = "Sb0F5mSbQ0C6JdSBqkIK9A"
TOKEN = DelegationToken(
    token_id=ID, owner="User:Zoë, b*", requester="User:bob", renewers=("User:x y", "User:z"), issue_ms=1, expiry_ms=2, max_ms=3
)
WRITTEN = {
    "version": 3, "owner": "User%3AZo%C3%AB%2C%20b%2A", "tokenRequester": "User%3Abob", "renewers": ["User%3Ax%20y", "User%3Az"],
    "issueTimestamp": 1, "maxTimestamp": 3, "expiryTimestamp": 2, "tokenId": ID,
}  # fmt: skip


def test_a_token_is_written_as_kafka_writes_it() -> None:
    assert json.loads(nodes.token_bytes(TOKEN)) == WRITTEN
    assert nodes.read_token(nodes.token_bytes(TOKEN)) == TOKEN
    assert nodes.token_path(ID) == f"/delegation_token/tokens/{ID}" and nodes.token_at(nodes.token_path(ID)) == ID
    announced = nodes.change(ID)
    assert (announced.path, announced.data, announced.is_sequential) == (
        "/delegation_token/token_changes/token_change_", ID.encode(), True,
    )  # fmt: skip
    assert nodes.read_change(announced.data) == ID


def test_versions_before_another_owner_are_read() -> None:
    old = {name: value for name, value in WRITTEN.items() if name != "tokenRequester"} | {"version": 1}
    assert nodes.read_token(json.dumps(old).encode()).requester == TOKEN.owner


@pytest.mark.parametrize(
    "changed",
    [{"owner": None}, {"owner": "alice"}, {"renewers": 7}, {"renewers": [7]}, {"tokenId": 7}, {"issueTimestamp": "1"},
     {"maxTimestamp": True}, {"expiryTimestamp": None}, {"owner": "User%3Aa%zz"}],
)  # fmt: skip
def test_a_damaged_token_is_noticed(changed: dict[str, Any]) -> None:
    with pytest.raises(NodeError):
        nodes.read_token(json.dumps(WRITTEN | changed).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"{"])
def test_what_is_no_object_is_noticed(data: bytes) -> None:
    with pytest.raises(NodeError):
        nodes.read_token(data)
    with pytest.raises(NodeError):
        nodes.read_change(data)


def test_an_id_is_no_path() -> None:
    for text in ("../../config/users/admin", "", f"{ID}A", "a/b"):
        assert not nodes.is_token_id(text)
    assert nodes.is_token_id(ID)


def test_only_brokers_read_tokens_where_nodes_have_access_lists() -> None:
    assert nodes.ROOT in znodes.SENSITIVE_PATHS
