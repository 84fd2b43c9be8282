"""Pages about users: the SCRAM credentials of each, and forms that set a password and remove credentials."""

from __future__ import annotations

from ottla.base.errors import ApiError
from ottla.client.blocking import scram_admin
from ottla.console.model import Done, Field, Form, Link, Note, Page, PageError, Table, columns, href
from ottla.console.visit import Visit, action, check_typed, page

TRAIL = (Link("Users", "/users"),)
MECHANISMS = [(name, name) for name in scram_admin.MECHANISMS]


@page("/users", "The users with SCRAM credentials", name="Users", section="Access")
def users(visit: Visit) -> Page:
    found = scram_admin.describe_scram(visit.cluster)
    rows = []
    for user, credentials in sorted(found.items()):
        if isinstance(credentials, ApiError):
            raise credentials
        rows += [
            {"user": Link(user, href("user", name=user)), "mechanism": one.mechanism, "iterations": one.iterations}
            for one in credentials
        ]  # fmt: skip
    titles = columns(user="User", mechanism="Mechanism", iterations="Iterations")
    table = Table("users", "Users", titles, rows, "No user has SCRAM credentials.")
    note = Note("Users of PLAIN, of certificates and of tokens are not listed: the cluster does not store them.")
    return Page("Users", tables=[table], forms=[_password_form("")], notes=[note])


def _password_form(user: str) -> Form:
    name = [] if user else [Field("user", "User", is_needed=True)]
    return Form(
        "/do/users/set", f"Change the password of {user}" if user else "Add a user, or change a password", "Set the password",
        [
            *name, Field("password", "Password", kind="password", is_needed=True),
            Field("again", "Password once more", kind="password", is_needed=True), Field("mechanism", "Mechanism", choices=MECHANISMS),
            Field("iterations", "Iterations", str(scram_admin.ITERATIONS), "number"),
        ],
        "The cluster gets a salted hash, not the password. The next login needs the new password.", hidden={"user": user} if user else {},
    )  # fmt: skip


@page("/user", "A user: its credentials, and links to its ACLs and quotas", query=("name",))
def user(visit: Visit) -> Page:
    name = visit.query.get("name", "")
    rows = [{"mechanism": one.mechanism, "iterations": one.iterations} for one in _credentials(visit, name)]
    table = Table("credentials", "Credentials", columns(mechanism="Mechanism", iterations="Iterations"), rows)
    facts = [
        ("ACLs", Link(f"rules of User:{name}", href("acls", "rules", q=f"User:{name}"))),
        ("Quotas", Link("quotas", href("quotas", q=name))),
        ("What it may do", Link("check", href("acls", "check", principal=f"User:{name}"))),
    ]
    remove = Form(
        "/do/users/remove", "Remove credentials", "Remove the credentials",
        [Field("mechanism", "Mechanism", choices=[("", "all"), *MECHANISMS])],
        f"{name} can no longer log in by SCRAM, and its open connections are closed. ACLs and quotas of the user stay.", name,
        {"user": name},
    )  # fmt: skip
    return Page(f"User {name}", facts, [table], [_password_form(name), remove], trail=TRAIL)


def _credentials(visit: Visit, name: str) -> list[scram_admin.Credential]:
    """Returns the credentials of a user. Raises `PageError` for a user without credentials."""
    found = scram_admin.describe_scram(visit.cluster, [name])[name] if name else []
    if isinstance(found, ApiError) or not found:
        raise PageError(f"No user {name[:100]!r} has SCRAM credentials.", 404)
    return found


@action("/users/set")
def set_password(visit: Visit) -> Done:
    name, mechanism, password = visit.field("user"), visit.form.get("mechanism", ""), visit.form.get("password", "")
    iterations = visit.whole("iterations", scram_admin.ITERATIONS)
    if mechanism not in scram_admin.MECHANISMS:
        raise PageError(f"The mechanism is one of {', '.join(scram_admin.MECHANISMS)}; nothing was done.")
    if not password or password != visit.form.get("again", ""):
        raise PageError("The password is empty or differs from its repetition; nothing was done.")
    if not scram_admin.ITERATIONS_MIN <= iterations <= scram_admin.ITERATIONS_MAX:
        limits = f"{scram_admin.ITERATIONS_MIN} to {scram_admin.ITERATIONS_MAX}"
        raise PageError(f"The iterations are {limits}, not {iterations}; nothing was done.")
    scram_admin.alter_scram(visit.cluster, name, passwords={mechanism: (password, iterations)})
    return Done(f"User {name} can log in by {mechanism}.", href("user", name=name))


@action("/users/remove")
def remove(visit: Visit) -> Done:
    name, mechanism = visit.field("user"), visit.form.get("mechanism", "")
    check_typed(visit, name)
    there = [one.mechanism for one in _credentials(visit, name)]
    if mechanism and mechanism not in there:
        raise PageError(f"User {name!r} has no credentials of {mechanism[:40]}; nothing was done.", 404)
    scram_admin.alter_scram(visit.cluster, name, deletions=[mechanism] if mechanism else there)
    return Done(f"Removed {mechanism or ', '.join(there)} of user {name}.", "/users")
