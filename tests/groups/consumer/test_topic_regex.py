"""The matcher against Python's own, and the patterns that must not hurt."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.consumer.topic_regex import MOVES_MAX, PatternError, TopicRegex

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
    assert TopicRegex(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


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
    assert TopicRegex(pattern).matches(name) is is_match


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
        "{*",
        "(?i)*",
        r"\Q\E*",
        r"\Qa\E**",
        "(?-)a",
        "(?x)a",
        "(?P<n>a)(?P<n>b)",
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
        TopicRegex(pattern)


def test_what_is_learned_has_a_bound_and_changes_nothing() -> None:
    """Each new letter is a new move; beyond the bound names are run as if nothing were known."""
    regex = TopicRegex("[^a]*b")
    names = ["b", "cb", "ab", *(chr(0x4E00 + number) + "b" for number in range(2 * MOVES_MAX)), "cb", "ab"]
    assert [name for name in names if not regex.matches(name)] == ["ab", "ab"]


def test_patterns_that_kill_backtrackers_are_cheap() -> None:
    """2^40 ways to match, and each step of the name looks at the program once."""
    assert not TopicRegex("(a+)+b").matches("a" * 40)
    assert not TopicRegex("(a|a)*b").matches("a" * 200)
