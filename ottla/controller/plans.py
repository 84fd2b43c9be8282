"""The plan of a controller's decision: writes to the metadata store, the changes that they make in the state, and the answer.

A decision consists of units. A unit is a group of writes that are executed all or not at all, for example a topic with its partitions, or
one partition's new state. `planned` packs the units into parts. Each part fits into one multi (`MULTI_BYTES_MAX`). Every part begins with a
check of the epoch that the controller was elected with, so a controller that was replaced writes nothing (I39). Parts are written in order.
The changes of a part are applied when the store has executed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.base.cluster_metadata import Change
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.immutable import immutable
from ottla.base.ports import MULTI_BYTES_MAX, Check, Operation, operation_bytes
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes


@immutable
class Unit:
    """Operations that are written in one multi, and their changes. The operations take at most `UNIT_BYTES_MAX` bytes."""

    operations: Sequence[Operation]
    changes: Sequence[Change] = ()


@immutable
class PlanPart:
    """One multi, and the changes to apply when the store has executed it."""

    operations: tuple[Operation, ...]
    changes: tuple[Change, ...]


@immutable(kw_only=True)
class Plan:
    """A decision. `at_once` has changes that need no write; `notes` are log lines for the time when all parts are written."""

    at_once: tuple[Change, ...] = ()
    parts: tuple[PlanPart, ...] = ()
    answer: Any = None
    notes: tuple[str, ...] = ()

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(operation for part in self.parts for operation in part.operations)

    @property
    def changes(self) -> tuple[Change, ...]:
        return (*self.at_once, *(change for part in self.parts for change in part.changes))


Decide = Callable[[ClusterState], Plan]


def planned(
    state: ClusterState, units: Iterable[Unit], *, at_once: Sequence[Change] = (), answer: Any = None, notes: Sequence[str] = ()
) -> Plan:
    """Packs the units into parts, each with a check of the controller's epoch."""
    guard = Check(znodes.CONTROLLER_EPOCH, state.controller_epoch_version)
    parts: list[PlanPart] = []
    operations: list[Operation] = []
    meant: list[Change] = []
    size = guard_bytes = operation_bytes(guard)
    for unit in units:
        unit_bytes = sum(map(operation_bytes, unit.operations))
        assert guard_bytes + unit_bytes <= MULTI_BYTES_MAX, f"{unit.operations[0].path}: a unit of {unit_bytes} bytes fits into no write"
        if operations and size + unit_bytes > MULTI_BYTES_MAX:
            parts.append(PlanPart((guard, *operations), tuple(meant)))
            operations, meant, size = [], [], guard_bytes
        operations += unit.operations
        meant += unit.changes
        size += unit_bytes
    if operations:
        parts.append(PlanPart((guard, *operations), tuple(meant)))
    elif meant:
        at_once = (*at_once, *meant)
    return Plan(at_once=tuple(at_once), parts=tuple(parts), answer=answer, notes=tuple(notes))


UNIT_BYTES_MAX = MULTI_BYTES_MAX - 1024
"""Maximum size of a unit, in bytes; the rest of a multi is for the check of the epoch."""

NODE_BYTES_MAX = MULTI_BYTES_MAX // 2
"""Maximum size of a node, in bytes; the rest of its unit is for nodes that are written with it."""


def check_size(data: bytes, what: str) -> None:
    """Raises `ApiError` POLICY_VIOLATION if a node with this data is larger than `NODE_BYTES_MAX`."""
    if len(data) > NODE_BYTES_MAX:
        message = f"{what} takes {len(data)} bytes in the metadata store; at most {NODE_BYTES_MAX} are allowed."
        raise ApiError(ErrorCode.POLICY_VIOLATION, message)


NAME_BYTES_MAX = 10_000
"""Longest name that clients choose freely, in bytes as part of a path. One write contains it up to six times."""


def check_whole(state: ClusterState, path: str) -> None:
    """Raises `ApiError` UNKNOWN_SERVER_ERROR if the node of settings is damaged: a write would destroy the rest of its content."""
    if path in state.damaged_settings:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} in the metadata store is damaged and has to be mended there first.")


def check_name(name: str, what: str) -> None:
    """Raises `ApiError` INVALID_REQUEST if the name is longer than `NAME_BYTES_MAX`."""
    if len(name) > NAME_BYTES_MAX or len(znodes.quoted(name)) > NAME_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The name of {what} must not be longer than {NAME_BYTES_MAX} bytes.")


def in_units(operations: Sequence[Operation], pieces_of: int = 1) -> list[Unit]:
    """Packs operations into units that are as large as `UNIT_BYTES_MAX` allows. Groups of `pieces_of` consecutive operations stay in one
    unit."""
    units: list[Unit] = []
    together: list[Operation] = []
    size = 0
    for start in range(0, len(operations), pieces_of):
        piece = operations[start : start + pieces_of]
        piece_bytes = sum(map(operation_bytes, piece))
        if together and size + piece_bytes > UNIT_BYTES_MAX:
            units.append(Unit(together))
            together, size = [], 0
        together += piece
        size += piece_bytes
    return [*units, Unit(together)] if together else units
