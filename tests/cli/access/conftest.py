"""A broker with access rules, whose one client is a super user, shared by the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.acls import AclFilter
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.acl_admin import delete_acls
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla, Result

SETTINGS = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="session")
def guarded() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def acl(offline: Ottla, guarded: Broker) -> Iterator[Ottla]:
    """`acl("acl", "list")`: connected to that broker, which has no rules before and after."""

    def run(*words: object) -> Result:
        return offline(*words, "-b", guarded.bootstrap_server)

    yield run
    with Cluster(guarded.bootstrap_server) as cluster:
        delete_acls(cluster, [AclFilter()])
