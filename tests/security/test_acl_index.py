"""The index of access rules, compared with a direct reading of Kafka's rules; and the cost of a decision with ten thousand rules."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.acls import ANY, MATCH, AclFilter, AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.security.acl_index import DENIED_SHIFT, AclIndex
from tests.instructions import instructions

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
HOST = "10.0.0.1"


def allowing(
    name: str, operation: AclOperation = READ, pattern_type: PatternType = LITERAL, who: str = "User:a", host: str = "*"
) -> Binding:
    return Binding(Pattern(TOPIC, name, pattern_type), Rule(who, host, operation, ALLOW))


def denying(
    name: str, operation: AclOperation = READ, pattern_type: PatternType = LITERAL, who: str = "User:a", host: str = "*"
) -> Binding:
    return Binding(Pattern(TOPIC, name, pattern_type), Rule(who, host, operation, DENY))


def index_of(*bindings: Binding) -> AclIndex:
    rules: dict[Pattern, list[Rule]] = {}
    for pattern, rule in bindings:
        rules.setdefault(pattern, []).append(rule)
    index = AclIndex()
    index.replace(rules)
    return index


def decision(index: AclIndex, name: str, operation: AclOperation = READ, who: str = "User:a", host: str = HOST) -> str:
    masks = index.masks(who, host, TOPIC, name)
    return "denied" if masks >> DENIED_SHIFT & 1 << operation else "allowed" if masks & 1 << operation else "none"


# A simple index whose correctness is obvious


def names(rule_host: str, host: str) -> bool:
    return rule_host in (host, "*") or ("/" in rule_host and ip_address(host) in ip_network(rule_host))


def holds(binding: Binding, name: str, who: str, host: str) -> bool:
    (kind, pattern_name, pattern_type), (principal, rule_host, _, _) = binding
    if kind is not TOPIC or principal not in (who, "User:*") or not names(rule_host, host):
        return False
    return name.startswith(pattern_name) if pattern_type is PREFIXED else pattern_name in (name, "*")


def plainly(bindings: list[Binding], name: str, operation: AclOperation, who: str, host: str) -> str:
    about = [rule for binding in bindings if holds(binding, name, who, host) for rule in (binding.rule,)]
    if any(rule.permission is DENY and rule.operation in (operation, ALL) for rule in about):
        return "denied"
    implying = {
        DESCRIBE: (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER),
        AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
    }.get(operation, ())
    return "allowed" if any(rule.permission is ALLOW and rule.operation in (operation, ALL, *implying) for rule in about) else "none"


def plainly_on_any(bindings: list[Binding], operation: AclOperation, who: str, host: str) -> bool:
    """Kafka's `authorizeByResourceType`: some pattern of an allowing rule does not lie within one that denies."""

    def denies(binding: Binding) -> bool:
        return binding.rule.permission is DENY and binding.rule.operation in (operation, ALL)

    def concerns(binding: Binding) -> bool:
        kind, principal, rule_host = binding.pattern.resource_type, binding.rule.principal, binding.rule.host
        return kind is TOPIC and principal in (who, "User:*") and names(rule_host, host)

    def is_within(inner: Pattern, outer: Pattern) -> bool:
        if outer.pattern_type is PREFIXED:
            return inner.name.startswith(outer.name) and inner != Pattern(TOPIC, "*")
        return outer.name == "*" or (inner == outer)

    mine = [binding for binding in bindings if concerns(binding)]
    against = [binding.pattern for binding in mine if denies(binding)]
    return any(
        not any(is_within(binding.pattern, pattern) for pattern in against)
        for binding in mine
        if binding.rule.permission is ALLOW and plainly([binding], binding.pattern.name, operation, who, host) == "allowed"
    )


