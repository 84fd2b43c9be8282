"""Which quota holds for a request: Kafka's eight levels, the most specific first.

A quota may be set for a user with a client id, for a user, or for a client id, and for the defaults of each. For every kind of quota the
first level counts at which one of that kind is set. Requests that are counted together share a `Share`: a user's quota is one for all of
its clients, a client id's is one for all users that have no quota of their own; a default is as much for each of those that it holds for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.base.cluster_metadata import QuotaEntity

PRODUCE, FETCH, REQUEST, MUTATION = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
CONNECTION = "connection_creation_rate"
CLIENT_KINDS = (PRODUCE, FETCH, REQUEST, MUTATION)


class Share(NamedTuple):
    """Requests that are counted together. An empty name: whatever it is."""

    kind: str
    user: str
    client_id: str


class Limit(NamedTuple):
    """What a request is counted for, and how much that may be: bytes a second, percent of a thread, changes a second."""

    share: Share
    rate: float


class Limits:
    """The quotas of users and client ids that are set."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._rates: dict[str, dict[QuotaEntity, float]] = {kind: {} for kind in CLIENT_KINDS}
        for entity, values in quotas.items():
            self.put(entity, values)

    def put(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """The quotas of one entity are these now."""
        for kind, rates in self._rates.items():
            rate = values.get(kind, 0)
            if rate > 0:
                rates[entity] = rate
            else:
                rates.pop(entity, None)

    def is_set(self, kind: str) -> bool:
        return bool(self._rates[kind])

    def find(self, kind: str, user: str, client_id: str) -> Limit | None:
        """The quota of this kind that holds for a client; None if there is none."""
        rates = self._rates[kind]
        for entity, counted_user, counted_client in _levels(user, client_id):
            rate = rates.get(entity)
            if rate is not None:
                return Limit(Share(kind, counted_user, counted_client), rate)
        return None


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, str, str]]:
    """The entities whose quota may hold, in Kafka's order, with the names under which the client is then counted."""
    for name in (user, None):
        yield (("client-id", client_id), ("user", name)), user, client_id
        yield (("client-id", None), ("user", name)), user, client_id
        yield (("user", name),), user, ""
    yield (("client-id", client_id),), "", client_id
    yield (("client-id", None),), "", client_id
