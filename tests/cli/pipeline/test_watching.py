"""What `--watch` shows: lines that are overwritten on a terminal, and elsewhere a line after a batch, at most one a second."""

from __future__ import annotations

import io
import sys

import pytest

from ottla.cli.pipeline.watching import ProgressWatch
from ottla.spark.state_file import RUNNING, STOPPED, PipelineState, SourcePosition


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def state() -> PipelineState:
    position = SourcePosition(topic="orders", partition=0, committed=40, end=1240, lag_seconds=0.84)
    return PipelineState(group="orders-etl", state=RUNNING, batches=7, rows_in=5_000, positions=[position])


def test_a_line_after_each_batch_but_one_a_second(state: PipelineState, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watch = ProgressWatch(clock)
    watch.show([state], False)
    for _ in range(4):
        clock.now += 0.5
        state.batches, state.rows_in = state.batches + 1, state.rows_in + 600
        watch.show([state], False)
    clock.now += 5
    watch.show([state], False)
    watch.show([state], False)  # no batch since
    state.state, state.positions[0].committed = STOPPED, 1240
    watch.show([state], True)
    assert capsys.readouterr().err.splitlines() == [
        "orders-etl: running, 8 batches, 1,200 rows/s, lag 1,200 (0.8 s)",
        "orders-etl: running, 10 batches, 1,200 rows/s, lag 1,200 (0.8 s)",
        "orders-etl: running, 11 batches, 343 rows/s, lag 1,200 (0.8 s)",
        "orders-etl: stopped, 11 batches, 343 rows/s, lag 0",
    ]


def test_rows_a_second_fall_to_zero_when_nothing_is_read(state: PipelineState, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watch = ProgressWatch(clock)
    watch.show([state], False)
    state.rows_in += 1000
    for _ in range(25):
        clock.now += 1
        watch.show([state], False)
    watch.show([state], True)
    assert ", 0 rows/s, " in capsys.readouterr().err.splitlines()[-1]


def test_a_terminal_has_one_line_for_each_pipeline(state: PipelineState, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    watch = ProgressWatch(Clock())
    states = [state, PipelineState(group="other", state=RUNNING)]
    watch.show(states, False)
    watch.show(states, True)
    block = "\r\x1b[Korders-etl: running, 7 batches, 0 rows/\n\r\x1b[Kother: running, 0 batches, 0 rows/s\n"
    assert terminal.getvalue() == f"{block}\x1b[2A{block}"


def test_before_its_first_commit_a_pipeline_has_no_lag(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressWatch(Clock()).show([PipelineState(group="new", state=RUNNING, batches=1)], True)
    assert capsys.readouterr().err == "new: running, 1 batch, 0 rows/s\n"


def test_a_terminal_without_escapes_has_plain_lines(state: PipelineState, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    ProgressWatch(Clock()).show([state], True)
    assert terminal.getvalue() == "orders-etl: running, 7 batches, 0 rows/s, lag 1,200 (0.8 s)\n"
