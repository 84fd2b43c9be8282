"""Generates the reference pages under `docs/reference/` from the code, so that they cannot differ from it.

`python -m tools.docs` writes them. `--check` compares and lists outdated pages (exit code 1). Each page is a function that returns the
page's text, or `None` while the module that it describes does not exist. Pages begin with a line that names their source. Handlers are read
as source and not imported, because only their docstrings are needed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
HELP = "--help"
MADE = "<!-- Made by tools/docs.py from {source}; edit that, then run `make rewrite`. -->"


def _page(title: str, source: str, lines: Iterable[str]) -> str:
    return "\n".join([MADE.format(source=source), "", f"# {title}", "", *lines]).rstrip() + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(heads), line("---" for _ in heads), *(line(row) for row in rows)]


def _there(module: str) -> bool:
    """Whether a module of Ottla exists. False also if its package does not exist."""
    path = ROOT / Path(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def handler_sections(docstring: str) -> dict[str, str]:
    """Splits a handler's docstring by heading; the text before the first heading has an empty key."""
    sections: dict[str, list[str]] = {"": []}
    heading = ""
    for line in docstring.splitlines():
        found = re.match(r"(Behaviour|Version notes|Not done)\b:? ?(.*)", line)
        if found:
            heading, line = found.groups()
            sections[heading] = []
        sections[heading].append(line)
    return {name: " ".join(" ".join(lines).split()) for name, lines in sections.items()}


def _handler(path: str) -> dict[str, str]:
    return handler_sections(ast.get_docstring(ast.parse((ROOT / "ottla" / path).read_text(encoding="utf-8"))) or "")


def apis_page() -> str | None:
    if not (_there("ottla.handlers") and _there("ottla.wire.framing")):
        return None
    from ottla.handlers.served_apis import TABLE
    from ottla.wire.apis import API_NAMES

    rows = []
    notes: list[str] = []
    for key, api in sorted(TABLE.items()):
        path = f"handlers/{api.handler.replace('.', '/')}.py"
        name, said = api.name, _handler(path)
        what = re.sub(rf"^{name}: ", "", said.get("", ""))
        who = "clients that ask for extensions" if api.is_extension else "everybody" if api.is_advertised else "brokers"
        rows.append((key, name, f"{api.min_version}-{api.max_version}", what, who, _rights(api.rights), f"`{path}`"))
        if gaps := said.get("Not done"):
            notes.append(f"- **{name}**: {gaps}")
    asked = "Extensions (keys from 20000 on) are Ottla's own APIs, for clients that ask for them by a tagged field of ApiVersions."
    lines = [f"ApiVersions answers with this table; each version in a range works. {asked}", ""]
    lines += ["A request needs some or all of the rights in its row, depending on its content.", ""]
    lines += _table(("Key", "API", "Versions", "What it does", "For", "Rights", "Handler"), rows)
    lines += ["", "## Not done", "", *(notes or ["Nothing."])]
    absent = [f"{API_NAMES[key]} ({key})" for key in sorted(API_NAMES) if key not in TABLE]
    lines += ["", "## Known to the codec, not served", "", ", ".join(absent) + "." if absent else "None."]
    return _page("APIs", "`ottla/handlers/served_apis.py` and `ottla/handlers/`", lines)


def _rights(rights: Iterable[Any]) -> str:
    return ", ".join(f"{right.operation.name} {right.resource_type.name}" for right in rights) or "none"


def settings_page() -> str | None:
    if not _there("ottla.base.config"):
        return None
    from ottla.base.config import BROKER_SETTINGS, SETTINGS, Scope
    from ottla.base.settings.deployments import CLUSTER_DEFAULTS, SINGLE_BROKER_DEFAULTS

    single, cluster = (
        ", ".join(f"`{name}={BROKER_SETTINGS[name].text(value)}`" for name, value in defaults.items())
        for defaults in (SINGLE_BROKER_DEFAULTS, CLUSTER_DEFAULTS)
    )
    lines = [
        "A dynamic setting may be changed while the broker runs. Settings that begin with `ottla.` are ours, all others are Kafka's.",
        "",
        f"Some defaults depend on `zookeeper.connect`. Without it, a single broker has {single}. With it, a broker has {cluster}.",
        "",
    ]
    for scope in Scope:
        settings = [setting for setting in SETTINGS if setting.scope is scope and not setting.is_internal]
        if settings:
            lines += [
                f"## {scope.name.capitalize()}",
                "",
                *_table(("Name", "Meaning", "Default", "Type", "Dynamic", "Valid"), _rows(settings)),
                "",
            ]
    return _page("Settings", "`ottla/base/settings/`", lines)


