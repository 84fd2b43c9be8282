"""Rules of share states between brokers broken on purpose, each alone, to show that the verdicts notice it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from ottla.base.types import SHARE_GROUP_STATE_TOPIC
from ottla.replication.leader import Leader
from tests.sim import share_faults
from tests.sim.seed_search import catch_seed
from tests.sim.share_cluster import ShareClusterWorld


def write_of_replaced_leader() -> Any:
    """A share coordinator takes what a leader writes that was replaced."""
    return share_faults.forget_leader_epoch()


def state_before_replicated() -> Any:
    """A write is answered when the coordinator has it, before its followers do."""
    committed_end = Leader.committed_end

    def end(leader: Leader) -> int:
        is_of_states = leader._state.topic_partition.topic == SHARE_GROUP_STATE_TOPIC
        return 1 << 62 if is_of_states else committed_end(leader)

    return mock.patch.object(Leader, "committed_end", end)


FAULTS: dict[str, Callable[[], Any]] = {fault.__name__: fault for fault in (write_of_replaced_leader, state_before_replicated)}
VERDICTS = {
    "write_of_replaced_leader": r"old leader: .* was accepted after",
    "state_before_replicated": r"answers \w+ before \d+, the high watermark is \d+: it may be lost \(I14\)",
}
"""What is said of each fault. Another verdict under it may be true as well, and shows less: it does not count as found."""


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """The first seed that fails under the fault with its verdict, and how; (0, "") if none does."""
    return catch_seed(FAULTS[name](), lambda seed: ShareClusterWorld(seed).run(), seeds, first, VERDICTS[name])
