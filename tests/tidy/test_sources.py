"""Every file of the repository follows the rules of style. A failure lists the file, the line and the complaint."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy import rules
from tests.tidy.sources import PACKAGE, ROOT, core_files, parsed, python_files, shown, text_files

MAY_CATCH_EVERYTHING = {
    PACKAGE / "server" / "connection.py",
    PACKAGE / "base" / "loop" / "guarded.py",  # for connections
    PACKAGE / "cli" / "broker" / "clone_transform.py",  # runs a file of the user's
    PACKAGE / "cli" / "pipeline" / "pipelines.py",  # runs a file of the user's
    PACKAGE / "client" / "blocking" / "deliveries.py",  # calls the user's function
}
# These must name what they forbid.
NAMES_THE_FORBIDDEN = {ROOT / "tests" / "tidy" / "rules.py", ROOT / "tests" / "tidy" / "test_rules.py"}
BUILDS_DECISIONS = PACKAGE / "machine"
MOVES_HIGH_WATERMARKS = PACKAGE / "replication" / "high_watermark.py"
# A fetch session's last answer about a partition has a field of this name.
REMEMBERS_ANSWERS = {PACKAGE / "handlers" / "records" / "fetch.py", PACKAGE / "replication" / "fetch_sessions.py"}
# These print lines of Kafka's tools word for word.
KAFKAS_LINES = {PACKAGE / "cli" / "bench" / "figures.py", PACKAGE / "cli" / "records" / "record_format.py"}
# Their views are of memory that no other request uses: bytes of a file, and of a request that another broker has forwarded.
VIEWS_OF_THEIR_OWN = {
    PACKAGE / "client" / "core" / "frames.py",
    PACKAGE / "replication" / "attaching.py",
    PACKAGE / "server" / "execution" / "dispatch.py",
    PACKAGE / "storage" / "scan.py",
    PACKAGE / "storage" / "staged_chunk.py",
    PACKAGE / "wire" / "compression.py",
}
TreeRule = Callable[[ast.Module], Iterator[rules.Complaint]]
TextRule = Callable[[str], Iterator[rules.Complaint]]


def _package() -> list[Path]:
    return python_files("ottla")


def _program() -> list[Path]:
    return python_files("ottla", "tools")


def _everything() -> list[Path]:
    return python_files("ottla", "tools", "tests")


def _tests() -> list[Path]:
    return [path for path in python_files("tests") if path.name.startswith("test_")]


TREE_RULES: dict[TreeRule, Callable[[], Iterable[Path]]] = {
    rules.function_lengths: _program,
    rules.opening: lambda: _program() + [path for path in python_files("tests") if path.stat().st_size > 0],
    rules.questions: _everything,
    rules.swallowed_exceptions: lambda: set(_package()) - MAY_CATCH_EVERYTHING,
    rules.views_in_steps: lambda: set(_package()) - VIEWS_OF_THEIR_OWN,
    rules.decisions_built: lambda: [path for path in _package() if path.parent != BUILDS_DECISIONS],
    rules.high_watermark_moves: lambda: set(_package()) - {MOVES_HIGH_WATERMARKS, *REMEMBERS_ANSWERS},
    rules.uncounted_nouns: lambda: set(_package()) - KAFKAS_LINES,
    rules.asynchrony: core_files,
    rules.salted_hashes: core_files,
    rules.set_order: core_files,
    rules.excused_tests: _tests,
    rules.empty_tests: _tests,
}
"""The rules that look at a parsed file, each with the files that must keep it."""


@cache
def _complaints_of_trees() -> dict[TreeRule, list[str]]:
    """Returns the complaints of each of these rules. Each file is parsed only once."""
    files = {rule: set(chosen()) for rule, chosen in TREE_RULES.items()}
    found: dict[TreeRule, list[str]] = {rule: [] for rule in TREE_RULES}
    for path in _everything():
        tree = parsed(path)
        for rule in TREE_RULES:
            if path in files[rule]:
                found[rule] += [f"{shown(path)}:{line}: {complaint}" for line, complaint in rule(tree)]
    return found


def _check_trees(rule: TreeRule) -> None:
    assert _complaints_of_trees()[rule] == []


def _check_texts(files: Iterable[Path], rule: TextRule) -> None:
    assert [f"{shown(path)}:{line}: {found}" for path in files for line, found in rule(path.read_text(encoding="utf-8"))] == []


def test_there_is_something_to_look_at() -> None:
    assert len(_package()) > 30 and len(core_files()) > 10
    assert all(len(set(files()) & set(_everything())) > 10 for files in TREE_RULES.values())


def test_functions_are_short() -> None:
    _check_trees(rules.function_lengths)


def test_files_are_short() -> None:
    _check_texts(_program(), rules.file_length)


def test_modules_open_with_what_they_answer() -> None:
    _check_trees(rules.opening)


def test_docstrings_say_what_a_thing_is_or_does() -> None:
    _check_trees(rules.questions)


def test_nothing_is_called_done_before_it_is() -> None:
    _check_texts([path for path in _everything() if path not in NAMES_THE_FORBIDDEN], rules.unfinished)


def test_names_and_sentences_use_plain_words() -> None:
    prose = [path for path in text_files() if path.suffix in (".py", ".java", ".md", ".html") and path not in NAMES_THE_FORBIDDEN]
    _check_texts(prose, rules.unwanted_words)


def test_numbers_agree_with_their_nouns() -> None:
    _check_trees(rules.uncounted_nouns)


def test_broken_invariants_are_not_swallowed() -> None:
    _check_trees(rules.swallowed_exceptions)


def test_no_view_of_a_buffer_lives_across_a_step() -> None:
    _check_trees(rules.views_in_steps)


def test_decisions_of_machines_are_built_in_one_way() -> None:
    _check_trees(rules.decisions_built)


def test_one_module_moves_the_high_watermark() -> None:
    assert list(rules.high_watermark_moves(parsed(MOVES_HIGH_WATERMARKS)))
    _check_trees(rules.high_watermark_moves)


@pytest.mark.parametrize("rule", [rules.asynchrony, rules.salted_hashes, rules.set_order])
def test_the_core_gives_the_same_answer_each_time(rule: TreeRule) -> None:
    _check_trees(rule)


def test_tests_are_neither_excused_nor_empty() -> None:
    _check_trees(rules.excused_tests)
    _check_trees(rules.empty_tests)


def test_files_are_named_by_what_they_answer() -> None:
    vague = [shown(path) for path in _everything() if rules.VAGUE_NAMES & set(path.stem.split("_"))]
    assert vague == []


def test_nothing_points_to_one_machine_or_to_a_download_host() -> None:
    _check_texts([path for path in text_files() if path not in NAMES_THE_FORBIDDEN], rules.foreign_places)
