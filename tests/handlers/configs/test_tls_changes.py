"""Which alterations of TLS settings are checked, against which broker's files, and what remains of a request when one alteration is
refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.cluster_metadata import CONFIG_BROKER, CONFIG_TOPIC
from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.settings.security import TlsOptions
from ottla.handlers.configs import alter_configs, incremental_alter_configs
from ottla.handlers.configs.tls_changes import EVERY, TlsChanges, tls_listener
from ottla.handlers.context import Broker, ConnectionInfo, RequestContext
from ottla.security.authorizer import AllowClients
from ottla.wire.messages import alter_configs as replacing
from ottla.wire.messages import incremental_alter_configs as incremental
from tests.fakes.threads import ManualThreads

SET, DELETE = 0, 1
KEYSTORE = "listener.name.own.ssl.keystore.location"


class Listeners:
    """Replaces `adapters/tls_listeners.py`: it records the questions, and refuses a key store named `bad`."""

    def __init__(self) -> None:
        self.examined: list[dict[str, str | None]] = []
        self.renewals = 0

    def examine(self, wanted: Mapping[str, TlsOptions]) -> tuple[str | None, dict[str, Any]]:
        stores: dict[str, str | None] = {listener: options.keystore for listener, options in wanted.items()}
        self.examined.append(stores)
        return ("it is bad" if "bad" in stores.values() else None), {}

    def has(self, wanted: Mapping[str, TlsOptions]) -> bool:
        return all(options.keystore == "static" for options in wanted.values())

    def keep(self, _made: object) -> None:
        pass

    def renew(self) -> None:
        self.renewals += 1


class Guarded:
    """Broker 7, whose listeners OWN and OTHER have TLS. `handed` has the requests that reached the handler."""

    def __init__(self, stored: dict[str, str] | None = None) -> None:
        config = BrokerConfig({
            "listeners": "OWN://:1,OTHER://:2,PLAIN://:3", "listener.security.protocol.map": "OWN:SSL,OTHER:SSL,PLAIN:PLAINTEXT",
            "ssl.keystore.location": "static", "broker.id": "7",
        })  # fmt: skip
        metadata = SimpleNamespace(configs=lambda _kind, _name: stored or {})
        self.broker = cast(Broker, SimpleNamespace(broker_id=7, metadata=metadata, authorizer=AllowClients()))
        self.listeners = Listeners()
        self.threads = ManualThreads()
        self.changes = TlsChanges(config, self.threads, self.listeners)
        self.client = ConnectionInfo(identity="test", host="127.0.0.1", listener="PLAIN")
        self.handed: list[Any] = []

    def ask(self, body: Any) -> list[tuple[str, int]]:
        module: Any = incremental_alter_configs if isinstance(body, incremental.IncrementalAlterConfigsRequest) else alter_configs

        def handle(_broker: Broker, _request: RequestContext, left: Any) -> Any:
            self.handed.append(left)
            return SimpleNamespace(responses=[SimpleNamespace(resource_name=one.resource_name, error_code=0) for one in left.resources])

        answer = self.changes.guarding(module, handle)(self.broker, RequestContext(1, None, self.client), body)
        self.threads.run_all()
        response = getattr(answer, "response", answer)
        return [(one.resource_name, one.error_code) for one in response.responses]


def request(*resources: tuple[int, str, dict[str, str | None]], validate_only: bool = False) -> incremental.IncrementalAlterConfigsRequest:
    made = []
    for kind, name, changes in resources:
        entries = [
            incremental.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in changes.items()
        ]
        made.append(incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries))
    return incremental.IncrementalAlterConfigsRequest(resources=made, validate_only=validate_only)


@pytest.mark.parametrize(
    ("name", "listener"),
    [(KEYSTORE, "own"), ("ssl.client.auth", EVERY), ("listener.name.own.max.connections", None), ("log.retention.ms", None)],
)
def test_which_settings_are_about_tls(name: str, listener: str | None) -> None:
    assert tls_listener(name) == listener


def test_a_refused_resource_holds_up_no_other() -> None:
    guarded = Guarded()
    topic, bad = (CONFIG_TOPIC, "topic", {"retention.ms": "1"}), (CONFIG_BROKER, "7", {KEYSTORE: "bad"})
    assert guarded.ask(request(bad, topic)) == [("topic", 0), ("7", ErrorCode.INVALID_REQUEST)]
    assert guarded.listeners.examined == [{"OWN": "bad"}]
    assert [one.resource_name for one in guarded.handed[0].resources] == ["topic"]


@pytest.mark.parametrize(
    ("changes", "examined"),
    [
        ({"ssl.keystore.location": "bad"}, [{"OWN": "bad", "OTHER": "bad"}]),
        ({"listener.name.other.ssl.keystore.location": None}, [{"OTHER": "static"}]),
        ({"log.retention.ms": "1"}, []),
    ],
)
def test_the_listeners_that_are_examined(changes: dict[str, str | None], examined: list[dict[str, str]]) -> None:
    guarded = Guarded()
    guarded.ask(request((CONFIG_BROKER, "7", changes)))
    assert guarded.listeners.examined == examined


def test_what_a_replacing_request_leaves_out_is_examined_too() -> None:
    guarded = Guarded({KEYSTORE: "before"})
    resource = replacing.AlterConfigsResource(resource_type=CONFIG_BROKER, resource_name="7", configs=[])
    assert guarded.ask(replacing.AlterConfigsRequest(resources=[resource])) == [("7", 0)]
    assert guarded.listeners.examined == [{"OWN": "static"}]


def test_only_the_broker_that_has_the_files_can_look_at_them() -> None:
    guarded, elsewhere = Guarded(), request((CONFIG_BROKER, "8", {KEYSTORE: "good"}))
    guarded.client.is_forwarded = True
    assert guarded.ask(elsewhere) == [("8", 0)], "broker 8 has looked, and this one is the controller"
    assert guarded.listeners.examined == []


def test_a_listener_that_does_not_exist() -> None:
    guarded = Guarded()
    name = "listener.name.onw.ssl.keystore.location"
    assert guarded.ask(request((CONFIG_BROKER, "7", {name: "good"}))) == [("7", ErrorCode.INVALID_REQUEST)]
    assert guarded.ask(request((CONFIG_BROKER, "7", {name: None}))) == [("7", 0)]


@pytest.mark.parametrize(("value", "validate_only", "renewals"), [("static", False, 1), ("static", True, 0), ("another", False, 0)])
def test_an_alteration_without_a_change_has_the_files_read_again(value: str, validate_only: bool, renewals: int) -> None:
    """An alteration that changes a value causes the reading anyway."""
    guarded = Guarded()
    assert guarded.ask(request((CONFIG_BROKER, "7", {KEYSTORE: value}), validate_only=validate_only)) == [("7", 0)]
    assert guarded.listeners.renewals == renewals


def test_files_are_looked_at_only_for_those_who_may_alter() -> None:
    guarded = Guarded()
    guarded.broker.authorizer = cast(Any, SimpleNamespace(permits=lambda *_: False))
    guarded.ask(request((CONFIG_BROKER, "7", {KEYSTORE: "bad"})))
    assert guarded.listeners.examined == [] and len(guarded.handed[0].resources) == 1, "the handler refuses"
