"""The plan of a decision of the controller: writes to the metadata store, the changes that they mean, and the answer.

A decision consists of units. A unit is written whole or not at all: a topic with its partitions, or one partition's new state.
`planned` packs them into parts that fit into one multi each (`MULTI_BYTES_MAX`). Every part begins with a check of the epoch that the
controller was elected with, so a controller that was replaced writes nothing (I39). Parts are written in order, and the changes of a part
are in force as soon as the store has executed it.
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
    """Operations that belong together, and their changes; together within `UNIT_BYTES_MAX`."""

    operations: Sequence[Operation]
    changes: Sequence[Change] = ()


@immutable
class PlanPart:
    """One multi, and what holds when the store has taken it."""

    operations: tuple[Operation, ...]
    changes: tuple[Change, ...]


@immutable(kw_only=True)
class Plan:
    """The changes that need no write, the parts in order, the answer to the request, and lines for the log once all is written."""

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
    """The units in parts, each behind the check that this is still the controller."""
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
"""The largest unit: room is left for the check of the epoch."""

NODE_BYTES_MAX = MULTI_BYTES_MAX // 2
"""The largest node that the controller writes: others are written together with it."""


def check_size(data: bytes, what: str) -> None:
    """Raises `ApiError` POLICY_VIOLATION for a node that fits into no write."""
    if len(data) > NODE_BYTES_MAX:
        message = f"{what} takes {len(data)} bytes in the metadata store; at most {NODE_BYTES_MAX} are allowed."
        raise ApiError(ErrorCode.POLICY_VIOLATION, message)


NAME_BYTES_MAX = 10_000
"""The longest name of users' own, in the form of a path: a write contains it up to six times."""


def check_whole(state: ClusterState, path: str) -> None:
    """Raises `ApiError` UNKNOWN_SERVER_ERROR where a node of settings is damaged: what can be saved of it would be lost."""
    if path in state.damaged_settings:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} in the metadata store is damaged and has to be mended there first.")


def check_name(name: str, what: str) -> None:
    """Raises `ApiError` INVALID_REQUEST if a node with this name would fit into no write."""
    if len(name) > NAME_BYTES_MAX or len(znodes.quoted(name)) > NAME_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The name of {what} must not be longer than {NAME_BYTES_MAX} bytes.")


def in_units(operations: Sequence[Operation], pieces_of: int = 1) -> list[Unit]:
    """Units without a meaning of their own, as large as they may be; `pieces_of` neighbours stay together."""
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
