"""Sample requests about logins, users, delegation tokens and ACLs; see `sample_requests.py`."""

from __future__ import annotations

from typing import Any

from ottla.base.acls import ResourceType
from ottla.wire.messages import alter_user_scram_credentials as scram
from ottla.wire.messages import create_acls, delete_acls
from tests.clients.sample_world import World, plain
from tests.clients.wire_client import In


def _create_acls(_world: World, make: In, cls: Any) -> Any:
    acl = make(
        create_acls.AclCreation, resource_type=ResourceType.TOPIC, resource_name="t", principal="User:a", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    return make(cls, creations=[acl])


def _delete_acls(_world: World, make: In, cls: Any) -> Any:
    return make(cls, filters=[make(delete_acls.DeleteAclsFilter, resource_type_filter=ResourceType.TOPIC, operation=1, permission_type=1)])


ACCESS_REQUESTS = {
    17: plain(mechanism="PLAIN"),
    29: plain(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
    30: _create_acls,
    31: _delete_acls,
    36: plain(auth_bytes=b"\0user\0password"),
    38: plain(max_lifetime_ms=-1),
    39: plain(hmac=bytes(64), renew_period_ms=-1),
    40: plain(hmac=bytes(64), expiry_time_period_ms=-1),
    41: plain(owners=None),
    50: plain(users=None),
    51: plain(upsertions=[
        scram.ScramCredentialUpsertion(name="sample", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32)
    ]),
}  # fmt: skip
