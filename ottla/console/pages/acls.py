"""Pages about ACLs: a matrix by principal, all rules, wizards that add the rules for a producer or a consumer, and a check of what a
principal may do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ottla.analysis.access import (
    CONSUMER_NEEDS,
    NO_AUTHORIZER,
    OPERATIONS,
    PRODUCER_NEEDS,
    Access,
    access_by_broker,
    access_by_rules,
    is_allowed,
    operation_names,
    own_principal,
    rule_text,
    rules_about,
    visible_rules,
)
from ottla.base.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclFilter,
    AclOperation,
    Binding,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    java_name,
)
from ottla.base.counted import counted
from ottla.client.core import acl_admin
from ottla.console.model import Code, Done, Field, Form, Link, Mark, Note, Page, PageError, Table, columns, href
from ottla.console.visit import Visit, action, check_typed, page

TABS = (("By principal", "/acls"), ("Rules", "/acls/rules"), ("Why was this refused?", "/acls/check"))
TRAIL = (Link("ACLs", "/acls"),)
PATTERNS = ((PatternType.LITERAL.name, "exactly this name"), (PatternType.PREFIXED.name, "every name that begins so"))
OPTIONS = {
    ResourceType.TOPIC: "--topic", ResourceType.GROUP: "--group", ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token", ResourceType.USER: "--user-principal",
}  # fmt: skip
"""The options of `ottla acl` by resource type. The cluster has no name."""
RULE_FIELDS = ("type", "name", "pattern", "principal", "host", "operation", "permission")
CHECKED = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional_id": ResourceType.TRANSACTIONAL_ID}


def _notes(rules: Sequence[Binding] | None, remark: str) -> list[Note]:
    if rules is None:
        return [Note(f"The ACLs are not shown: {remark}.", "warn")]
    return [Note(f"There are no ACLs: {remark}.")] if remark == NO_AUTHORIZER else []


@page("/acls", "The ACLs as a matrix: what each principal may do, by resource", name="ACLs", section="Access")
def acls(visit: Visit) -> Page:
    rules, remark = visible_rules(visit.cluster)
    used = sorted({rule.operation for _, rule in rules or ()})
    rows = [_matrix_row(list(group)) for _, group in groupby(sorted(rules or (), key=_row_key), key=_row_key)]
    titles = columns(principal="Principal", resource="Resource", name="Name", pattern="Pattern", host="Host")
    titles += columns(**{one.name.lower(): java_name(one) for one in used})
    table = Table("matrix", "What each principal may do", titles, rows, "There are no ACLs.")
    forms = [] if rules is None or remark == NO_AUTHORIZER else [*_wizards({}), _any_rule()]
    return Page("ACLs", tables=[table], forms=forms, notes=_notes(rules, remark), tabs=TABS)


def _row_key(binding: Binding) -> tuple[str, Pattern, str]:
    return binding.rule.principal, binding.pattern, binding.rule.host


def _matrix_row(rules: list[Binding]) -> dict[str, Any]:
    """Returns a row of the matrix: the rules of a principal for a resource pattern and a host. If a rule denies an operation, the rules
    that allow it are not shown.
    """
    pattern, rule = rules[0]
    row: dict[str, Any] = {
        "principal": Link(rule.principal, href("acls", "rules", q=rule.principal)), "resource": java_name(pattern.resource_type),
        "name": pattern.name, "pattern": java_name(pattern.pattern_type), "host": rule.host,
    }  # fmt: skip
    for _, one in sorted(rules, key=lambda found: found.rule.permission, reverse=True):
        row[one.operation.name.lower()] = _permission(one)
    return row


def _permission(rule: Rule) -> Mark:
    return Mark(java_name(rule.permission), "ok" if rule.permission is Permission.ALLOW else "bad")


@page("/acls/rules", "Each ACL, one a row")
def all_rules(visit: Visit) -> Page:
    rules, remark = visible_rules(visit.cluster)
    table = Table("acls", "Rules", [*_RULE_TITLES, *columns(open="Rule")], [_rule_row(one) for one in rules or ()], "There are no ACLs.")
    return Page("ACLs", tables=[table], notes=_notes(rules, remark), tabs=TABS)


_RULE_TITLES = columns(
    principal="Principal", permission="Permission", operation="Operation", resource="Resource", name="Name", pattern="Pattern", host="Host"
)


def _rule_row(binding: Binding) -> dict[str, Any]:
    pattern, rule = binding
    return {
        "principal": rule.principal, "permission": _permission(rule), "operation": java_name(rule.operation),
        "resource": java_name(pattern.resource_type), "name": pattern.name, "pattern": java_name(pattern.pattern_type), "host": rule.host,
        "open": Link("open", href("acls", "rule", **_fields_of(binding))),
    }  # fmt: skip


def _fields_of(binding: Binding) -> dict[str, str]:
    (kind, name, pattern), (principal, host, operation, permission) = binding
    return dict(zip(RULE_FIELDS, (kind.name, name, pattern.name, principal, host, operation.name, permission.name), strict=True))


def _binding_of(given: Mapping[str, str]) -> Binding:
    """Returns the rule that a query or a form describes. Raises `PageError` for an unusable one."""
    kind, name, pattern, principal, host, operation, permission = (given.get(field, "").strip() for field in RULE_FIELDS)
    try:
        where = Pattern(ResourceType[kind], CLUSTER_NAME if kind == "CLUSTER" else name, PatternType[pattern])
        binding = Binding(where, Rule(_principal(principal), host or WILDCARD, AclOperation[operation], Permission[permission]))
    except KeyError as error:
        raise PageError(f"{str(error.args[0])[:40]!r} is not known in a rule.") from None
    if not where.name:
        raise PageError("Name the resource; * means all of its kind.")
    known = OPERATIONS[where.resource_type]
    if binding.rule.operation not in (*known, AclOperation.ALL):
        raise PageError(f"On a resource {java_name(where.resource_type)} the operations are {operation_names(known)} and All.")
    return binding


def _principal(text: str) -> str:
    kind, _, name = text.partition(":")
    if not kind or not name:
        raise PageError(f"Write the principal as User:NAME, not {text[:40]!r}.")
    return text


@page("/acls/rule", "One ACL", query=RULE_FIELDS)
def rule(visit: Visit) -> Page:
    binding = _binding_of(visit.query)
    if binding not in (visible_rules(visit.cluster)[0] or ()):
        raise PageError("There is no such rule; it may have been removed.", 404)
    form = Form(
        "/do/acls/remove", "Remove this rule", "Remove the rule", (),
        f"Removes: {rule_text(binding)}. {_loss(binding)}", binding.rule.principal, _fields_of(binding),
    )  # fmt: skip
    return Page("ACL", tables=[Table("acl", "Rule", _RULE_TITLES, [_rule_row(binding)])], forms=[form], trail=TRAIL)


def _loss(binding: Binding) -> str:
    if binding.rule.permission is Permission.DENY:
        return "What another rule allows is then no longer denied."
    return "Clients that need it are refused from then on."


@action("/acls/remove")
def remove(visit: Visit) -> Done:
    binding = _binding_of(visit.form)
    check_typed(visit, binding.rule.principal)
    wanted = AclFilter(*binding.pattern)._replace(**binding.rule._asdict())
    if not acl_admin.delete_acls(visit.cluster, [wanted]):
        raise PageError("There is no such rule any more; nothing was done.", 404)
    return Done(f"Removed: {rule_text(binding)}.", "/acls")


# Adding


def _wizards(query: Mapping[str, str]) -> list[Form]:
    def common(role: str) -> list[Field]:
        is_it = query.get("role") == role
        given = query if is_it else {}
        return [
            Field("principal", "Principal", given.get("principal", "User:"), is_needed=True),
            Field("host", "Address or network of its clients", given.get("host", WILDCARD)),
            Field("topic", "Topic", given.get("topic", ""), is_needed=True),
            Field("pattern", "The names are", given.get("pattern", ""), choices=PATTERNS),
        ]  # fmt: skip

    producer = [*common("producer"), Field("transactional_id", "Transactional id (empty: none)", query.get("transactional_id", ""))]
    consumer = [*common("consumer"), Field("group", "Group", query.get("group", ""), is_needed=True)]
    effect = "Shows the rules that it needs first; nothing is changed yet."
    return [
        Form("/acls/wizard", "For a producer: let it write to a topic", "Show the rules", producer, effect, hidden={"role": "producer"},
             is_query=True),
        Form("/acls/wizard", "For a consumer: let it read a topic in a group", "Show the rules", consumer, effect,
             hidden={"role": "consumer"}, is_query=True),
    ]  # fmt: skip


def _any_rule() -> Form:
    kinds = [(one.name, java_name(one)) for one in ResourceType]
    operations = [(one.name, java_name(one)) for one in AclOperation]
    permissions = [(one.name, java_name(one)) for one in (Permission.ALLOW, Permission.DENY)]
    return Form("/do/acls/add", "Add any rule", "Add the rule", [
        Field("permission", "Permission", choices=permissions), Field("principal", "Principal", "User:", is_needed=True),
        Field("host", "Address or network of its clients", WILDCARD), Field("operation", "Operation", choices=operations),
        Field("type", "Resource", choices=kinds), Field("name", "Name of the resource (* means all)"),
        Field("pattern", "The name is", choices=PATTERNS),
    ], "Adds the rule at once. A rule that denies wins over rules that allow.")  # fmt: skip


def _needed(given: Mapping[str, str]) -> list[Binding]:
    """Returns the rules that a producer or consumer needs. Raises `PageError` for unusable input."""
    needs = {"producer": PRODUCER_NEEDS, "consumer": CONSUMER_NEEDS}.get(given.get("role", ""))
    pattern = given.get("pattern") or PatternType.LITERAL.name
    if needs is None or pattern not in PatternType.__members__:
        raise PageError("Choose the wizard for a producer or for a consumer on the page of ACLs.")
    principal, host = _principal(given.get("principal", "").strip()), given.get("host", "").strip() or WILDCARD
    rules = []
    for field, kind in CHECKED.items():
        name = given.get(field, "").strip()
        if not name and kind in needs and kind is not ResourceType.TRANSACTIONAL_ID:
            raise PageError(f"{field} is empty.")
        where = Pattern(kind, name, PatternType[pattern])
        rules += [Binding(where, Rule(principal, host, operation, Permission.ALLOW)) for operation in needs.get(kind, ()) if name]
    return rules


@page("/acls/wizard", "The rules that a producer or a consumer needs; changes nothing",
      query=("role", "principal", "host", "topic", "group", "transactional_id", "pattern"))  # fmt: skip
def wizard(visit: Visit) -> Page:
    needed = _needed(visit.query)
    there, remark = visible_rules(visit.cluster)
    new = [one for one in needed if one not in (there or ())]
    rows = [{**_rule_row(one), "new": Mark("new", "warn") if one in new else Mark("exists", "ok")} for one in needed]
    table = Table("rules", "Rules that it needs", [*_RULE_TITLES, *columns(new="State")], rows)
    given = {name: visit.query[name] for name in ("role", "principal", "host", "topic", "group", "transactional_id", "pattern")
             if visit.query.get(name)}  # fmt: skip
    add = Form("/do/acls/wizard", "Do it", "Add these rules", (), f"Adds {counted(len(new), 'rule')}.", hidden=given, is_open=True)
    notes = [*_notes(there, remark), Note("Nothing was changed yet. These are the rules.")]
    facts = [("The same command", Code(_command(visit.query, needed)))]
    return Page("ACLs for a " + visit.query["role"], facts, [table], [*([add] if new else []), *_wizards(visit.query)], notes, trail=TRAIL)


def _command(given: Mapping[str, str], needed: Sequence[Binding]) -> str:
    names = dict.fromkeys((OPTIONS[pattern.resource_type], pattern.name) for pattern, _ in needed)
    rule = needed[0].rule
    words = ["ottla acl add", f"--{given['role']}", "--allow-principal", rule.principal]
    words += [word for pair in names for word in pair]
    words += ["--allow-host", rule.host] if rule.host != WILDCARD else []
    words += ["--resource-pattern-type", "prefixed"] if needed[0].pattern.pattern_type is PatternType.PREFIXED else []
    return " ".join(words)


@action("/acls/wizard")
def add_needed(visit: Visit) -> Done:
    needed = _needed(visit.form)
    acl_admin.create_acls(visit.cluster, needed)
    return Done(f"{needed[0].rule.principal} has {counted(len(needed), 'rule')} for this now.", "/acls")


@action("/acls/add")
def add(visit: Visit) -> Done:
    binding = _binding_of(visit.form)
    acl_admin.create_acls(visit.cluster, [binding])
    return Done(f"Added: {rule_text(binding)}.", "/acls")


# The check


@page("/acls/check", "What a principal may do on a topic, a group or a transactional id, and the rules behind it",
      query=("principal", "host", *CHECKED, "operation"))  # fmt: skip
def check(visit: Visit) -> Page:
    query = {name: visit.query.get(name, "").strip() for name in ("principal", "host", *CHECKED, "operation")}
    form = Form("/acls/check", "Ask about a principal", "Look", [
        Field("principal", "Principal (empty: of this console)", query["principal"]),
        Field("host", "Address of its client (empty: any)", query["host"]), Field("topic", "Topic", query["topic"]),
        Field("group", "Group", query["group"]), Field("transactional_id", "Transactional id", query["transactional_id"]),
        Field("operation", "What was refused", query["operation"],
              choices=[("", "show all operations"), *((one.name, java_name(one)) for one in AclOperation)]),
    ], is_query=True, is_open=True)  # fmt: skip
    if not visit.query.keys() & {"principal", *CHECKED}:
        return Page("ACLs", forms=[form], tabs=TABS)
    rules, remark = visible_rules(visit.cluster)
    own = own_principal(visit.desk.settings.properties)
    principal = _principal(query["principal"]) if query["principal"] else own
    named = [(ResourceType.CLUSTER, CLUSTER_NAME), *((kind, query[field]) for field, kind in CHECKED.items() if query[field])]
    rows = []
    notes = _notes(rules, remark)
    for kind, name in named:
        is_own = not query["principal"] or remark == NO_AUTHORIZER
        judged = (
            access_by_broker(visit.cluster, rules, own, kind, name) if is_own
            else access_by_rules(rules, principal, query["host"] or None, kind, name)
        )  # fmt: skip
        rows.append({
            "resource": java_name(kind), "name": name, "may": operation_names(judged.allowed), "may_not": operation_names(judged.refused),
            "why": judged.why,
        })  # fmt: skip
        if query["operation"] in AclOperation.__members__ and (kind is not ResourceType.CLUSTER or len(named) == 1):
            notes.append(_verdict(judged, rules, principal, query["host"], kind, name, AclOperation[query["operation"]]))
    titles = columns(resource="Resource", name="Name", may="May", may_not="May not", why="Rules about it")
    facts = [("Principal", principal or "of a certificate or token"), ("Judged by", "the broker" if is_own else "the ACLs alone")]
    if rules and (not is_own or query["transactional_id"]):
        notes.append(Note("A super user may do everything, also without a rule. The protocol does not say who is one."))
    return Page("ACLs", facts, [Table("access", "What it may do", titles, rows)], [form], notes, TABS)


def _verdict(
    judged: Access, rules: Sequence[Binding] | None, principal: str | None, host: str, kind: ResourceType, name: str, wanted: AclOperation
) -> Note:
    """Says whether an operation is allowed, why, and which command allows it."""
    what = f"{java_name(wanted)} on {java_name(kind)} {name}"
    who = principal or "The principal"
    if not judged.allowed and not judged.refused:
        return Note(f"Whether {who} may {what} is not known: {judged.why}.", "warn")
    if wanted in judged.allowed:
        return Note(f"{who} may {what}. A client that was refused has another principal or address, or lacks another operation.", "ok")
    about = rules_about(rules or (), principal, host or None, kind, name)
    denied = [one for one in about if one.rule.permission is Permission.DENY and one.rule.operation in (wanted, AclOperation.ALL)]
    option = f"{OPTIONS[kind]} {name}" if kind in OPTIONS else "--cluster"
    if denied and not is_allowed(about, wanted):
        one = denied[0]
        where = f"{OPTIONS[kind]} {one.pattern.name}" if kind in OPTIONS else "--cluster"
        pattern = " --resource-pattern-type prefixed" if one.pattern.pattern_type is PatternType.PREFIXED else ""
        at = "" if one.rule.host == WILDCARD else f" --deny-host {one.rule.host}"
        mend = f"ottla acl remove --deny-principal '{one.rule.principal}'{at} --operation {java_name(one.rule.operation)} {where}{pattern}"
        return Note(f"{who} may not {what}, because a rule denies it: {rule_text(one)}. To end that: {mend}", "warn")
    mend = f"ottla acl add --allow-principal {principal or 'User:NAME'} --operation {java_name(wanted)} {option}"
    return Note(f"{who} may not {what}, because no rule allows it. To allow it: {mend}", "warn")
