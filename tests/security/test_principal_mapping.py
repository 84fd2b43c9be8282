"""`ssl.principal.mapping.rules`, by the examples of Kafka's documentation."""

from __future__ import annotations

import pytest

from ottla.security.principal_mapping import MappingError, parse_rules

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (RULES, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        (RULES, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        (RULES, "O=x,CN=Alice", "alice"),
        (RULES, "O=none", "O=none"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("", "CN=a", "CN=a"),
        ("RULE:CN=(.*)/$1/U", "CN=a", "A"),
        ("RULE:CN=(a)/$1/", "CN=ab", None),
        ("RULE:CN=(.*)/$10/", "CN=a", "a0"),
        ("RULE:" + "(.)" * 11 + "/$11$10$1/", "abcdefghijk", "kja"),
        (r"RULE:CN=(.*)/\$1-$1/", "CN=a", "$1-a"),
        ("RULE:CN=(a)?(b)/$1$2/", "CN=b", "b"),
        (" " * 8 + "RULE:(a)/$1/, DEFAULT ", "CN=z", "CN=z"),
        (r"RULE:CN=x\/(.*)/y\/$1/", "CN=x/z", "y/z"),
    ],
)
def test_mapping(rules: str, subject: str, name: str | None) -> None:
    assert parse_rules(rules)(subject) == name


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:a",
        "RULE:a/b",
        "RULE:(/b/",
        "OTHER",
        "DEFAULT DEFAULT",
        " " * 8 + "DEFAULT,OTHER",
        "RULE:a/b/X",
        "RULE:a/$1/",
        "RULE:(?=a)a/b/",
        r"RULE:(a)\1/b/",
    ],
)
def test_what_cannot_be_read(rules: str) -> None:
    with pytest.raises(MappingError):
        parse_rules(rules)


def test_a_subject_of_many_names_takes_no_longer_than_its_length() -> None:
    """A backtracking matcher would take days for this subject, because its names can be divided among five groups in very many ways."""
    subject = "CN=a" + ",OU=u,O=o,L=l,ST=s" * 1_000
    assert parse_rules("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1/L,DEFAULT")(subject) == subject
