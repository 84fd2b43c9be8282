"""Settings of access control: the authorizer, and its super users."""

from __future__ import annotations

from ottla.base.settings.setting import SettingError, boolean, string

AUTHORIZERS = ("acl", "kafka.security.authorizer.AclAuthorizer", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
"""Names of the one authorizer: our name, and Kafka's names for authorizers with the same semantics."""


class _Authorizer:
    """No authorizer, or a known name. Any other name prevents the start, because the broker would run without access control."""

    description = f"[{', '.join(('empty', *AUTHORIZERS))}]"

    def __call__(self, value: str) -> str:
        if value in ("", *AUTHORIZERS):
            return ""
        return f"This broker has one authorizer: {' or '.join(AUTHORIZERS)}"


class _Principals:
    """A list of principals: `User:name;User:name`."""

    description = "User:name;User:name;..."

    def __call__(self, value: str) -> str:
        try:
            parse_super_users(value)
        except SettingError as error:
            return str(error)
        return ""


class AccessSettings:
    """Settings of ACLs."""

    authorizer_class_name = string(
        "authorizer.class.name",
        "",
        "acl: clients need permissions, given by ACLs. Empty: clients may do everything.",
        valid=_Authorizer(),
    )
    super_users = string("super.users", "", "Principals that may do everything, separated by semicolons.", valid=_Principals())
    allow_everyone_if_no_acl_found = boolean(
        "allow.everyone.if.no.acl.found", False, "Whether a resource without ACLs is open to everyone."
    )
    ottla_login_settings_alterable = boolean(
        "ottla.login.settings.alterable", True,
        "Whether clients with Alter on the cluster may alter settings of logins: trust stores, users of PLAIN, keys of "
        "tokens. With such an alteration a client can make itself a super user. Kafka has no such setting.",
    )  # fmt: skip
    ottla_audit_granted = boolean(
        "ottla.audit.granted", False, "Whether the audit log also has a line for each granted authorization. Refusals are always logged."
    )


def parse_super_users(text: str) -> list[str]:
    """Returns the principals, in order. Raises `SettingError` with one sentence."""
    principals = [part.strip() for part in text.split(";") if part.strip()]
    for principal in principals:
        kind, _, name = principal.partition(":")
        if kind != "User" or not name:
            raise SettingError(f"Expected User:name but found {principal}")
        if name == "*":
            raise SettingError("User:* as a super user would open everything to everyone")
    return principals


def why_contradictory(*, authorizer: str, named: frozenset[str], allows_without_rules: bool) -> str:
    """Returns the reason to refuse the start if a setting restricts access and there is no authorizer to apply the setting; otherwise an
    empty text. `named`: the settings that are given.
    """
    if authorizer:
        return ""
    if "super.users" in named:
        return "super.users: there is no authorizer, so everyone may do everything; set authorizer.class.name=acl"
    if "allow.everyone.if.no.acl.found" in named and not allows_without_rules:
        return "allow.everyone.if.no.acl.found: there is no authorizer, so everyone may do everything; set authorizer.class.name=acl"
    return ""
