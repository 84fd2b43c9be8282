"""Assigns tasks to the members of a streams group: the server-side assignor `sticky` of KIP-1071.

Active tasks are spread evenly over the members, and over the processes in proportion to their members (a member is a thread). Tasks with a
state are spread first, the others fill up the rest. A member keeps its active tasks as far as the result stays even. A task that moves
prefers a member or a process with a copy of its state. Standby tasks are then placed on processes that do not have the task yet, first
where it was before.

Invariants: every task is active at exactly one member. Two members differ by at most one active task, and by at most one with a state. A
process has a task at most once. The result depends only on the arguments. Cost: n log n in the tasks. It is a generator with short steps
(`groups/modern/update.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ottla.groups.modern.group import Assignment
from ottla.groups.streams.group import ACTIVE, STANDBY, TaskKey, TaskRole

STICKY = "sticky"
DEALT_PER_STEP = 300
"""Tasks assigned in one step, which takes about a millisecond."""

Task = tuple[str, int]
Assignments = dict[str, Assignment]


class StreamsMember(NamedTuple):
    member_id: str
    process_id: str
    target: Mapping[TaskKey, Sequence[int]]  # the member's previous target assignment


def assign_sticky(
    members: Sequence[StreamsMember], tasks: Mapping[str, int], stateful: AbstractSet[str], standby_replicas: int
) -> Generator[None, None, Assignments]:
    """Returns each member's assignment. `tasks` are the numbers of tasks by subtopology; only `stateful` ones get standby tasks."""
    dealer = _Dealer(sorted(members))
    if not members:
        return {}
    wanted = [(subtopology, partition) for subtopology in sorted(tasks) for partition in range(tasks[subtopology])]
    with_state = [task for task in wanted if task[0] in stateful]
    yield from dealer.deal_active(with_state)
    yield from dealer.deal_active([task for task in wanted if task[0] not in stateful])
    yield from dealer.deal_standby(with_state, standby_replicas)
    return dealer.assignments()


class _Process:
    """The members of one process, and the tasks that it has."""

    __slots__ = ("actives", "members", "tasks")

    def __init__(self) -> None:
        self.members = 0
        self.actives = 0
        self.tasks: set[Task] = set()

    def load(self) -> float:
        return len(self.tasks) / self.members


class _Dealer:
    def __init__(self, members: Sequence[StreamsMember]) -> None:
        self._members = members
        processes: dict[str, _Process] = {}
        self._process = [processes.setdefault(member.process_id, _Process()) for member in members]
        for process in self._process:
            process.members += 1
        self._processes = processes
        self._dealt: list[dict[TaskRole, list[Task]]] = [{ACTIVE: [], STANDBY: []} for _ in members]
        self._loads = [0] * len(members)

    def deal_active(self, wanted: Sequence[Task]) -> Iterator[None]:
        """Gives each task an active member. The members' numbers of active tasks, from all calls so far, then differ by one at most."""
        total = sum(self._loads) + len(wanted)
        least, extras = divmod(total, len(self._members))
        self._extras = extras - sum([load > least for load in self._loads])
        owners = self._previous(ACTIVE)
        copies = self._previous(STANDBY)
        left: list[Task] = []
        for number, task in enumerate(wanted, 1):
            keeper = next((index for index in owners.get(task, ()) if self._has_slot(index, least, total)), None)
            if keeper is None:
                left.append(task)
            else:
                self._give(keeper, ACTIVE, task, least)
            if not number % DEALT_PER_STEP:
                yield
        others: list[Task] = []
        by_process = self._by_process()
        for number, task in enumerate(left, 1):
            near = [*copies.get(task, ()), *(other for index in owners.get(task, ()) for other in by_process[id(self._process[index])])]
            taker = next((index for index in near if self._has_slot(index, least, total)), None)
            if taker is None:
                others.append(task)
            else:
                self._give(taker, ACTIVE, task, least)
            if not number % DEALT_PER_STEP:
                yield
        yield from self._deal_rest(ACTIVE, others, least)

    def deal_standby(self, wanted: Sequence[Task], replicas: int) -> Iterator[None]:
        """Gives each task copies on processes without the task, as far as there are any."""
        limit = -(-(sum(self._loads) + replicas * len(wanted)) // len(self._members))
        before = {task: [*holders] for task, holders in self._previous(STANDBY).items()}
        for task, holders in self._previous(ACTIVE).items():
            before.setdefault(task, []).extend(holders)
        left: list[Task] = []
        for number, task in enumerate(wanted, 1):
            open_copies = min(replicas, len(self._processes) - 1)
            for index in before.get(task, ()):
                if open_copies and self._loads[index] < limit and task not in self._process[index].tasks:
                    self._give(index, STANDBY, task, 0)
                    open_copies -= 1
            left += [task] * open_copies
            if not number % DEALT_PER_STEP:
                yield
        yield from self._deal_rest(STANDBY, left, 0)

    def assignments(self) -> Assignments:
        found: Assignments = {}
        for member, dealt in zip(self._members, self._dealt, strict=True):
            mine = found[member.member_id] = dict[TaskKey, tuple[int, ...]]()
            for role, tasks in dealt.items():
                by_subtopology: dict[str, list[int]] = {}
                for subtopology, partition in tasks:
                    by_subtopology.setdefault(subtopology, []).append(partition)
                for subtopology in sorted(by_subtopology):
                    mine[TaskKey(role, subtopology)] = tuple(sorted(by_subtopology[subtopology]))
        return found

    def _previous(self, role: TaskRole) -> dict[Task, list[int]]:
        """Returns the members, as indices, that had each task in this role."""
        found: dict[Task, list[int]] = {}
        for index, member in enumerate(self._members):
            for key, partitions in member.target.items():
                if key.role is role:
                    for partition in partitions:
                        found.setdefault((key.subtopology, partition), []).append(index)
        return found

    def _by_process(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for index, process in enumerate(self._process):
            found.setdefault(id(process), []).append(index)
        return found

    def _has_slot(self, index: int, least: int, total: int) -> bool:
        """Whether a member may keep one more active task: `least`, or one more while `_extras` is left, within its process's part."""
        process = self._process[index]
        if process.actives >= -(-total * process.members // len(self._members)):
            return False
        return self._loads[index] < least or (self._loads[index] == least and self._extras > 0)

    def _give(self, index: int, role: TaskRole, task: Task, least: int) -> None:
        process = self._process[index]
        if role is ACTIVE:
            process.actives += 1
            self._extras -= self._loads[index] >= least
        process.tasks.add(task)
        self._dealt[index][role].append(task)
        self._loads[index] += 1

    def _deal_rest(self, role: TaskRole, tasks: Sequence[Task], least: int) -> Iterator[None]:
        """Gives each task to the member with the fewest tasks in a process: the least loaded process that does not have the task."""

        def entry(index: int) -> tuple[int, float, int]:
            return self._loads[index], self._process[index].load(), index

        heap = [entry(index) for index in range(len(self._members))]
        heapq.heapify(heap)
        for number, task in enumerate(tasks, 1):
            passed: list[int] = []
            while heap:
                index = heapq.heappop(heap)[2]
                if heap and heap[0] < entry(index):
                    heapq.heappush(heap, entry(index))  # its process was given tasks since
                    if heap[0][2] != index:
                        continue
                    heapq.heappop(heap)
                passed.append(index)
                if task not in self._process[index].tasks:
                    self._give(index, role, task, least)
                    break
            for index in passed:
                heapq.heappush(heap, entry(index))
            if not number % DEALT_PER_STEP:
                yield
