"""The judgement of ACLs: what a principal may do by the rules, and who a client is by its properties."""

from __future__ import annotations

import pytest

from ottla.analysis.access import access_by_rules, is_allowed, own_principal, rules_about
from ottla.base.acls import AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule

TOPIC = ResourceType.TOPIC
TOKEN_LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="id" password="hmac" tokenauth="true";'

@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "me.pem"}, None),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----"}, None),
        ({"security.protocol": "sasl_ssl", "sasl.username": "al", "sasl.password": "x", "ssl.keystore.location": "me.pem"}, "User:al"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": TOKEN_LOGIN}, None),
    ],
)
def test_the_principal_of_settings(properties: dict[str, str], principal: str | None) -> None:
    assert own_principal(properties) == principal


def test_rules_are_read_as_the_broker_reads_them() -> None:
    read = Binding(Pattern(TOPIC, "t"), Rule("User:a", "*", AclOperation.READ, Permission.ALLOW))
    deny = Binding(Pattern(TOPIC, "*"), Rule("User:*", "h", AclOperation.ALL, Permission.DENY))
    other = Binding(Pattern(TOPIC, "tt", PatternType.PREFIXED), Rule("User:a", "*", AclOperation.ALL, Permission.ALLOW))
    assert rules_about([read, deny, other], "User:a", "x", TOPIC, "t") == [read]
    assert rules_about([read, deny, other], "User:a", None, TOPIC, "t") == [read, deny]
    assert is_allowed([read], AclOperation.DESCRIBE) and not is_allowed([read], AclOperation.WRITE)
    assert not is_allowed([read, deny], AclOperation.READ)


def test_the_judgement_has_the_rules_behind_it() -> None:
    read = Binding(Pattern(TOPIC, "t"), Rule("User:a", "10.0.0.0/8", AclOperation.READ, Permission.ALLOW))
    inside = access_by_rules([read], "User:a", "10.1.1.1", TOPIC, "t")
    assert inside.allowed == [AclOperation.READ, AclOperation.DESCRIBE] and inside.why == "Allow Read to User:a from 10.0.0.0/8 (literal t)"
    outside = access_by_rules([read], "User:a", "11.1.1.1", TOPIC, "t")
    assert not outside.allowed and outside.why == "no rule names it for User:a"
    assert access_by_rules(None, "User:a", None, TOPIC, "t").why == "the rules may not be seen"
