"""Settings that restrict access: the broker follows all of them, or does not start."""

from __future__ import annotations

import pytest

from ottla.base.config import ConfigError, load
from ottla.base.settings.access import AUTHORIZERS, parse_super_users

WITH = "authorizer.class.name=acl"


@pytest.mark.parametrize("name", AUTHORIZERS)
def test_kafkas_names_select_the_authorizer(name: str) -> None:
    config, notices = load(assignments=[f"authorizer.class.name={name}", "super.users=User:admin;User:CN=b,OU=x;"])
    assert config.authorizer_class_name == name and not notices
    assert parse_super_users(config.super_users) == ["User:admin", "User:CN=b,OU=x"]


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["authorizer.class.name=org.example.MyAuthorizer"], "This broker has one authorizer"),
        (["authorizer.class.name=ACL"], "This broker has one authorizer"),
        ([WITH, "super.users=admin"], "Expected User:name but found admin"),
        ([WITH, "super.users=User:a,User:b;user:c"], "Expected User:name but found user:c"),
        ([WITH, "super.users=Group:admins"], "Expected User:name but found Group:admins"),
        ([WITH, "super.users=User:"], "Expected User:name but found User:"),
        ([WITH, "super.users=User:*"], "would open everything to everyone"),
        ([WITH, "allow.everyone.if.no.acl.found=maybe"], "true or false"),
        (["super.users=User:admin"], "there is no authorizer, so everyone may do everything"),
        (["allow.everyone.if.no.acl.found=false"], "there is no authorizer, so everyone may do everything"),
    ],
)
def test_a_start_is_refused_with_one_line(assignments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(assignments=assignments)
    assert "\n" not in str(caught.value)


def test_the_defaults_are_the_safe_ones() -> None:
    config, _ = load(assignments=[WITH])
    assert not config.allow_everyone_if_no_acl_found and not config.super_users and not config.ottla_audit_granted
    assert not load()[0].authorizer_class_name
    assert load(assignments=["allow.everyone.if.no.acl.found=true", "super.users="])[0].allow_everyone_if_no_acl_found
