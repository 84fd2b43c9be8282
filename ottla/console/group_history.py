"""Keeps the history of groups while a console runs: their lag, and changes of their states and members. It works with any Kafka. The
snapshot lists all groups in each sample of the cluster. It therefore misses a rebalance that begins and ends between two samples. While the
page of a group is open, the console also notes new and lost members, and partitions that another member has got.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.counted import counted
from ottla.client.core.group_admin import GroupDescription, ListedGroup

CHANGES_MAX = 500
"""Changes kept in memory, the newest ones of all groups."""
POINTS_MAX = 180
"""Points of lag kept for each group. 180: 15 minutes while a page is open. 500 groups take 1.4 MB."""


class GroupChange(NamedTuple):
    """A change that was seen at `at_s` (seconds since 1970)."""

    at_s: float
    group: str
    what: str
    before: str
    after: str


class GroupHistory:
    """See the module. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: deque[GroupChange] = deque(maxlen=CHANGES_MAX)
        self._states: dict[str, str] = {}
        self._members: dict[str, dict[str, frozenset[str]]] = {}
        self._points: dict[str, array[float]] = {}
        """Times and lags in turn, by group."""

    def note(self, at_s: float, groups: Sequence[ListedGroup], lags: Mapping[str, int]) -> None:
        """Notes the groups of a sample and their lags. A new group is not a change."""
        with self._lock:
            states = {group.group_id: group.state for group in groups}
            for name, state in states.items():
                before = self._states.get(name, state)
                if before != state:
                    self._changes.append(GroupChange(at_s, name, "state", before, state))
            self._states = states
            self._points = {name: self._points.get(name, array("d")) for name in lags}
            for name, lag in lags.items():
                points = self._points[name]
                points.extend((at_s, lag))
                del points[: -2 * POINTS_MAX]

    def note_members(self, at_s: float, group: GroupDescription) -> None:
        """Compares the members of a group and their partitions with the previous ones."""
        now = {member.member_id: frozenset(map(str, member.assignment)) for member in group.members}
        with self._lock:
            before = self._members.get(group.group_id)
            self._members[group.group_id] = now
            while len(self._members) > CHANGES_MAX:
                del self._members[next(iter(self._members))]
            if before is None or before == now:
                return
            what = "members" if before.keys() != now.keys() else "assignment"
            self._changes.append(GroupChange(at_s, group.group_id, what, _shown(before), _shown(now)))

    def changes_of(self, name: str) -> list[GroupChange]:
        """Returns the changes of a group, the newest first."""
        with self._lock:
            return [change for change in reversed(self._changes) if change.group == name]

    def lag_of(self, name: str) -> tuple[list[float], list[float]]:
        """Returns the times and the lags of a group, the oldest first."""
        with self._lock:
            points = self._points.get(name, array("d"))
            return list(points[::2]), list(points[1::2])


def _shown(members: Mapping[str, frozenset[str]]) -> str:
    shares = ", ".join(map(str, sorted(map(len, members.values()), reverse=True)))
    return f"{counted(len(members), 'member')}" + (f" with {shares} partitions" if members else "")
