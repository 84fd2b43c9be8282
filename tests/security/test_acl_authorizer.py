"""The authorizer that decides by access rules: super users, brokers, resources without rules, and decisions that are cached and dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.acls import CLUSTER_NAME, AclFilter, AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.base.loop.turns import run_steps
from ottla.security.acl_authorizer import DECISIONS_BYTES_MAX, AclAuthorizer
from ottla.security.audit import AuditLog
from tests.base.test_bounded_cache import memory_of
from tests.fakes.clock import ManualClock
from tests.instructions import instructions

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, CLUSTER_ACTION = AclOperation.READ, AclOperation.WRITE, AclOperation.CLUSTER_ACTION
ORDERS = Pattern(TOPIC, "orders")


def of(principal: str, host: str = "10.0.0.1", *, is_inter_broker: bool = False) -> Any:
    return SimpleNamespace(principal=principal, host=host, listener="CLIENTS", is_inter_broker=is_inter_broker)


def rule(principal: str = "User:a", operation: AclOperation = READ, permission: Permission = Permission.ALLOW, host: str = "*") -> Rule:
    return Rule(principal, host, operation, permission)


def authorizer(**options: Any) -> AclAuthorizer:
    made = AclAuthorizer(AuditLog(ManualClock()), **options)
    made.replace({})
    return made


def test_nothing_is_allowed_without_a_rule_and_everything_to_super_users_and_brokers() -> None:
    made = authorizer(super_users=["User:root"])
    assert not made.is_allowed(of("User:a"), READ, TOPIC, "orders")
    assert made.is_allowed(of("User:root"), READ, TOPIC, "orders") and made.is_allowed(of("User:root"), CLUSTER_ACTION, CLUSTER, "x")
    assert made.is_allowed(of("User:a", is_inter_broker=True), CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    assert not made.is_allowed(of("User:root "), READ, TOPIC, "orders") and not made.is_allowed(of("Group:root"), READ, TOPIC, "orders")
    assert made.allows_clients_everything(of("User:root")) and not made.allows_clients_everything(of("User:a"))
    # A cached decision about a principal must not apply to a broker's connection under the same name.
    assert not made.is_allowed(of("User:a"), CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    assert made.is_allowed(of("User:a", is_inter_broker=True), CLUSTER_ACTION, CLUSTER, "kafka-cluster")


def test_super_users_are_not_denied_anything() -> None:
    made = authorizer(super_users=["User:root"])
    made.put(ORDERS, [rule("User:*", AclOperation.ALL, Permission.DENY)])
    assert made.is_allowed(of("User:root"), READ, TOPIC, "orders")


def test_until_the_rules_are_read_only_super_users_and_brokers_are_allowed_anything() -> None:
    made = AclAuthorizer(AuditLog(ManualClock()), super_users=["User:root"], allows_without_rules=True)
    assert not made.is_allowed(of("User:a"), READ, TOPIC, "orders") and not made.is_allowed_on_any(of("User:a"), WRITE, TOPIC)
    assert made.is_allowed(of("User:root"), READ, TOPIC, "orders")
    made.replace({})
    assert made.is_allowed(of("User:a"), READ, TOPIC, "orders") and made.is_allowed_on_any(of("User:a"), WRITE, TOPIC)


def test_resources_without_a_rule_are_open_where_that_is_set() -> None:
    made = authorizer(allows_without_rules=True)
    assert made.is_allowed(of("User:b"), READ, TOPIC, "orders")
    made.put(Pattern(TOPIC, "ord", PatternType.PREFIXED), [rule("User:a")])
    assert made.is_allowed(of("User:a"), READ, TOPIC, "orders") and not made.is_allowed(of("User:b"), READ, TOPIC, "orders")
    assert made.is_allowed(of("User:b"), READ, TOPIC, "other") and made.is_allowed(of("User:b"), READ, GROUP, "orders")
    made.put(Pattern(TOPIC, "*"), [rule("User:*", WRITE, Permission.DENY)])
    assert not made.is_allowed(of("User:b"), READ, TOPIC, "other")
    assert not made.is_allowed_on_any(of("User:b"), WRITE, TOPIC) and made.is_allowed_on_any(of("User:b"), WRITE, GROUP)
    made.put(Pattern(GROUP, "*"), [rule("User:a", WRITE)])
    assert made.is_allowed_on_any(of("User:a"), WRITE, GROUP) and not made.is_allowed_on_any(of("User:b"), WRITE, GROUP)


def test_to_speak_as_a_broker_takes_a_rule_even_where_resources_without_one_are_open() -> None:
    made = authorizer(allows_without_rules=True)
    cluster = (CLUSTER, CLUSTER_NAME)
    assert made.is_allowed(of("User:b"), AclOperation.ALTER, *cluster)
    assert not made.is_allowed(of("User:b"), CLUSTER_ACTION, *cluster)
    made.put(Pattern(*cluster), [rule("User:b", CLUSTER_ACTION)])
    assert made.is_allowed(of("User:b"), CLUSTER_ACTION, *cluster)


def test_an_empty_name_is_a_name_and_not_any() -> None:
    made = authorizer()
    made.put(ORDERS, [rule("User:a", WRITE)])
    assert made.is_allowed_on_any(of("User:a"), WRITE, TOPIC)
    assert not made.is_allowed(of("User:a"), WRITE, TOPIC, "")


def test_each_change_forgets_every_decision() -> None:
    made = authorizer()
    a, b = of("User:a"), of("User:b")
    assert not made.is_allowed(a, READ, TOPIC, "orders") and not made.is_allowed_on_any(a, READ, TOPIC)
    made.put(ORDERS, [rule("User:a")])
    assert made.is_allowed(a, READ, TOPIC, "orders") and made.is_allowed_on_any(a, READ, TOPIC)
    assert not made.is_allowed(b, READ, TOPIC, "orders")
    made.put(ORDERS, [])
    assert not made.is_allowed(a, READ, TOPIC, "orders") and not made.is_allowed_on_any(a, READ, TOPIC)
    made.replace({ORDERS: [rule("User:b")]})
    assert made.is_allowed(b, READ, TOPIC, "orders")
    made.replace({})
    assert not made.is_allowed(b, READ, TOPIC, "orders")


def test_hosts_operations_and_types_are_distinguished() -> None:
    made = authorizer()
    made.put(ORDERS, [rule(host="10.0.0.1")])
    assert made.is_allowed(of("User:a"), READ, TOPIC, "orders") and not made.is_allowed(of("User:a", "10.0.0.2"), READ, TOPIC, "orders")
    assert not made.is_allowed(of("User:a"), WRITE, TOPIC, "orders") and not made.is_allowed(of("User:a"), READ, GROUP, "orders")
    made.put(ORDERS, [rule(host="0:0:0:0:0:0:0:1")])
    assert made.is_allowed(of("User:a", "::1"), READ, TOPIC, "orders")


def test_decisions_take_a_bounded_memory() -> None:
    made = authorizer()
    for number in range(60_000):
        made.permits(of("User:a"), READ, TOPIC, f"{number}".ljust(900 if number % 100 else 32_000, "\u20ac"))
    assert memory_of(made._decisions) <= DECISIONS_BYTES_MAX


def test_a_remembered_decision_costs_no_more_than_a_look() -> None:
    made = authorizer()
    made.replace({Pattern(TOPIC, f"topic-{number}"): [rule()] for number in range(10_000)})
    a = of("User:a")
    first = instructions(lambda: made.permits(a, READ, TOPIC, "topic-5"))
    again = instructions(lambda: made.permits(a, READ, TOPIC, "topic-5"))
    assert again < 60 < first


def test_shows_the_rules_that_a_filter_means() -> None:
    made = authorizer()
    prefixed = Pattern(TOPIC, "ord", PatternType.PREFIXED)
    made.replace({ORDERS: [rule("User:b"), rule("User:a")], prefixed: [rule(operation=WRITE)], Pattern(TOPIC, "*"): [rule()]})

    def bindings(wanted: AclFilter) -> list[Binding]:
        return run_steps(made.bindings(wanted))

    everything = bindings(AclFilter())
    assert everything == sorted(everything) and len(everything) == 4
    assert [b.pattern for b in bindings(AclFilter(name="orders", pattern_type=2))] == [Pattern(TOPIC, "*"), prefixed, ORDERS, ORDERS]
    assert bindings(AclFilter(name="orders", pattern_type=3)) == [Binding(ORDERS, rule("User:a")), Binding(ORDERS, rule("User:b"))]
    assert bindings(AclFilter(operation=WRITE)) == [Binding(prefixed, rule(operation=WRITE))]
    assert bindings(AclFilter(principal="User:b", host="*")) == [Binding(ORDERS, rule("User:b"))]
    assert not bindings(AclFilter(resource_type=GROUP)) and not bindings(AclFilter(permission=Permission.DENY))


def test_a_filter_that_says_everything_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly each of thousands of filters searched all rules of its resource."""
    rules = frozenset(Rule(f"User:{number}", "*", AclOperation.WRITE, Permission.ALLOW) for number in range(20))
    found = AclFilter(principal="User:7", host="*", operation=AclOperation.WRITE, permission=Permission.ALLOW)
    absent = AclFilter(principal="User:7", host="*", operation=AclOperation.WRITE, permission=Permission.DENY)
    slow = [sorted(rule for rule in rules if wanted.takes(rule)) for wanted in (found, absent)]
    looks: list[Rule] = []
    monkeypatch.setattr(AclFilter, "takes", lambda _self, rule: looks.append(rule) or True)
    assert [found.matching_rules(rules), absent.matching_rules(rules)] == slow and len(slow[0]) == 1 and looks == []
    assert AclFilter(principal="User:7").matching_rules(rules) == sorted(rules) and len(looks) == 20