def _rows(settings: Iterable[Any]) -> Iterable[tuple[str, ...]]:
    for setting in sorted(settings, key=lambda setting: str(setting.name)):
        default = setting.default_text
        shown = "not set" if default is None else f"`{default}`" if default else "empty"
        dynamic = setting.update.name.lower().replace("_", " ") if setting.scope.name == "BROKER" and setting.is_dynamic else ""
        kind = dynamic or ("yes" if setting.is_dynamic else "no")
        yield f"`{setting.name}`", setting.doc, shown, setting.type.name.lower(), kind, setting.valid_text


def errors_page() -> str:
    from ottla.base.errors import ErrorCode

    lines = ["The protocol has the number, messages for people have the name.", ""]
    return _page("Error codes", "`ottla/base/errors.py`", lines + _table(("Code", "Name"), ((int(code), code.name) for code in ErrorCode)))


def cli_page() -> str | None:
    """Makes the page of the command line from `ottla --help-json`. A command has `name`, `help`, `options` (each with `names`, `help`, and
    perhaps `value` and `default`) and `commands`.
    """
    if not any("--help-json" in path.read_text(encoding="utf-8") for path in (ROOT / "ottla" / "cli").glob("*.py")):
        return None
    command = [sys.executable, "-m", "ottla.cli.main", "--help-json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    program = json.loads(done.stdout)
    return _page("Command line", "`ottla/cli/`", command_index(program) + command_lines(program, [], program["options"]))


def command_index(program: Mapping[str, Any]) -> list[str]:
    """Returns a list of links to the sections of all commands."""
    lines = []
    for command in program["commands"]:
        lines.append(f"- {_link('ottla', command)}")
        lines += [f"    - {_link('ottla ' + command['name'], below)}" for below in command.get("commands") or []]
    return [*lines, ""]


def _link(above: str, command: Mapping[str, Any]) -> str:
    name = f"{above} {command['name']}"
    return f"[`{name}`](#{name.replace(' ', '-')}): {command.get('help') or ''}"


def command_lines(command: Mapping[str, Any], parents: Sequence[str], common: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a command's section, then the sections of its subcommands. Only the program's own section describes the `common` options;
    the others name them."""
    names = [*parents, str(command["name"])]
    lines = [f"## `{' '.join(names)}`", "", str(command.get("help") or ""), ""]
    options = [option for option in command.get("options") or [] if HELP not in option["names"]]
    shared = [option for option in options if option in common and parents]
    own = [option for option in options if option not in shared]
    if own:
        lines += [*_table(("Option", "Meaning"), [(f"`{_option(option)}`", _meaning(option)) for option in own]), ""]
    if shared:
        words = ", ".join(f"`{option['names'][0]}`" for option in shared)
        lines += [f"Also, [as everywhere](#ottla): {words}.", ""]
    for table in command.get("tables") or []:
        title = str(table["title"])
        lines += [*_table((title[:1].upper() + title[1:], "Meaning"), [(f"`{word}`", meaning) for word, meaning in table["rows"]]), ""]
    examples = command.get("examples") or []
    if examples:
        lines += ["```sh", *(line for found in examples for line in (f"# {found['does']}", found["line"])), "```", ""]
    for below in command.get("commands") or []:
        lines += command_lines(below, names, common)
    return lines


def _meaning(option: Mapping[str, Any]) -> str:
    meaning, default = str(option.get("help") or ""), option.get("default")
    return f"{meaning} (default {default})" if default and "default" not in meaning else meaning


def _option(option: Mapping[str, Any]) -> str:
    """Returns an option with the placeholder of its value: `-d, --data-dir DIR`."""
    value = option.get("value")
    return ", ".join(option["names"]) + (f" {value}" if value else "")


STATES = {
    "ottla.server.connection_state": "Connections of clients",
    "ottla.groups.states": "Groups",
    "ottla.transactions.states": "Transactions",
}
"""Modules with `ALLOWED` tables of transitions, and their titles."""


def states_page() -> str | None:
    """Makes the page of state machines: a diagram of each `ALLOWED` table of transitions, and a table of meanings for states whose enum
    values are sentences that explain them.
    """
    lines: list[str] = []
    for module, title in STATES.items():
        if not _there(module):
            continue
        tables = {name: table for name, table in sorted(vars(importlib.import_module(module)).items()) if name.endswith("ALLOWED")}
        for name, table in tables.items():
            kind = name.removesuffix("ALLOWED").strip("_").replace("_", " ").lower()
            lines += [f"## {title}{', ' + kind if kind else ''}", "", *meanings(table), *diagram(table), ""]
    return _page("States", "the `ALLOWED` tables in `ottla`", lines) if lines else None


def meanings(allowed: Iterable[Any]) -> list[str]:
    """Returns a table of the states of `allowed` with their meanings, which are the values of the enum if these are sentences."""
    rows = [(_state(state), state.value) for state in allowed if isinstance(state, Enum) and " " in str(state.value)]
    return [*_table(("State", "A connection in it"), rows), ""] if rows else []


def diagram(allowed: Mapping[Any, Iterable[Any]]) -> list[str]:
    """Returns a Mermaid diagram of a table that has the allowed next states of each state."""
    moves = [f"    {_state(start)} --> {_state(end)}" for start, ends in allowed.items() for end in sorted(ends, key=_state)]
    return ["```mermaid", "stateDiagram-v2", *moves, "```"]


def _state(state: Any) -> str:
    return "".join(part.capitalize() for part in state.name.split("_")) if isinstance(state, Enum) else str(state)


def metrics_page() -> str | None:
    if not _there("ottla.server.monitoring.metric_families"):
        return None
    from ottla.server.monitoring.metric_families import DIALECTS, FAMILIES, SERVICE_FAMILIES, alias

    rows = [
        (f"`{family.name}`", family.help, family.kind, ", ".join(f"`{name}`" for dialect in DIALECTS if (name := alias(family, dialect))))
        for family in (*FAMILIES.values(), *SERVICE_FAMILIES.values())
    ]
    lines = ["Where they are found, and what a scrape costs: [metrics](../metrics.md).", ""]
    table = _table(("Name", "Meaning", "Kind", "In other dialects"), rows)
    return _page("Metrics", "`ottla/server/monitoring/metric_families.py`", lines + table)


def resets_page() -> str:
    from tools import reset_table

    return _page("Resetting offsets", "`tools/reset_table.py`", reset_table.page_lines())


def client_page() -> str:
    from tools import client_page as made

    return _page("The Python client", "`ottla/client`", made.page_lines(_table))


def spark_page() -> str | None:
    if not _there("ottla.spark.options"):
        return None
    from ottla.spark.option_tables import AS_OWNED, OWNED, SINK_TABLE, SOURCE_TABLE, WITHOUT_EFFECT

    lines = ["The names are not case-sensitive. They have the same meanings as in Spark's own Kafka connector.", ""]
    for title, table in (("Reading", SOURCE_TABLE), ("Writing", SINK_TABLE)):
        rows = [(f"`{one.name}`", f"`{one.default}`" if one.default else "", one.used_by, one.meaning) for one in table]
        lines += [f"## {title}", "", *_table(("Option", "Default", "Used by", "Meaning"), rows), ""]
    lines += ["## Refused", "", "The pipeline itself decides these.", ""]
    names = {name: f"`{name}`" + (f" (but `{AS_OWNED[name]}`)" if name in AS_OWNED else "") for name in OWNED}
    lines += _table(("Key", "Instead"), ((names[name], instead) for name, instead in sorted(OWNED.items())))
    lines += ["", "## Without effect", "", "Accepted, so that a query moves over as it is. So are options of the other table: a sink, say,"]
    lines += ["always writes the column `headers` if there is one. Any other key `kafka.*` gives a warning.", ""]
    lines += _table(("Key", "Why"), ((f"`{name}`", reason) for name, reason in WITHOUT_EFFECT.items()))
    return _page("Options of the Spark source and sink", "`ottla/spark/options.py`", lines)


def kips_page() -> str:
    from tools import kips

    return _page("KIPs", "the citations in `ottla/` and `tools/kips.py`", kips.page_lines(_table))


PAGES: dict[str, Callable[[], str | None]] = {
    "apis.md": apis_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "cli.md": cli_page,
    "resets.md": resets_page,
    "states.md": states_page,
    "kips.md": kips_page,
    "client.md": client_page,
    "spark.md": spark_page,
}


def pages() -> dict[str, str]:
    """Returns the pages by name, without those that are None."""
    return {name: text for name, make in PAGES.items() if (text := make()) is not None}


def stale(folder: Path = REFERENCE) -> list[str]:
    """Returns the names of pages that differ from the code, or that the code no longer generates."""
    made = pages()
    differing = [name for name, text in made.items() if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text]
    return sorted(differing + [path.name for path in folder.glob("*.md") if path.name not in made])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Makes docs/reference/ from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing, name the pages that are out of date")
    if parser.parse_args(arguments).check:
        names = stale()
        for name in names:
            print(f"docs/reference/{name} is out of date: run `make rewrite`", file=sys.stderr)
        return 1 if names else 0
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
