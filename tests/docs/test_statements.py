"""What the pages say in passing is true: settings and their defaults, metrics, commands and their options."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from ottla.base.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from ottla.cli.command_groups import GROUPS, canonical, find_command
from ottla.cli.parser import build_parser
from tests.docs.pages import ROOT, blocks_of, pages
from tests.server.metric_names import exported_names
from tests.tidy.test_invariants import exists

PAGES = [*pages(), ROOT / "README.md", ROOT / "CHANGELOG.md"]
UNITS = {"": 1.0, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SECONDS = {"ms": 0.001, "s": 1, "seconds": 1, "min": 60, "minutes": 60, "h": 3600, "hours": 3600, "day": 86400, "days": 86400}
SECONDS_OF_NAME = {"ms": 0.001, "seconds": 1, "minutes": 60, "hours": 3600}
"""The unit of a setting by the last part of its name."""
AMOUNT = rf"(\d[\d,]*) ?({'|'.join(filter(None, [*UNITS, *SECONDS]))}|)"
NO_SETTINGS = ("ottla.audit", "ottla.console.listen")
"""A logger, and a setting whose part does not exist yet."""
OTHERS_METRICS = ("ottla_pipeline_", "ottla_mirror_", "kafka_client_")
"""Prefixes of the metrics of Spark pipelines and mirrors, and of the metrics that clients push."""
SETTINGS = {**GROUP_SETTINGS, **TOPIC_SETTINGS, **BROKER_SETTINGS}


def inline_code(page: Path) -> list[str]:
    """What stands in backticks in sentences and tables, not in blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]


def amount(setting: str, number: str, unit: str) -> float:
    """What is said of a setting, `10 minutes` or `64 MiB`, in the unit that the setting has."""
    value = int(number.replace(",", ""))
    if unit in SECONDS:
        return value * SECONDS[unit] / SECONDS_OF_NAME[setting.rpartition(".")[2]]
    return value * UNITS[unit]


def wrong_defaults(text: str) -> list[str]:
    """`name` (value) where that is not the setting's default."""
    found = []
    for name, number, unit in re.findall(rf"`([a-z][\w.]+)`\s\({AMOUNT}\)", text):
        setting = SETTINGS.get(name)
        if setting is not None and setting.default != amount(name, number, unit):
            found.append(f"{name} is {setting.default}, not {number} {unit}")
    return found


def default_cells(text: str) -> list[tuple[str, str]]:
    """Setting and value of the tables with a column `Default`; several in a row are separated by commas in both cells."""
    found = []
    for table in re.findall(r"^\|[^\n]*\| Default \|[^\n]*\n\|[- |]+\|\n((?:\|.*\n)+)", text, re.MULTILINE):
        for row in table.splitlines():
            names, values = (cell.strip() for cell in row.strip("|").split(" | ")[:2])
            settings = re.findall(r"`([\w.]+)`", names)
            said = values.split(", ") if len(settings) > 1 else [values]
            found += list(zip(settings, said, strict=True))
    return found


def wrong_cell(name: str, said: str) -> str | None:
    """What is wrong with a default in a table; None if nothing is."""
    if name not in SETTINGS:
        return f"no setting {name}"
    default = SETTINGS[name].default
    given = re.fullmatch(AMOUNT, said)
    if given is None:
        return None if said.strip("`") == SETTINGS[name].default_text else f"{name} is {default}, not {said}"
    return None if default == amount(name, *given.groups()) else f"{name} is {default}, not {said}"


def wrong_command(line: str) -> str | None:
    """What is wrong with a command such as `ottla topic create NAME -p 3`; None if nothing is."""
    words = shlex.split(line.replace("...", ""))[1:]
    if words[:1] == ["help"]:
        words = words[1:]
    words = canonical(words) if words else []
    if not words or words[0].startswith("-") or words[0] not in GROUPS:
        is_known = not words or words[0].startswith(("-", "kafka-", "version")) or not words[0].isalpha() or words[0].isupper()
        return None if is_known else f"{line}: no command {words[0]}"
    if (found := find_command(words)) is None:
        is_verb = len(words) > 1 and re.fullmatch(r"[a-z][a-z-]+", words[1])
        return f"{line}: no verb {words[1]}" if is_verb else None  # the group, or a list of its verbs
    command, rest = found[0], words[found[1] :]
    known = {name for action in build_parser("ottla", command)._actions for name in action.option_strings}
    unknown = [word for word in rest if re.fullmatch(r"--?[a-zA-Z][\w-]*", word.partition("=")[0]) and word.partition("=")[0] not in known]
    return f"{line}: no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_and_their_defaults(page: Path) -> None:
    assert wrong_defaults(page.read_text()) == []
    assert [wrong for cell in default_cells(page.read_text()) if (wrong := wrong_cell(*cell))] == []
    named = [re.sub(r"=.*", "", code) for code in inline_code(page) if re.fullmatch(r"ottla(\.[a-z]+)+(=.*)?", code)]
    modules = ("ottla.testing", "ottla.client", "ottla.spark", "ottla.wire", "ottla.cli", "ottla.frame")
    others = (*modules, "ottla.service", "ottla.json", *NO_SETTINGS)
    assert [name for name in named if name not in SETTINGS and not name.startswith(others)] == []


