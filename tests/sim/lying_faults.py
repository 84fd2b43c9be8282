"""Faults: functions that break a rule of the cluster that is needed after damage to a disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from ottla.replication.follower_log import FollowerLog
from ottla.server.repair.scrub_schedule import ScrubSchedule
from tests.sim.lying_world import LyingWorld, OldDiskWorld, RottenWorld
from tests.sim.seed_search import catch_seed


def cut_below_watermark() -> Any:
    """A follower truncates its log where it differs from the leader's log, even below its own high watermark."""
    truncate = FollowerLog.truncate

    def cut(follower: FollowerLog, offset: int) -> None:
        state = follower._state
        state.high_watermark = min(state.high_watermark, max(offset, state.log.log_start_offset))
        truncate(follower, offset)

    return mock.patch.object(FollowerLog, "truncate", cut)


def scrub_finds_nothing() -> Any:
    """The scrub never begins."""
    return mock.patch.object(ScrubSchedule, "start", lambda _self: None)


FAULTS: dict[str, Callable[[], Any]] = {"cut_below_watermark": cut_below_watermark, "scrub_finds_nothing": scrub_finds_nothing}
WORLDS: dict[str, type[LyingWorld]] = {"cut_below_watermark": OldDiskWorld, "scrub_finds_nothing": RottenWorld}
VERDICTS = {
    "cut_below_watermark": r"cut to \d+, below its high watermark \d+ \(I17\)",
    "scrub_finds_nothing": r"on broker \d+ is damaged",
}


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault's verdict, and the message; (0, "") if no seed fails."""
    return catch_seed(FAULTS[name](), lambda seed: WORLDS[name](seed).run(), seeds, first, VERDICTS[name])
