"""The simulation of one broker: each rule that is broken on purpose is found, a seed repeats its run, and the verdicts are right."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from tests.sim.faults import FAULTS, catch
from tests.sim.history import History, Transaction
from tests.sim.logs import Story
from tests.sim.readers import Reader, judge
from tests.sim.seed_search import assert_noticed, run_until
from tests.sim.world import World

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SEEDS_TO_CATCH = 200
FIRST_SEEDS = {
    "skip_guard": 6,
    "take_unknown_for_written": 3,
    "forget_epoch_bump": 35,
    "forget_bump_on_init": 43,
    "timeout_without_fencing": 11,
    "forget_timeouts": 4,
    "end_any_epoch": 6,
    "complete_before_markers": 104,
    "ignore_pending_offsets": 435,
}
"""Where to begin with what needs a rare turn of events: it saves time, and nothing depends on it."""


def trace(seed: int) -> tuple[object, ...]:
    world = World(seed)
    world.run()
    outcomes = [(transaction.outcome, transaction.start, transaction.end) for transaction in world.history.transactions]
    return world.events, world.crashes, outcomes, sorted(world.history.seen.items())


def test_a_seed_repeats_its_run() -> None:
    """P13: two runs of a seed are equal."""
    assert trace(7) == trace(7) != trace(8)


def test_the_runs_are_worth_something() -> None:
    """In the runs transactions are committed and aborted, the power is cut, and committed records are read."""

    def is_enough(world: World) -> bool:
        outcomes = [transaction.outcome for transaction in world.history.transactions]
        return outcomes.count("ok") > 10 and outcomes.count("fail") > 5 and world.crashes > 2 and len(world.history.seen) > 20

    run_until(World, range(1, 11), lambda worlds: any(map(is_enough, worlds)))


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH)


def reader_of(*seen: tuple[int, str], position: int) -> Reader:
    reader = Reader(World(1), T0)
    reader.seen, reader.position = list(seen), position
    return reader


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [([(0, "a")], "poll-skip"), ([(0, "a"), (0, "a"), (2, "b")], "nonmonotonic-poll"), ([(2, "b"), (0, "a")], "nonmonotonic-poll")],
)
def test_a_reader_that_skips_or_goes_back(seen: list[tuple[int, str]], verdict: str) -> None:
    with pytest.raises(AssertionError, match=verdict):
        judge(reader_of(*seen, position=4), [(0, "a"), (2, "b"), (5, "c")])


def test_a_reader_may_be_behind() -> None:
    reader = reader_of((0, "a"), (2, "b"), position=4)
    judge(reader, [(0, "a"), (2, "b"), (5, "c")])
    assert reader.seen[-1] == (2, "b")


def test_what_must_not_stand_in_a_log() -> None:
    """The judge of logs refuses wrong markers and epochs (I25, I26, I29)."""
    story = Story()
    story.write("t-0@0", 3)
    with pytest.raises(AssertionError, match="I29"):
        story.write("t-0@1", 4)
    story.end("t-0@1", (4, 0))
    with pytest.raises(AssertionError, match="the same marker twice"):
        story.end("t-0@2", (4, 0))
    story.end("t-0@2", (4, 1))
    for wrong in (lambda: story.write("t-0@3", 3), lambda: story.end("t-0@3", (3, 1))):
        with pytest.raises(AssertionError, match="after 4"):
            wrong()


def story() -> tuple[History, Transaction, str, str]:
    history = History()
    transaction = history.begin("a")
    first, second = history.new_value(transaction, T0), history.new_value(transaction, T1)
    transaction.end, transaction.is_commit_called, transaction.outcome = 2, True, "ok"
    return history, transaction, first, second


def test_a_good_history_passes() -> None:
    history, _, first, second = story()
    history.read(T0, 0, first)
    history.read(T1, 0, second)
    history.read(T0, 0, first)
    history.judge({"a": 2})
    assert history.is_visible(history.transactions[0])


def test_two_values_at_one_offset() -> None:
    history, _, first, second = story()
    history.read(T0, 0, first)
    with pytest.raises(AssertionError, match="inconsistent-offsets"):
        history.read(T0, 0, second)


def test_one_value_at_two_offsets() -> None:
    history, _, first, _ = story()
    history.read(T0, 0, first)
    with pytest.raises(AssertionError, match="duplicate"):
        history.read(T0, 1, first)


def test_a_value_before_its_commit() -> None:
    history, transaction, first, _ = story()
    transaction.is_commit_called = False
    with pytest.raises(AssertionError, match="precommitted-read"):
        history.read(T0, 0, first)


@pytest.mark.parametrize(("outcome", "verdict"), [("ok", "lost-write"), ("fail", "G1a"), ("info", "torn")])
def test_half_a_transaction(outcome: str, verdict: str) -> None:
    history, transaction, first, _ = story()
    transaction.outcome = outcome
    history.read(T0, 0, first)
    with pytest.raises(AssertionError, match=verdict):
        history.judge({"a": 2})


def test_records_that_are_not_where_they_were_said_to_be() -> None:
    """I20: the verdicts notice records that are not at their acknowledged offsets, an error that was found in Bufstream."""
    history, _, first, second = story()
    history.promise([first], 7)
    history.read(T0, 7, first)
    history.read(T1, 0, second)
    history.judge({"a": 2})
    history.promise([second], 1)
    with pytest.raises(AssertionError, match="moved"):
        history.judge({"a": 2})


def test_records_in_another_order() -> None:
    history, transaction, first, second = story()
    third = history.new_value(transaction, T0)
    for offset, value in enumerate([third, first]):
        history.read(T0, offset, value)
    history.read(T1, 0, second)
    with pytest.raises(AssertionError, match="int-nonmonotonic-send"):
        history.judge({"a": 2})


@pytest.mark.parametrize(("start", "committed", "verdict"), [(1, 2, "double-consume"), (0, 5, "offset-jump")])
def test_offsets_that_do_not_fit(start: int, committed: int, verdict: str) -> None:
    history, transaction, first, second = story()
    transaction.start = start
    history.read(T0, 0, first)
    history.read(T1, 0, second)
    with pytest.raises(AssertionError, match=verdict):
        history.judge({"a": committed})