@cache
def known_names() -> set[str]:
    """Metrics, and what else has a name like that of a metric: modules, parts of names, resources."""
    modules = {path.stem for path in (ROOT / "ottla").rglob("*.py")} | {"kafka_broker", "kafka_topic", "kafka_group_id", "kafka_cluster"}
    return exported_names() | modules | {"kafka_broker_settings", "kafka_broker_users", "kafka_exporter"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_metrics(page: Path) -> None:
    named = [code for code in inline_code(page) if re.fullmatch(r"(kafka|ottla)_[a-z0-9_]+", code)]
    known = known_names()
    named = [name for name in named if not name.startswith(OTHERS_METRICS)]
    assert [name for name in named if name not in known and not any(name.endswith("_") and one.startswith(name) for one in known)] == []


def commands_to_read(page: Path) -> list[str]:
    """The commands of blocks that are for reading and not run, without what follows a redirection or `&&`."""
    texts = [block.text.replace("\\\n", " ") for block in blocks_of(page) if block.language == "text"]
    lines = [line.strip().removeprefix("$ ") for text in texts for line in text.splitlines()]
    return [part for line in lines for part in re.split(r"\s*(?:&&|[|;<>])\s*", line) if part.startswith("ottla ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands(page: Path) -> None:
    lines = [code for code in inline_code(page) if code.startswith("ottla ") and not re.search(r"[|<>;{\[]", code)]
    lines += commands_to_read(page)
    assert [wrong for line in lines if (wrong := wrong_command(line))] == []


def test_each_answer_to_an_attack_names_its_tests() -> None:
    defended = (ROOT / "docs/security.md").read_text().partition("## What is defended")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| .+ \| (.+) \|$", defended.partition("| Tries |")[0], re.MULTILINE)[2:]
    named = {attack: re.findall(r"`(tests/[^`]+)`", tests) for attack, tests in rows}
    assert len(named) > 15 and [attack for attack, tests in named.items() if not tests or not all(map(exists, tests))] == []


def test_the_commands_of_the_secured_broker_are_counted() -> None:
    title, text = re.findall(r"^## (From nothing, in .*)\n((?s:.*?))^## ", (ROOT / "docs/security.md").read_text(), re.MULTILINE)[0]
    commands = re.findall(r"^(?:\$ )?(?:echo [^|\n]*\| )?ottla ", text, re.MULTILINE)
    assert (title, len(commands)) == ("From nothing, in eight commands", 8)
    assert "sets it up in eight commands" in (ROOT / "README.md").read_text()


def test_the_rules_find_what_is_wrong() -> None:
    assert wrong_defaults("`ottla.open.files.max` (512) limits, `message.max.bytes` (1 MiB)") != []
    assert wrong_defaults("`socket.request.max.bytes` (100 MiB), `other.thing` (7)") == []
    assert wrong_defaults("`ottla.stage.retention.ms` (10 minutes), `ottla.stage.retention.ms` (9 minutes)") != []
    table = "| Setting | Default | |\n| --- | --- | --- |\n| `share.heartbeat.interval.ms`, `share.session.timeout.ms` | 5000, 45 s | x |\n"
    assert default_cells(table) == [("share.heartbeat.interval.ms", "5000"), ("share.session.timeout.ms", "45 s")]
    assert [wrong_cell(*cell) for cell in default_cells(table)] == [None, None]
    assert wrong_cell("share.session.timeout.ms", "40 s") == "share.session.timeout.ms is 45000, not 40 s"
    assert wrong_cell("share.isolation.level", "`read_committed`") is not None
    assert wrong_cell("shear.isolation.level", "x") == "no setting shear.isolation.level"
    assert wrong_command("ottla topic crate orders") == "ottla topic crate orders: no verb crate"
    assert wrong_command("ottla produce orders --kye x") == "ottla produce orders --kye x: no option --kye"
    assert wrong_command("ottla frobnicate") == "ottla frobnicate: no command frobnicate"
    assert wrong_command("ottla topic create orders -p 3 --config a=b") is None


def test_commands_of_blocks_that_are_not_run_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```text\n$ ottla topic list && ottla topic create a \\\n    --kye b > file\nottla.other\n```\n```sh\nottla run\n```\n")
    assert [" ".join(line.split()) for line in commands_to_read(page)] == ["ottla topic list", "ottla topic create a --kye b"]
