"""A broker for tests of administrative requests: a real controller over a metadata store in memory, and encoded messages on both sides of
the handler.

`ask` sends a request through the codec in the version named, runs the handler, and takes the answer through the codec as well, so a field
that a version lacks or a value that cannot be written fails here and not at a client.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from ottla.base.config import BrokerConfig
from ottla.cluster.control.inbox import ControlInbox
from ottla.handlers.context import ConnectionInfo, Pending, RequestContext
from ottla.handlers.served_apis import TABLE
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.authorizer import AllowClients
from ottla.telemetry.clients import ReportingClients
from ottla.telemetry.subscriptions import Subscriptions
from ottla.wire.codec import decoder, encoder
from tests.controller.cluster import Cluster
from tests.fakes.answers import answer_of
from tests.fakes.authorizer import RuleAuthorizer
from tests.fakes.randomness import SeededRandom


class DenyAll(RuleAuthorizer):
    """An authorizer that allows only the named rights."""

    def __init__(self, *allowed: tuple[AclOperation, str]) -> None:
        self.allowed = allowed

    def is_allowed(self, connection: ConnectionInfo, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return (operation, name) in self.allowed

    def is_allowed_on_any(self, connection: ConnectionInfo, operation: AclOperation, resource_type: ResourceType) -> bool:
        return any(operation is allowed for allowed, _ in self.allowed)


class AdminWorld:
    """One broker, its controller, and a client of the listener PLAINTEXT."""

    def __init__(self, config: BrokerConfig | None = None, authorizer: Any = None, cluster: Cluster | None = None) -> None:
        self.cluster = cluster if cluster is not None else Cluster(config=config)
        self.connection = ConnectionInfo(identity="test:1", host="test", listener="PLAINTEXT")
        self.broker: Any = SimpleNamespace(
            reporting_clients=ReportingClients(Subscriptions(self.cluster.cache), self.cluster.timers.clock, SeededRandom(1), 1 << 20),
            broker_id=0,
            config=self.cluster.config,
            metadata=self.cluster.cache,
            controller=self.cluster.loop,
            controller_link=self.cluster.loop,
            control=ControlInbox(self.cluster.member.receiver),
            partitions=None,
            authorizer=authorizer if authorizer is not None else AllowClients(),
            suspects=None,
            cluster_identity=None,
            quotas=None,
            acl_rules=None,
        )

    def ask(self, body: Any, version: int | None = None) -> Any:
        """The answer to a request, in the newest version of its API if none is named."""
        api = TABLE[type(body).API_KEY]
        version = api.max_version if version is None else version
        module = import_module(f"ottla.handlers.{api.handler}")
        request, _ = decoder(type(body), version)(encoder(type(body), version)(body), 0)
        answer = answer_of(module.handle(self.broker, RequestContext(version, "test", self.connection), request))
        assert not isinstance(answer, Pending), "with the embedded store an answer is there at once"
        response, _ = decoder(type(answer), version)(encoder(type(answer), version)(answer), 0)
        return response
