"""The state of a pipeline can be stored and loaded, and a damaged or foreign file is ignored."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.state_file import RUNNING, STOPPED, PipelineState, SourcePosition, is_killed, load_state, save_state, state_path


def test_what_was_stored_is_loaded(tmp_path: Path) -> None:
    state = PipelineState(group="g", sources=["a"], starts=2, positions=[SourcePosition(topic="a", partition=0, committed=5, end=9)])
    path = tmp_path / "new" / "state.json"
    save_state(path, state)
    save_state(path, state)
    assert load_state(path) == state
    assert [one.name for one in path.parent.iterdir()] == ["state.json"]
    assert (state.restarts, state.lag) == (1, 4)


def test_restarts_are_those_of_the_file_or_of_the_log() -> None:
    counts = ((0, -1, None), (0, 0, 0), (1, -1, 0), (1, 4, 4), (7, 4, 6))
    for starts, in_log, restarts in counts:
        assert PipelineState(group="g", starts=starts, log_restarts=in_log).restarts == restarts


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"group": "g", "positions": [{"unknown": 1}]}'])
def test_another_file_is_no_state(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "state.json"
    if text is not None:
        path.write_text(text)
    assert load_state(path) is None


def test_fields_of_a_later_version_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"group": "g", "later": 1}')
    assert load_state(path) == PipelineState(group="g")


def test_it_stands_beside_the_checkpoint() -> None:
    assert state_path("/data/checkpoints/a/", "g") == Path("/data/checkpoints/a.state.json")
    assert state_path("file:///data/a", "g") == Path("/data/a.state.json")
    assert state_path("s3://bucket/a", "g") == Path("g.state.json")


def test_a_process_that_is_gone_was_killed_unless_it_said_goodbye() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = socket.gethostname()
    assert is_killed(PipelineState(group="g", state=RUNNING, host=here, process_id=ended.pid))
    assert not is_killed(PipelineState(group="g", state=STOPPED, host=here, process_id=ended.pid))
    assert not is_killed(PipelineState(group="g", state=RUNNING, host="elsewhere", process_id=ended.pid))
    assert not is_killed(PipelineState(group="g", state=RUNNING, host=here, process_id=os.getpid()))
