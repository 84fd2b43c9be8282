"""The states of a group and their allowed transitions.

Requests and timeouts of members change a classic group's state: in PreparingRebalance members join, in CompletingRebalance they wait for
the leader's assignment. A consumer group's state follows from its epochs: Assigning while the group's epoch is newer than the target's,
Reconciling while a member has not reached its target. A streams group has these states too, and is NotReady while topics of its topology
are missing or wrong. A share group is Stable if it has members, else Empty.

`ALLOWED` (classic), `CONSUMER_ALLOWED`, `STREAMS_ALLOWED` and `SHARE_ALLOWED` list the possible next states. The code asserts every
transition of a classic group. The other states are computed, and tests compare the tables with transcripts. The diagrams in the
documentation are generated from the tables.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The values are Kafka's names, as clients and tools show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    NOT_READY = "NotReady"
    DEAD = "Dead"


class GroupType(Enum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
ASSIGNING = GroupState.ASSIGNING
RECONCILING = GroupState.RECONCILING
STABLE = GroupState.STABLE
NOT_READY = GroupState.NOT_READY
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

STREAMS_ALLOWED: dict[GroupState, frozenset[GroupState]] = {
    **{state: after | {NOT_READY} for state, after in CONSUMER_ALLOWED.items() if state is not DEAD},
    EMPTY: frozenset({NOT_READY, ASSIGNING, RECONCILING, STABLE, DEAD}),
    NOT_READY: frozenset({EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD}),
    DEAD: frozenset(),
}

SHARE_ALLOWED: dict[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({STABLE, DEAD}),
    STABLE: frozenset({EMPTY}),
    DEAD: frozenset(),
}
