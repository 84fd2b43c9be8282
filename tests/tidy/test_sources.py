"""Every file of the repository keeps the rules of style; a failure lists file, line and what is wrong."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.tidy import rules
from tests.tidy.sources import PACKAGE, ROOT, core_files, parsed, python_files, shown, text_files

MAY_CATCH_EVERYTHING = {
    PACKAGE / "server" / "connection.py",
    PACKAGE / "server" / "app.py",
    PACKAGE / "cli" / "pipeline" / "definition.py",  # runs a file of the user's
}
# These must name what they forbid.
NAMES_THE_FORBIDDEN = {ROOT / "tests" / "tidy" / "rules.py", ROOT / "tests" / "tidy" / "test_rules.py"}
BUILDS_DECISIONS = PACKAGE / "machine"
MOVES_HIGH_WATERMARKS = PACKAGE / "replication" / "high_watermark.py"
# What a fetch session last answered about a partition has a field of this name.
REMEMBERS_ANSWERS = {PACKAGE / "handlers" / "fetch.py", PACKAGE / "replication" / "fetch_sessions.py"}
TreeRule = Callable[[ast.Module], Iterator[rules.Complaint]]
TextRule = Callable[[str], Iterator[rules.Complaint]]


def _complaints(files: Iterable[Path], rule: Callable[[Path], Iterator[rules.Complaint]]) -> list[str]:
    return [f"{shown(path)}:{line}: {complaint}" for path in files for line, complaint in rule(path)]


def _check_trees(files: Iterable[Path], rule: TreeRule) -> None:
    assert _complaints(files, lambda path: rule(parsed(path))) == []


def _check_texts(files: Iterable[Path], rule: TextRule) -> None:
    assert _complaints(files, lambda path: rule(path.read_text(encoding="utf-8"))) == []


def test_there_is_something_to_look_at() -> None:
    assert len(python_files("ottla")) > 30 and len(core_files()) > 10


def test_functions_are_short() -> None:
    _check_trees(python_files("ottla", "tools"), rules.function_lengths)


def test_files_are_short() -> None:
    _check_texts(python_files("ottla", "tools"), rules.file_length)


def test_modules_open_with_what_they_answer() -> None:
    test_files = [path for path in python_files("tests") if path.stat().st_size > 0]
    _check_trees(python_files("ottla", "tools") + test_files, rules.opening)


def test_docstrings_say_what_a_thing_is_or_does() -> None:
    _check_trees(python_files("ottla", "tools", "tests"), rules.questions)


def test_nothing_is_called_done_before_it_is() -> None:
    _check_texts([path for path in python_files("ottla", "tools", "tests") if path not in NAMES_THE_FORBIDDEN], rules.unfinished)


def test_names_and_sentences_use_plain_words() -> None:
    prose = [path for path in text_files() if path.suffix in (".py", ".java", ".md", ".html") and path not in NAMES_THE_FORBIDDEN]
    _check_texts(prose, rules.unwanted_words)


def test_broken_invariants_are_not_swallowed() -> None:
    _check_trees([path for path in python_files("ottla") if path not in MAY_CATCH_EVERYTHING], rules.swallowed_exceptions)


def test_decisions_of_machines_are_built_in_one_way() -> None:
    _check_trees([path for path in python_files("ottla") if path.parent != BUILDS_DECISIONS], rules.decisions_built)


def test_one_module_moves_the_high_watermark() -> None:
    assert list(rules.high_watermark_moves(parsed(MOVES_HIGH_WATERMARKS)))
    others = [path for path in python_files("ottla") if path not in {MOVES_HIGH_WATERMARKS, *REMEMBERS_ANSWERS}]
    _check_trees(others, rules.high_watermark_moves)


@pytest.mark.parametrize("rule", [rules.asynchrony, rules.salted_hashes, rules.set_order])
def test_the_core_gives_the_same_answer_each_time(rule: TreeRule) -> None:
    _check_trees(core_files(), rule)


def test_tests_are_neither_excused_nor_empty() -> None:
    files = [path for path in python_files("tests") if path.name.startswith("test_")]
    _check_trees(files, rules.excused_tests)
    _check_trees(files, rules.empty_tests)


def test_files_are_named_by_what_they_answer() -> None:
    vague = [shown(path) for path in python_files("ottla", "tools", "tests") if rules.VAGUE_NAMES & set(path.stem.split("_"))]
    assert vague == []


def test_nothing_points_to_one_machine_or_to_a_download_host() -> None:
    _check_texts([path for path in text_files() if path not in NAMES_THE_FORBIDDEN], rules.foreign_places)
