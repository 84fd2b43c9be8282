"""Finds the quota for a request: Kafka's eight levels, the most specific first.

A quota is set for a user with a client id, for a user, or for a client id. The user and the client id may each be Kafka's default entity.
Each kind of quota (such as fetched bytes) is looked up separately: the most specific level that sets it applies. Requests with one
`QuotaShare` are measured together. A user's quota covers all of its clients. A client id's quota covers all users together, except users
with a quota. A default applies to each user or client id separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.base.cluster_metadata import QuotaEntity

PRODUCE, FETCH, REQUEST, MUTATION = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
CONNECTION = "connection_creation_rate"
CLIENT_KINDS = (PRODUCE, FETCH, REQUEST, MUTATION)


class QuotaShare(NamedTuple):
    """Identifies requests that are measured together. An empty name matches every name."""

    kind: str
    user: str
    client_id: str


class Limit(NamedTuple):
    """The share that a request is charged to, and its limit: bytes per second, percent of a thread, or mutations per second."""

    share: QuotaShare
    rate: float


class Limits:
    """The configured quotas of users and client ids."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._rates: dict[str, dict[QuotaEntity, float]] = {kind: {} for kind in CLIENT_KINDS}
        for entity, values in quotas.items():
            self.put(entity, values)

    def put(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        for kind, rates in self._rates.items():
            rate = values.get(kind, 0)
            if rate > 0:
                rates[entity] = rate
            else:
                rates.pop(entity, None)

    def is_set(self, kind: str) -> bool:
        return bool(self._rates[kind])

    def find(self, kind: str, user: str, client_id: str) -> Limit | None:
        rates = self._rates[kind]
        for entity, counted_user, counted_client in _levels(user, client_id):
            rate = rates.get(entity)
            if rate is not None:
                return Limit(QuotaShare(kind, counted_user, counted_client), rate)
        return None


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, str, str]]:
    """Yields the entities whose quota may apply, in Kafka's order, with the user and client id of the share."""
    for name in (user, None):
        yield (("client-id", client_id), ("user", name)), user, client_id
        yield (("client-id", None), ("user", name)), user, client_id
        yield (("user", name),), user, ""
    yield (("client-id", client_id),), "", client_id
    yield (("client-id", None),), "", client_id
