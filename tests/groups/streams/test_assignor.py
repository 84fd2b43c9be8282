"""The assignor `sticky` of streams groups: tasks are spread evenly, move only if necessary, and have copies on other processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.loop.turns import run_steps
from ottla.groups.modern.group import Assignment
from ottla.groups.streams import assignor
from ottla.groups.streams.assignor import StreamsMember
from ottla.groups.streams.group import ACTIVE, STANDBY, TaskKey, TaskRole

STATEFUL = frozenset({"1", "2"})
TASKS = st.dictionaries(st.sampled_from(["0", "1", "2"]), st.integers(0, 9), max_size=3)
PROCESSES = st.dictionaries(st.integers(0, 9), st.sampled_from("pqr"), min_size=1, max_size=7)


def assign(
    tasks: Mapping[str, int], processes: Mapping[int, str], replicas: int = 0, before: Mapping[str, Assignment] | None = None
) -> dict[str, Assignment]:
    members = [StreamsMember(f"m{number}", process, (before or {}).get(f"m{number}", {})) for number, process in processes.items()]
    return run_steps(assignor.assign_sticky(members, tasks, STATEFUL, replicas))


def count(assignment: Assignment, role: TaskRole, *subtopologies: str) -> int:
    wanted = {key: mine for key, mine in assignment.items() if key.role is role}
    return sum(len(mine) for key, mine in wanted.items() if not subtopologies or key.subtopology in subtopologies)


def check(tasks: Mapping[str, int], processes: Mapping[int, str], replicas: int, result: Mapping[str, Assignment]) -> None:
    process_of = {f"m{number}": process for number, process in processes.items()}
    copies: dict[tuple[str, int], list[tuple[TaskRole, str]]] = {(name, part): [] for name in tasks for part in range(tasks[name])}
    for member_id, assignment in result.items():
        for key, mine in assignment.items():
            assert list(mine) == sorted(mine)
            for partition in mine:
                copies[key.subtopology, partition].append((key.role, process_of[member_id]))
    wanted = min(replicas, len(set(process_of.values())) - 1)
    for (subtopology, _), held in copies.items():
        assert Counter(role for role, _ in held) == Counter({ACTIVE: 1, STANDBY: wanted if subtopology in STATEFUL else 0} if held else {})
        assert len(held) == len({process for _, process in held}), "a process has a task once"
        assert [role for role, _ in held].count(ACTIVE) == 1
    for kinds in ((), tuple(STATEFUL)):
        loads = [count(assignment, ACTIVE, *kinds) for assignment in result.values()]
        assert max(loads) - min(loads) <= 1


@given(TASKS, PROCESSES, PROCESSES, st.integers(0, 2))
def test_tasks_are_spread_evenly_and_stay(tasks: dict[str, int], first: dict[int, str], second: dict[int, str], replicas: int) -> None:
    result = assign(tasks, first, replicas)
    check(tasks, first, replicas, result)
    again = assign(tasks, first, replicas, result)
    assert again == result, "what is even stays"
    later = assign(tasks, second, replicas, result)
    check(tasks, second, replicas, later)
    assert assign(tasks, dict(reversed(second.items())), replicas, result) == later, "the order of members says nothing"


def test_a_task_moves_to_its_copy() -> None:
    before = {"m0": {TaskKey(ACTIVE, "1"): (0, 1)}, "m1": {TaskKey(STANDBY, "1"): (1,)}, "m2": {TaskKey(STANDBY, "1"): (0,)}}
    assert assign({"1": 2}, {1: "q", 2: "r"}, before=before) == {"m1": {TaskKey(ACTIVE, "1"): (1,)}, "m2": {TaskKey(ACTIVE, "1"): (0,)}}


def test_a_task_stays_in_its_process() -> None:
    before = {"m0": {TaskKey(ACTIVE, "1"): (0, 1)}}
    after = assign({"1": 4}, {0: "p", 1: "p", 2: "q", 3: "q"}, before=before)
    assert sorted(part for name in ("m0", "m1") for part in after[name][TaskKey(ACTIVE, "1")]) == [0, 1]


def test_processes_are_loaded_in_proportion_to_their_members() -> None:
    result = assign({"0": 2}, {0: "p", 1: "p", 2: "p", 3: "q"})
    assert {name: count(mine, ACTIVE) for name, mine in result.items()} == {"m0": 1, "m1": 0, "m2": 0, "m3": 1}


def test_no_member_means_no_assignment() -> None:
    assert assign({"0": 3}, {}) == {}
