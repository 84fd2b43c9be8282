"""Access rules of a broker process are kept over restarts, wrong settings refuse the start, and a stock admin client lists and changes
rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS

ANONYMOUS = "User:ANONYMOUS"
EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)  # fmt: skip


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, (*SETTINGS, "authorizer.class.name=acl", "allow.everyone.if.no.acl.found=true"))
    yield process
    if process.is_running:
        process.stop()


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})


def binding(kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, ANONYMOUS, "*", operation, permission)


def test_rules_hold_at_once_and_after_a_restart(guarded: BrokerProcess) -> None:
    guarded.start()
    admin = admin_of(guarded)
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    denied = binding(ResourceType.TOPIC, "orders", AclOperation.DELETE, AclPermissionType.DENY)
    allowed = binding(ResourceType.TOPIC, "orders", AclOperation.DESCRIBE, AclPermissionType.ALLOW)
    for future in admin.create_acls([denied, allowed]).values():
        future.result(30)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.delete_topics(["orders"])["orders"].result(30)
    guarded.kill()
    guarded.start()
    admin = admin_of(guarded)
    assert set(admin.describe_acls(EVERYTHING).result(30)) == {denied, allowed}
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.delete_topics(["orders"])["orders"].result(30)
    removed = admin.delete_acls([EVERYTHING])[EVERYTHING].result(30)
    assert set(removed) == {denied, allowed} and not admin.describe_acls(EVERYTHING).result(30)
    admin.delete_topics(["orders"])["orders"].result(30)
