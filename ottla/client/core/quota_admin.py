"""Reads and changes quotas of users, client ids and addresses, as conversations (`conversation.py`) on a `ClusterCore`.

An entity is a tuple of (type, name) pairs. The types are `user`, `client-id` and `ip`; the name None means the type's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.core.admin import check, checked
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2

Entity = tuple[tuple[str, str | None], ...]


@operation
def describe_quotas(cluster: ClusterCore, filters: Sequence[tuple[str, int, str | None]]) -> Conversation[dict[Entity, dict[str, float]]]:
    """Returns the quotas of the entities that match all filters and have no other types. A filter is (type, EXACT, name), (type, DEFAULT,
    None) or (type, ANY, None).
    """
    from ottla.wire.messages import describe_client_quotas as wire

    components = [wire.ComponentData(entity_type=kind, match_type=match_type, match=name) for kind, match_type, name in filters]
    answer = yield from checked(cluster.ask_any(wire.DescribeClientQuotasRequest(components=components, strict=True)), "quotas")
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {found.key: found.value for found in entry.values}
        for entry in answer.entries or ()
    }


@operation
def alter_quotas(
    cluster: ClusterCore, entity: Entity, *, changes: Mapping[str, float], deletions: Sequence[str] = (), validate_only: bool = False
) -> Conversation[str | None]:
    """Sets and removes quotas of one entity, all or nothing. Returns the broker's message about a successful change, or None."""
    from ottla.wire.messages import alter_client_quotas as wire

    operations = [wire.OpData(key=key, value=value) for key, value in changes.items()]
    operations += [wire.OpData(key=key, remove=True) for key in deletions]
    parts = [wire.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = wire.AlterClientQuotasRequest(entries=[wire.EntryData(entity=parts, ops=operations)], validate_only=validate_only)
    remark = None
    for result in (yield from cluster.ask_controller(request)).entries:
        check(result.error_code, result.error_message, "quotas")
        remark = result.error_message
    return remark
