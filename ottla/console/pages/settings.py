"""Pages about the settings of brokers, topics and groups, each value with its source, and a form that changes one setting after a dry run.

The pages of brokers and topics show the same table.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError
from ottla.client.core import admin
from ottla.console.model import Done, Field, Form, Link, Mark, Note, Page, PageError, Table, columns, href
from ottla.console.visit import Visit, action, page

SOURCES = {
    1: "topic", 2: "dynamic, this broker", 3: "dynamic, all brokers", 4: "start of the broker", 5: "default", 6: "broker's logger",
    7: "client metrics", 8: "group",
}  # fmt: skip
"""Names of the numbers of `config_source` in DescribeConfigs responses (KIP-226)."""
DEFAULT_SOURCE = 5
KINDS = {"brokers": admin.BROKER_RESOURCE, "topics": admin.TOPIC_RESOURCE, "groups": admin.GROUP_RESOURCE}
LINKS_MAX = 12
"""Maximum number of links to brokers on the page of settings. Other brokers, topics and groups are selected with the form."""
TITLES = columns(name="Setting", value="Value", source="Source", default="Without it", changeable="Dynamic", doc="Meaning")
TRAIL = (Link("Config", "/config"),)


def setting_table(visit: Visit, kind: str, name: str) -> Table:
    """Asks for the settings of a resource, and returns a table: changed settings first. Raises `ApiError`."""
    rows = [
        {
            "name": Link(one.name, href("config", "change", kind=kind, name=name, setting=one.name)),
            "value": _value(one), "source": _source(one), "default": _without(one), "changeable": not one.read_only,
            "doc": one.documentation or "",
        }
        for one in sorted(_settings(visit, kind, name), key=lambda one: (one.config_source == DEFAULT_SOURCE, one.name))
    ]  # fmt: skip
    return Table("settings", "Settings", TITLES, rows, "Nothing is set.")


def change_form(kind: str, name: str, setting: str = "", value: str = "") -> Form:
    """Returns the form that asks the broker to validate a change without making it."""
    field = [] if setting else [Field("setting", "Setting", is_needed=True)]
    hidden = {"kind": kind, "name": name, **({"setting": setting} if setting else {})}
    return Form(
        "/config/change", f"Change {setting}" if setting else "Change a setting", "Try it (dry run)",
        [*field, Field("value", "Value", value), Field("reset", "Back to the value without it", kind="checkbox")],
        "Asks the broker whether it would accept the change; nothing is changed yet.", hidden=hidden, is_query=True, is_open=bool(setting),
    )  # fmt: skip


def _settings(visit: Visit, kind: str, name: str) -> list[Any]:
    if kind not in KINDS:
        raise PageError(f"Settings belong to {', '.join(KINDS)}, not to {kind[:40]!r}.", 404)
    if kind == "brokers" and name and (not name.isdecimal() or int(name) not in visit.cluster.metadata.brokers):
        visit.cluster.refresh([])
        if not name.isdecimal() or int(name) not in visit.cluster.metadata.brokers:
            raise PageError(f"There is no broker {name[:40]!r}.", 404)
    found = admin.describe_configs(visit.cluster, KINDS[kind], [name], synonyms=True, documentation=True)[name]
    if isinstance(found, ApiError):
        raise found
    return found


def _value(one: Any) -> Any:
    return Mark("hidden", "ok") if one.is_sensitive else one.value


def _source(one: Any) -> str:
    return SOURCES.get(one.config_source, str(one.config_source))


def _without(one: Any) -> str | None:
    """Returns the value that applies if the setting is removed; None for a setting that is not set."""
    others = [other for other in one.synonyms or () if other.source != one.config_source]
    if one.config_source == DEFAULT_SOURCE or one.is_sensitive or not others:
        return None
    return f"{others[0].value} ({SOURCES.get(others[0].source, '')})"


@page("/config", "The settings of a broker, a topic or a group with the source of each value", name="Config", section="Cluster",
      query=("kind", "name"))  # fmt: skip
def config(visit: Visit) -> Page:
    view = visit.view()
    brokers = sorted(broker.node_id for broker in view.metadata.brokers)
    kind = visit.query.get("kind") or "brokers"
    name = visit.query.get("name", "" if "kind" in visit.query else str(brokers[0]))
    if kind != "brokers" and not name:
        raise PageError("Name a topic or a group.", 404)
    links = [Link("defaults of all brokers", href("config", kind="brokers", name=""))]
    links += [Link(f"broker {one}", href("config", kind="brokers", name=str(one))) for one in brokers[:LINKS_MAX]]
    choose = Form("/config", "Show the settings of another", "Show", [
        Field("kind", "Of", kind, choices=[(one, one) for one in KINDS]), Field("name", "Name (empty: the defaults of all brokers)", name),
    ], is_query=True, is_open=True)  # fmt: skip
    title = f"Settings of {kind.removesuffix('s')} {name}" if name else "Defaults of all brokers"
    forms = [choose, change_form(kind, name)]
    return Page(title, [("Brokers", links)], [setting_table(visit, kind, name)], forms)


@page("/config/change", "One setting: its values by source, and the dry run of a change",
      query=("kind", "name", "setting", "value", "reset"))  # fmt: skip
def try_change(visit: Visit) -> Page:
    kind, name, setting = (visit.query.get(key, "") for key in ("kind", "name", "setting"))
    found = _found(visit, kind, name, setting)
    value, is_reset = visit.query.get("value", ""), visit.query.get("reset") == "yes"
    facts: list[tuple[str, Any]] = [("Now", "not set" if found is None else _value(found)), ("Of", f"{kind.removesuffix('s')} {name}")]
    rows = []
    if found is not None:
        facts += [("Source", _source(found)), ("While it runs", "can be changed" if not found.read_only else "needs a restart")]
        rows = [
            {"source": SOURCES.get(one.source, str(one.source)), "key": one.name, "value": None if found.is_sensitive else one.value}
            for one in found.synonyms or ()
        ]
    table = Table("values", "Its values, the first one counts", columns(source="Source", key="Key", value="Value"), rows,
                  "It has no value there.")  # fmt: skip
    notes = [Note(found.documentation)] if found is not None and found.documentation else []
    if found is not None and found.is_sensitive:
        notes.append(Note("The value is secret, so it is only changed by ottla config alter --add-config-file.", "warn"))
        return Page(setting, facts, [table], notes=notes, trail=_trail(kind, name))
    forms = [change_form(kind, name, setting, value)]
    if value or is_reset:
        note, do = _tried(visit, kind, name, setting, None if is_reset else value)
        notes.append(note)
        forms = [*do, *forms]
    return Page(setting, facts, [table], forms, notes, trail=_trail(kind, name))


def _found(visit: Visit, kind: str, name: str, setting: str) -> Any:
    """Returns a setting of a resource. The defaults for all brokers (kind `brokers`, empty name) need not contain each setting, so a
    missing one is returned as None. Raises `PageError` if any other resource lacks the setting."""
    for one in _settings(visit, kind, name):
        if one.name == setting:
            return one
    if kind == "brokers" and not name and setting:
        return None
    raise PageError(f"{kind.removesuffix('s').capitalize()} {name[:100]} has no setting {setting[:100]!r}.", 404)


def _trail(kind: str, name: str) -> list[Link]:
    return [*TRAIL, Link(f"{kind.removesuffix('s')} {name}", href("config", kind=kind, name=name))]


def _tried(visit: Visit, kind: str, name: str, setting: str, value: str | None) -> tuple[Note, list[Form]]:
    """Asks the broker whether it would accept a change, without doing it. The value None removes the setting. Returns a note with the
    answer, and the form that does the change if the broker accepts it."""
    what = f"set to {value}" if value is not None else "removed, so that the next value in the table counts"
    try:
        _alter(visit, kind, name, setting, value, validate_only=True)
    except ApiError as error:
        return Note(f"Nothing was changed. The broker would refuse this: {error.message} ({error.code.name})", "bad"), []
    hidden = {"kind": kind, "name": name, "setting": setting, **({"reset": "yes"} if value is None else {"value": value})}
    do = Form("/do/config/change", "Do it", "Change it", (), f"{setting} is {what}.", hidden=hidden, is_open=True)
    return Note(f"Nothing was changed yet. The broker would accept this: {setting} is {what}."), [do]


def _alter(visit: Visit, kind: str, name: str, setting: str, value: str | None, *, validate_only: bool = False) -> None:
    changes, deletions = ({setting: value}, ()) if value is not None else ({}, (setting,))
    admin.alter_configs(visit.cluster, KINDS[kind], name, changes=changes, deletions=deletions, validate_only=validate_only)


@action("/config/change")
def change(visit: Visit) -> Done:
    kind, name, setting = visit.form.get("kind", ""), visit.form.get("name", ""), visit.field("setting")
    _found(visit, kind, name, setting)
    value = None if visit.form.get("reset") == "yes" else visit.field("value")
    _alter(visit, kind, name, setting, value)
    what = "was removed" if value is None else f"is set to {value}"
    return Done(f"{setting} of {kind.removesuffix('s')} {name or 'defaults'} {what}.", href("config", kind=kind, name=name))
