"""Counts the encoding of access rules into nodes of the metadata store."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ottla.base.acls import Rule
from ottla.metadata_store import acl_nodes


def count_encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list to which each later call of `acl_nodes.rules_bytes` adds the number of encoded rules."""
    encoded: list[int] = []
    encode = acl_nodes.rules_bytes

    def count(rules: Iterable[Rule]) -> bytes:
        rules = list(rules)
        encoded.append(len(rules))
        return encode(rules)

    monkeypatch.setattr(acl_nodes, "rules_bytes", count)
    return encoded
