"""The docs agree with the code: generated pages are up to date, and the README names existing targets of make."""

from __future__ import annotations

import enum
import re
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, ROOT
from tools import docs

PACKAGES = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir())


class _Door(enum.Enum):
    OPEN = 1
    LEFT_AJAR = 2


def _targets() -> list[str]:
    """Returns the targets that the Makefile declares."""
    declared = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert declared is not None
    return declared.group(1).split()


def test_generated_pages_are_up_to_date() -> None:
    assert docs.stale() == [], "run `make rewrite`"


def test_a_stale_page_is_noticed(tmp_path: Path) -> None:
    for name, text in docs.pages().items():
        (tmp_path / name).write_text(text)
    assert docs.stale(tmp_path) == []
    (tmp_path / "errors.md").write_text("old")
    (tmp_path / "gone.md").write_text("about nothing")
    (tmp_path / "apis.md").unlink()
    assert docs.stale(tmp_path) == ["apis.md", "errors.md", "gone.md"]


def test_a_diagram_shows_every_move() -> None:
    allowed = {_Door.OPEN: frozenset({_Door.LEFT_AJAR, _Door.OPEN}), _Door.LEFT_AJAR: frozenset({_Door.OPEN})}
    moves = [line.strip() for line in docs.diagram(allowed) if "-->" in line]
    assert moves == ["Open --> LeftAjar", "Open --> Open", "LeftAjar --> Open"]


def test_commands_are_listed_with_those_below_them() -> None:
    helps = {"names": ["-h", "--help"], "help": "show this help message and exit"}
    quiet = {"names": ["-q", "--quiet"], "help": "results only"}
    option = {"names": ["-p", "--partitions"], "help": "how many | at least 1", "default": "1", "value": "N"}
    create = {"name": "create", "help": "Create one.", "options": [helps, option, quiet]}
    tree = {"name": "ottla", "options": [helps, quiet], "commands": [{"name": "topic", "help": "Topics.", "commands": [create]}]}
    lines = docs.command_lines(tree, [], tree["options"])
    assert [line for line in lines if line.startswith("#")] == ["## `ottla`", "## `ottla topic`", "## `ottla topic create`"]
    assert "| `-p, --partitions N` | how many \\| at least 1 (default 1) |" in lines
    assert "Also, [as everywhere](#ottla): `-q`." in lines
    assert [line for line in lines if "--quiet" in line] == ["| `-q, --quiet` | results only |"], "once, in the first section"
    assert not any("--help" in line for line in lines)
    index = ["- [`ottla topic`](#ottla-topic): Topics.", "    - [`ottla topic create`](#ottla-topic-create): Create one.", ""]
    assert docs.command_index(tree) == index


def test_the_readme_opens_with_the_two_commands_and_names_every_target() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text[:600] and "make test" in text[:600]
    named = set(re.findall(r"make ([a-z][a-z-]*)", text))
    assert {target for target in _targets() if target not in named} <= {"help"}
    assert named <= set(_targets())


def test_every_target_has_a_recipe() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert [target for target in _targets() if not re.search(rf"^{target}:.*\n\t", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]))
def test_links_and_source_paths_lead_somewhere(page: str) -> None:
    """Relative links, and paths between backticks, name existing files."""
    path = ROOT / page
    text = path.read_text()
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link and not link.startswith("#")]
    sources = re.findall(r"`((?:ottla|tests|tools|docs)/[\w./-]+)`", text)
    sources += [f"ottla/{source}" for source in re.findall(rf"`((?:{PACKAGES})/[\w./-]+)`", text)]
    assert [link for link in links if not (path.parent / link).exists()] == []
    assert [source for source in sources if not (ROOT / source).exists()] == []
