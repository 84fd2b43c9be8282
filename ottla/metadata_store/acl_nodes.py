"""The nodes of ACLs in the metadata store, in the form that Kafka uses in ZooKeeper. One node has the rules of one pattern:
`/kafka-acl/Topic/orders` for a literal name, `/kafka-acl-extended/prefixed/Topic/ord` for a prefix. A pattern without rules has no node.
Each change adds a sequential node that names the pattern. Other brokers watch these nodes. `%` and the characters that a path must not have
are written as `%XX`. Kafka writes `%` unchanged, and creates no rules for names with the other characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, TypeVar

from ottla.base.acls import AclOperation, Pattern, PatternType, Permission, ResourceType, Rule, java_name
from ottla.base.ports import Create
from ottla.metadata_store.node_json import NodeError, read_json
from ottla.metadata_store.znodes import unquoted

E = TypeVar("E", bound=IntEnum)

LITERAL_ROOT = "/kafka-acl"
EXTENDED_ROOT = "/kafka-acl-extended"
FOLDERS = {PatternType.LITERAL: LITERAL_ROOT, PatternType.PREFIXED: f"{EXTENDED_ROOT}/prefixed"}
CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}

_OPERATION_NAMES = {kind: java_name(kind) for kind in AclOperation}
_PERMISSION_NAMES = {kind: java_name(kind) for kind in Permission}
# Faster than `_named`: a node may have thousands of rules, and each change reads and writes all of them.
_OPERATIONS = {name: kind for kind, name in _OPERATION_NAMES.items()}
_PERMISSIONS = {name: kind for kind, name in _PERMISSION_NAMES.items()}

BASE_PATHS = (
    EXTENDED_ROOT,
    *FOLDERS.values(),
    *CHANGES.values(),
    *(f"{folder}/{java_name(kind)}" for folder in FOLDERS.values() for kind in ResourceType),
)
"""Nodes that must exist before a rule is written, parents first."""


def rules_path(pattern: Pattern) -> str:
    return f"{FOLDERS[pattern.pattern_type]}/{java_name(pattern.resource_type)}/{_in_path(pattern.name)}"


def pattern_at(path: str) -> Pattern | None:
    """Returns the pattern of the rules that are stored at this path; None for the path of another node. Raises `NodeError`."""
    for pattern_type, folder in FOLDERS.items():
        kind, slash, name = path.removeprefix(f"{folder}/").partition("/")
        if path.startswith(f"{folder}/") and slash:
            if "/" in name:
                raise NodeError(f"{name} is not the name of a resource")
            return Pattern(_named(ResourceType, kind), unquoted(name), pattern_type)
    return None


def rules_bytes(rules: Iterable[Rule]) -> bytes:
    entries = [
        {
            "principal": principal,
            "permissionType": _PERMISSION_NAMES[permission],
            "operation": _OPERATION_NAMES[operation],
            "host": host,
        }
        for principal, host, operation, permission in sorted(rules)
    ]
    return json.dumps({"version": 1, "acls": entries}, separators=(",", ":"), ensure_ascii=False).encode()


def read_rules(data: bytes) -> list[Rule]:
    """Returns the rules of a node. Raises `NodeError` if any part cannot be read, because that part may be a rule that denies."""
    if not data:
        return []
    entries = read_json(data).get("acls")
    if not isinstance(entries, list):
        raise NodeError("the field acls is not a list")
    return [_rule(entry) for entry in entries]


def change(pattern: Pattern) -> Create:
    """Returns the operation that announces a change of this pattern's rules to other brokers."""
    path = f"{CHANGES[pattern.pattern_type]}/acl_changes_"
    if pattern.pattern_type is PatternType.LITERAL:
        return Create(path, f"{pattern.resource_type.name}:{pattern.name}".encode(), is_sequential=True)
    kind, of_pattern = pattern.resource_type.name, pattern.pattern_type.name
    value = {"version": 1, "resourceType": kind, "name": pattern.name, "patternType": of_pattern}
    return Create(path, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), is_sequential=True)


def read_change(path: str, data: bytes) -> Pattern:
    """Returns the pattern whose rules have changed. Raises `NodeError`."""
    if path.startswith(f"{CHANGES[PatternType.LITERAL]}/"):
        kind, colon, name = _text(data).partition(":")
        if not colon:
            raise NodeError("a change of ACLs names no resource")
        return Pattern(_named(ResourceType, kind), name)
    value = read_json(data)
    return Pattern(_named(ResourceType, value.get("resourceType")), str(value.get("name")), _named(PatternType, value.get("patternType")))


def _rule(entry: Any) -> Rule:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("principal", "host")):
        raise NodeError("an ACL without principal or host")
    operation, permission = entry.get("operation"), entry.get("permissionType")
    if isinstance(operation, str) and isinstance(permission, str):
        known, allowed = _OPERATIONS.get(operation), _PERMISSIONS.get(permission)
        if known is not None and allowed is not None:
            return Rule(entry["principal"], entry["host"], known, allowed)
    return Rule(entry["principal"], entry["host"], _named(AclOperation, operation), _named(Permission, permission))


def _named(kinds: type[E], text: object) -> E:
    """Returns the member of an enumeration for its name, in either form: `TransactionalId` or `TRANSACTIONAL_ID`."""
    wanted = str(text).replace("_", "").upper()
    for kind in kinds:
        if kind.name.replace("_", "") == wanted:
            return kind
    raise NodeError(f"{text!r} is no {kinds.__name__}")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise NodeError("not UTF-8") from None


def _in_path(name: str) -> str:
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return "".join(letter if _is_allowed_in_path(letter) else "".join(f"%{byte:02X}" for byte in letter.encode()) for letter in name)


def _is_allowed_in_path(letter: str) -> bool:
    """Whether a path may have this character unescaped: ZooKeeper accepts the character, and it is neither / (the separator) nor % (the
    escape character)."""
    code = ord(letter)
    return letter not in "/%" and code >= 0x20 and not 0x7F <= code <= 0x9F and not 0xD800 <= code <= 0xF8FF and code < 0xFFF0
