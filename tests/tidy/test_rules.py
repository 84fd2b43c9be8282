"""Each rule of style complains about wrong code, and does not complain about correct code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.tidy import rules

OPENING = '"""Says what this is."""\n\nfrom __future__ import annotations\n\n'

BAD_TREES: list[tuple[Callable[[ast.Module], Iterator[rules.Complaint]], str]] = [
    (rules.function_lengths, "def f():\n" + "    x = 1\n" * 70),
    (rules.opening, "x = 1\n"),
    (rules.opening, '"""Docstring."""\nimport sys\n'),
    (rules.questions, '"""What does it do: much."""\n'),
    (rules.questions, 'class A:\n    def f(self):\n        """Is it ready?\n\n        Yes.\n        """\n'),
    (rules.swallowed_exceptions, "try:\n    f()\nexcept Exception:\n    raise\n"),
    (rules.swallowed_exceptions, "try:\n    f()\nexcept (ValueError, BaseException):\n    pass\n"),
    (rules.swallowed_exceptions, "try:\n    f()\nexcept:\n    pass\n"),
    (rules.asynchrony, "async def f(): pass\n"),
    (rules.salted_hashes, "def f(key): return hash(key) % 50\n"),
    (rules.set_order, "for x in {1, 2}: f(x)\n"),
    (rules.set_order, "for x in set(y): f(x)\n"),
    (rules.set_order, "for x in a | frozenset(y): f(x)\n"),
    (rules.set_order, "for x in isr.union(y): f(x)\n"),
    (rules.set_order, "y = [x for x in {x for x in z}]\n"),
    (rules.set_order, "y = list({1, 2})\n"),
    (rules.set_order, "y = ', '.join({'a', 'b'})\n"),
    (rules.set_order, "f(*{1, 2})\n"),
    (rules.set_order, "def f(isr: set[int]):\n    for x in isr: g(x)\n"),
    (rules.set_order, "class A:\n    isr: frozenset[int]\n    def f(self):\n        return [g(x) for x in self.isr]\n"),
    (rules.set_order, "def members() -> set[int]: ...\nfor x in members(): g(x)\n"),
    (rules.excused_tests, "@pytest.mark.skip\ndef test_a(): assert f()\n"),
    (rules.excused_tests, "@pytest.mark.xfail(strict=True)\ndef test_a(): assert f()\n"),
    (rules.views_in_steps, "def f(frame: memoryview):\n    yield\n"),
    (rules.views_in_steps, "def f(data):\n    view = memoryview(data)\n    yield from g(view)\n"),
    (rules.decisions_built, "def f(): return Decision(effects=())\n"),
    (rules.decisions_built, "x = contract.Decision()\n"),
    (rules.high_watermark_moves, "partition.state.high_watermark = 7\n"),
    (rules.high_watermark_moves, "self.high_watermark: int = 7\n"),
    (rules.high_watermark_moves, "self.end, self.high_watermark = 7, 7\n"),
    (rules.high_watermark_moves, "state.high_watermark += 1\n"),
    (rules.high_watermark_moves, "setattr(state, 'high_watermark', 7)\n"),
    (rules.empty_tests, "def test_a():\n    f()\n"),
    (rules.uncounted_nouns, "x = f'has {len(found)} partitions'\n"),
    (rules.uncounted_nouns, "x = f'has {group.member_count} live members'\n"),
]

GOOD_TREES: list[tuple[Callable[[ast.Module], Iterator[rules.Complaint]], str]] = [
    (rules.uncounted_nouns, "x = f'{counted(n, \"partition\")}, {name} records, {MAX} topics, {len(a)} partitioned, {count} of {b}'\n"),
    (rules.views_in_steps, "def f(frame: memoryview):\n    def g():\n        yield\n    return g()\n"),
    (rules.decisions_built, "def f() -> Decision: return draft.decision()\n"),
    (rules.high_watermark_moves, "x = state.high_watermark\nhigh_watermark = 7\nf(high_watermark=x)\n"),
    (rules.function_lengths, 'def f():\n    """One.\n' + "    more\n" * 70 + '    """\n' + "    x = 1\n" * 59),
    (rules.opening, OPENING + "import sys\n"),
    (rules.opening, '"""Only a docstring."""\n'),
    (rules.questions, '"""Answers "Is it ready?" of clients."""\ndef f(): ...\n'),
    (rules.swallowed_exceptions, "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n"),
    (rules.swallowed_exceptions, "try:\n    f()\nexcept (OSError, ValueError):\n    pass\n"),
    (rules.salted_hashes, "class A:\n    def __hash__(self): return hash(self.x)\n"),
    (rules.set_order, "for x in sorted({1, 2}): f(x)\n"),
    (rules.set_order, "ok = any(f(x) for x in {1, 2})\n"),
    (rules.set_order, "y = {f(x) for x in {1, 2}}\n"),
    (rules.set_order, "for x in [1, 2]: f(x)\n"),
    (rules.set_order, "def f(a: set[int]): ...\ndef g(a: list[int]):\n    for x in a: h(x)\n"),
    (rules.excused_tests, "@pytest.mark.parametrize('x', [1])\ndef test_a(x): assert x\n"),
    (rules.empty_tests, "def test_a():\n    with pytest.raises(ValueError):\n        f()\n"),
]


@pytest.mark.parametrize(("rule", "source"), BAD_TREES)
def test_a_rule_complains(rule: Callable[[ast.Module], Iterator[rules.Complaint]], source: str) -> None:
    assert list(rule(ast.parse(source)))


@pytest.mark.parametrize(("rule", "source"), GOOD_TREES)
def test_a_rule_keeps_quiet(rule: Callable[[ast.Module], Iterator[rules.Complaint]], source: str) -> None:
    assert list(rule(ast.parse(source))) == []


def test_texts_are_searched_for_unfinished_work_and_foreign_places() -> None:
    assert [line for line, _ in rules.unfinished("fine\n# TODO: later\nraise NotImplementedError\n")] == [2, 3]
    places = ["/work/main/x", "see /root/.cache", "https://pypi.org/simple", "https://repo1.maven.org/", "http://mirror.local/x"]
    assert [line for line, _ in rules.foreign_places("\n".join(places))] == [1, 2, 3, 4, 5]
    assert list(rules.foreign_places("a/work/b or the root/leaf of /data and /tmp")) == []


def test_texts_are_searched_for_unwanted_words() -> None:
    bad = ["# The broker told us.", "def test_it_is_told() -> None:", "_TOLD = 1", "Nobody is there", "strangers.py", "says it out loud"]
    assert [line for line, _ in rules.unwanted_words("\n".join(bad))] == [1, 2, 3, 4, 5, 6]
    assert list(rules.unwanted_words("sawtooth, intellect, shears, tolderly\nhashear = seen")) == []


def test_a_file_may_have_499_lines() -> None:
    assert list(rules.file_length("x\n" * 499)) == []
    assert list(rules.file_length("x\n" * 500))
