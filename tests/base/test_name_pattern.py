"""Patterns for whole names: compared with Python's own matcher, the refused patterns, and the cost of a name."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.name_pattern import NamePattern, PatternError

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\.", r"\d", r"\w", "-", "1", "_", r"[\w.-]", "^", "$"])


def combine(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(lambda first, second: first + second, parts, parts),
        st.builds(lambda first, second: f"({first}|{second})", parts, parts),
        st.builds(lambda part, how: f"(?:{part}){how}", parts, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])),
    )


PATTERNS = st.recursive(ATOMS, combine, max_leaves=8)
NAMES = st.text("abc1._-", max_size=8)


@given(PATTERNS, NAMES)
def test_it_agrees_with_python(pattern: str, name: str) -> None:
    assert NamePattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("(?i)ORDERS", "Orders", True),
        ("a|b", "b", True),
        ("", "", True),
        ("", "a", False),
        ("(?P<x>a)b", "ab", True),
        (r"[\d-]+", "12-3", True),
        ("[]a]", "]", True),
        ("a{2,3}", "aaaa", False),
        (r"\Aab\z", "ab", True),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"\Qaa\E*b", "aaaab", True),
        (r"\Qaa\E*b", "b", False),
        (r"\Qa{2}", "a{2}", True),
        (r"orders\b.*", "orders-eu", True),
        (r"orders\b.*", "orders2", False),
        (r"a\Bb", "ab", True),
        ("[[:alpha:]]+", "Ab", True),
        ("[^[:alnum:]]", "-", True),
        ("[[:^digit:]]", "1", False),
        (r"\pL+", "aB", True),
        (r"\p{Lu}", "a", False),
        (r"(?i)\p{Lu}", "a", True),
        (r"\PN", "1", False),
        (r"\p{^Nd}", "a", True),
        (r"\p{Latin}", "a", True),
        (r"\x61\x{62}\143", "abc", True),
        ("(?i:a)B", "AB", True),
        ("(?i:a)B", "Ab", False),
        ("((?i)a)b", "AB", False),
        ("(?i)a(?-i)b", "AB", False),
        ("(?i)[^a]", "A", False),
        ("(?i-s:a).", "A.", True),
        ("a{,2}", "a{,2}", True),
        ("a{", "a{", True),
        ("()*a", "a", True),
        (r"[\x61-\x63]+", "abc", True),
        ("[a-]", "-", True),
    ],
)
def test_examples(pattern: str, name: str, is_match: bool) -> None:
    assert NamePattern(pattern).matches(name) is is_match


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "[a",
        "a**{",
        "*",
        "a{3,1}",
        "a{99999}",
        r"\1",
        r"\8",
        "a**",
        "a{2}*",
        "a*??",
        "{2}",
        "(?i)*",
        r"\Q\E*",
        r"\Qa\E**",
        "(?-)a",
        "(?x)a",
        "(?P<>a)",
        "(?<a-b>a)",
        "[[:foo:]]",
        r"[a-\d]",
        r"[\b]",
        r"\p{Foo}",
        r"\p{L",
        r"\x6",
        r"\x{110000}",
        r"\y",
        r"(?=a)",
        "(?<=a)b",
        "(?<!a)b",
        "[b-a]",
        "\\",
        "(a{1000}){1000}",
        "a" * 600,
        "(" * 200,
    ],
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        NamePattern(pattern)


def test_names_beyond_ascii() -> None:
    assert NamePattern("caf.").matches("caf\u00e9")
    assert NamePattern("..").matches("\u4e2d\u6587")
    assert NamePattern("\u4e2d.*").matches("\u4e2d\u6587-1")
    assert not NamePattern("\u4e2d.*").matches("a")


LONGEST_NAMES = ("a" * 245, "ab" * 122, "aab" * 81, "a" * 244 + "b")


@pytest.mark.parametrize(
    "pattern",
    [
        r"\b(a?){900}b",
        "(a+)+$",
        "(a|a)*b",
        "(.*a){100}b",
        r"(?:\w?){80}x",
        "(?:a?){165}b",
        "(a|)" * 128,
        "a?" * 170 + "b",
        "|".join(f"topic-{number:04}-of-a-shop" for number in range(21)),
        ".*a.{165}",
        r"(\pL\PL?){100}x",
    ],
)
def test_no_name_costs_more_than_a_millisecond(pattern: str) -> None:
    """Each pattern is either refused or cheap. The test takes the best processor time of five, so a busy computer does not matter."""
    try:
        NamePattern(pattern)
    except PatternError:
        return
    for name in LONGEST_NAMES:
        times = []
        for _ in range(5):
            compiled = NamePattern(pattern)
            started = time.thread_time()
            compiled.matches(name)
            times.append(time.thread_time() - started)
        assert min(times) < 0.001


def test_long_alternations_are_taken() -> None:
    names = [f"topic-{number:04}-of-a-shop" for number in range(21)]
    pattern = NamePattern("|".join(names))
    assert all(map(pattern.matches, names))


def test_a_pattern_is_refused_without_a_line_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError, match="missing"):
        NamePattern("(a")
    assert capfd.readouterr().err == ""