NAMES = st.text("ab-", min_size=1, max_size=4)
WHO = st.sampled_from(["User:a", "User:b", "User:*"])
HOSTS = st.sampled_from([HOST, "10.0.0.2", "*"])
OPERATIONS = st.sampled_from([READ, WRITE, DESCRIBE, ALL, AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS])
PATTERNS = st.one_of(
    st.builds(Pattern, st.sampled_from([TOPIC, GROUP]), st.one_of(NAMES, st.just("*")), st.just(LITERAL)),
    st.builds(Pattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.just(PREFIXED)),
)
BINDINGS = st.lists(st.builds(Binding, PATTERNS, st.builds(Rule, WHO, HOSTS, OPERATIONS, st.sampled_from([ALLOW, DENY]))), max_size=12)


@given(BINDINGS, NAMES, OPERATIONS.filter(lambda operation: operation is not ALL))
def test_decides_as_a_plain_reading_of_all_rules(bindings: list[Binding], name: str, operation: AclOperation) -> None:
    index = index_of(*bindings)
    for who in ("User:a", "User:c"):
        assert decision(index, name, operation, who) == plainly(bindings, name, operation, who, HOST)
        assert index.allows_any(who, HOST, operation, TOPIC) == plainly_on_any(bindings, operation, who, HOST)
    concerned = [b for b in bindings if b.pattern.resource_type is TOPIC]
    assert index.has_rules(TOPIC, name) == any(
        name.startswith(p.name) if p.pattern_type is PREFIXED else p.name in (name, "*") for p, _ in concerned
    )


@given(BINDINGS, BINDINGS, NAMES)
def test_changes_one_by_one_end_where_reading_everything_does(before: list[Binding], after: list[Binding], name: str) -> None:
    index, wanted = index_of(*before), index_of(*after)
    rules = dict(wanted.matching(AclFilter()))
    for pattern in dict.fromkeys([*dict(index.matching(AclFilter())), *rules]):
        index.put(pattern, rules.get(pattern, ()))
        index.masks("User:a", HOST, TOPIC, name)  # so that cached results become obsolete with the next change
    assert dict(index.matching(AclFilter())) == rules and len(index) == len(rules)
    for who in ("User:a", "User:b"):
        assert index.masks(who, HOST, TOPIC, name) == wanted.masks(who, HOST, TOPIC, name)
    for pattern in rules:
        index.put(pattern, ())
    assert len(index) == 0 and not index._of and not index._of_all


@given(BINDINGS, st.sampled_from([ANY, MATCH, LITERAL, PREFIXED]), st.sampled_from([ANY, TOPIC, GROUP]), st.none() | NAMES)
def test_a_filter_means_the_patterns_that_it_holds_for(bindings: list[Binding], pattern_type: int, kind: int, name: str | None) -> None:
    wanted = AclFilter(resource_type=kind, pattern_type=pattern_type, name=name)
    expected = {binding.pattern for binding in bindings if wanted.matches_pattern(binding.pattern)}
    found = dict(index_of(*bindings).matching(wanted))
    assert set(found) == expected and all(found.values())


# Tricks


@pytest.mark.parametrize(
    ("bindings", "name", "expected"),
    [
        ([allowing("pay", pattern_type=PREFIXED)], "pay", "allowed"),
        ([allowing("pay", pattern_type=PREFIXED)], "pa", "none"),
        ([allowing("pay", pattern_type=PREFIXED)], "Pay-roll", "none"),
        ([allowing("pay-*")], "pay-roll", "none"),
        ([allowing("*")], "pay-roll", "allowed"),
        ([allowing("*", pattern_type=PREFIXED)], "pay-roll", "none"),
        ([allowing("*"), denying("pay", pattern_type=PREFIXED)], "pay-roll", "denied"),
        ([denying("pay-roll"), allowing("pay-roll")], "pay-roll", "denied"),
        ([allowing("pay-roll", ALL), denying("pay-roll", DESCRIBE)], "pay-roll", "allowed"),
        ([allowing("pay-roll", ALL), denying("pay-roll", ALL, who="User:*")], "pay-roll", "denied"),
        ([allowing("caf\u00e9")], "cafe\u0301", "none"),
        ([allowing("pay", who="User:A")], "pay", "none"),
        ([allowing("pay", who="Group:a")], "pay", "none"),
        ([allowing("pay", who="*")], "pay", "none"),
        ([allowing("pay", host="10.0.0.2")], "pay", "none"),
        ([allowing("pay", host="10.0.0")], "pay", "none"),
    ],
)
def test_prefixes_wildcards_and_forms_of_names(bindings: list[Binding], name: str, expected: str) -> None:
    assert decision(index_of(*bindings), name) == expected


