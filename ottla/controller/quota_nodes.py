"""Writes the nodes of quotas and removes empty ones. The nodes of users hold credentials as well.

A request may name a user, its clients and the same entity again, so each write takes the earlier decisions of the request into account. The
node of a user has the parent node of its clients, and is kept while that has children.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.cluster_metadata import Change, QuotaEntity, QuotaPut
from ottla.base.ports import Create, Delete, Operation, Set
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes


class QuotaNodes:
    """The nodes in the store, as changed by the request's earlier decisions."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._has: dict[QuotaEntity, bool] = {}
        self._clients: dict[QuotaEntity, int] = {}
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self._credentials: dict[str, Mapping[str, str]] = {}
        self.count = len(state.quota_nodes)

    def has(self, entity: QuotaEntity) -> bool:
        return self._has.get(entity, entity in self._state.quota_nodes)

    def quotas(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self._quotas.get(entity, self._state.quotas.get(entity, {}))

    def credentials(self, user: str) -> Mapping[str, str]:
        return self._credentials.get(user, self._state.scram.get(user, {}))

    def write_quotas(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> tuple[list[Operation], list[Change]]:
        """Returns the operations and changes that set the quotas of an entity. Both are empty if it has neither a node nor quotas."""
        self._quotas[entity] = quotas
        return self._write(entity)

    def write_credentials(self, user: str, credentials: Mapping[str, str]) -> tuple[list[Operation], list[Change]]:
        self._credentials[user] = credentials
        return self._write((("user", user),))

    def _write(self, entity: QuotaEntity) -> tuple[list[Operation], list[Change]]:
        operations: list[Operation] = []
        changes: list[Change] = []
        if not self._is_empty(entity):
            self._put(entity, operations, changes)
        elif self.has(entity):
            self._remove(entity, operations, changes)
        return operations, changes

    def _put(self, entity: QuotaEntity, operations: list[Operation], changes: list[Change]) -> None:
        path, data = znodes.quota_path(entity), self._data(entity)
        changes.append(QuotaPut(entity, self.quotas(entity)))
        if self.has(entity):
            operations.append(Set(path, data))
            return
        user = _user_part(entity)
        if user and user != entity and not self.has(user):
            self._put(user, operations, changes)
        operations.append(Create(path, data))
        if user == entity:
            operations.append(Create(f"{path}/clients"))
        self._note(entity, has_node=True)

    def _remove(self, entity: QuotaEntity, operations: list[Operation], changes: list[Change]) -> None:
        """Removes the node. Also removes the user's node if this was its last client and it has no quotas or credentials."""
        path, user = znodes.quota_path(entity), _user_part(entity)
        if user == entity:
            operations.append(Delete(f"{path}/clients"))
        operations.append(Delete(path))
        changes.append(QuotaPut(entity, {}, has_node=False))
        self._note(entity, has_node=False)
        if user and user != entity and self._is_empty(user):
            self._remove(user, operations, changes)

    def _note(self, entity: QuotaEntity, *, has_node: bool) -> None:
        change, user = (1 if has_node else -1), _user_part(entity)
        self._has[entity] = has_node
        self.count += change
        if user and user != entity:
            self._clients[user] = self._clients_of(user) + change

    def _clients_of(self, user: QuotaEntity) -> int:
        return self._clients.get(user, self._state.clients_of.get(user, 0))

    def _is_empty(self, entity: QuotaEntity) -> bool:
        user = znodes.user_of(entity)
        return not self.quotas(entity) and not self._clients_of(entity) and not (user is not None and self.credentials(user))

    def _data(self, entity: QuotaEntity) -> bytes:
        user = znodes.user_of(entity)
        return znodes.user_bytes(self.quotas(entity), self.credentials(user) if user is not None else {})


def _user_part(entity: QuotaEntity) -> QuotaEntity:
    """Returns the user's part of the entity, which is empty if the entity has no user."""
    return tuple(pair for pair in entity if pair[0] == "user")
