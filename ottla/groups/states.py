"""The states of a group, and the moves that each of them allows.

A classic group is moved by its members' requests: PreparingRebalance gathers joiners, CompletingRebalance waits for the leader's
assignment. A consumer group's state is a consequence of its epochs: Assigning while the target assignment is older than the group,
Reconciling while a member is not yet where the target wants it. A share group is Empty or Stable, as it has members or not.

`ALLOWED` (classic), `CONSUMER_ALLOWED` and `SHARE_ALLOWED` name for each state the states that may follow. The code asserts every move of a
classic group; the other two are held against what the transcripts show, since no code moves such a group. The diagrams in the documentation
are drawn from them.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The values are Kafka's words, as clients and tools see them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(Enum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
ASSIGNING = GroupState.ASSIGNING
RECONCILING = GroupState.RECONCILING
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

ALLOWED: dict[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING_REBALANCE, DEAD}),
    PREPARING_REBALANCE: frozenset({COMPLETING_REBALANCE, EMPTY, DEAD}),
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE, STABLE, DEAD}),
    STABLE: frozenset({PREPARING_REBALANCE, DEAD}),
    DEAD: frozenset(),
}

CONSUMER_ALLOWED: dict[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({RECONCILING, STABLE, DEAD}),
    ASSIGNING: frozenset({EMPTY, RECONCILING, STABLE, DEAD}),
    RECONCILING: frozenset({EMPTY, ASSIGNING, STABLE, DEAD}),
    STABLE: frozenset({EMPTY, ASSIGNING, RECONCILING, DEAD}),
    DEAD: frozenset(),
}

SHARE_ALLOWED: dict[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({STABLE, DEAD}),
    STABLE: frozenset({EMPTY}),
    DEAD: frozenset(),
}