def test_a_denied_operation_denies_none_that_an_allowed_one_implies() -> None:
    index = index_of(allowing("t", WRITE), denying("t", READ))
    assert [decision(index, "t", operation) for operation in (READ, WRITE, DESCRIBE)] == ["denied", "allowed", "allowed"]
    assert decision(index_of(allowing("t", WRITE), denying("t", DESCRIBE)), "t", DESCRIBE) == "denied"


def test_an_acl_of_a_network_concerns_its_addresses() -> None:
    index = index_of(allowing("t", host="10.0.0.0/8"), denying("t", host="10.1.0.0/16"), allowing("t", host="2001:db8::/32"))
    decisions = {host: decision(index, "t", host=host) for host in ("10.0.0.1", "10.1.2.3", "11.0.0.1", "2001:db8::1", "2001:db9::1")}
    assert decisions == {
        "10.0.0.1": "allowed",
        "10.1.2.3": "denied",
        "11.0.0.1": "none",
        "2001:db8::1": "allowed",
        "2001:db9::1": "none",
    }
    assert index.allows_any("User:a", "10.0.0.1", READ, TOPIC) and not index.allows_any("User:a", "10.1.2.3", READ, TOPIC)


# Cost


def many(count: int) -> AclIndex:
    """Returns the rules of an imagined company: each service has its own topics and prefixes, and some rules are about all principals."""
    bindings = []
    for number in range(count // 4):
        who = f"User:service-{number}"
        bindings += [allowing(f"topic-{number}", WRITE, who=who), allowing(f"team-{number}-", READ, PREFIXED, who=who)]
        bindings += [denying(f"secret-{number}-", ALL, PREFIXED, who="User:*"), allowing("shared", READ, who=who)]
    return index_of(*bindings)


@pytest.mark.parametrize("name", ["topic-7", "team-7-orders", "secret-7-x", "shared", "nothing"])
def test_a_decision_takes_as_many_instructions_with_ten_thousand_rules_as_with_forty(name: str) -> None:
    few, thousands = many(40), many(10_000)
    costs = []
    for index in (few, thousands):
        index.masks("User:service-7", HOST, TOPIC, name)  # sorts the prefixes
        costs.append(instructions(lambda index=index: index.masks("User:service-7", HOST, TOPIC, name)))  # type: ignore[misc]
    assert costs[1] <= costs[0] + 30  # another prefix may precede the name in the order
    assert costs[1] < 350


@pytest.mark.parametrize(
    "wanted",
    [AclFilter(principal="User:absent"), AclFilter(name="name-7", pattern_type=MATCH), AclFilter(name="name-7", principal="User:absent")],
)
def test_a_filter_that_names_something_looks_at_few_of_thousands_of_rules(wanted: AclFilter, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(*(allowing(f"name-{number}", pattern_type=kind) for number in range(1000) for kind in (LITERAL, PREFIXED)))
    looked_at: list[Pattern] = []
    matches_pattern = AclFilter.matches_pattern
    monkeypatch.setattr(AclFilter, "matches_pattern", lambda self, pattern: looked_at.append(pattern) or matches_pattern(self, pattern))
    found = dict(index.matching(wanted))
    assert len(looked_at) < 10
    assert all(matches_pattern(wanted, pattern) for pattern in found)
