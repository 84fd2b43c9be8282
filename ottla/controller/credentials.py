"""Changes the SCRAM credentials of users in the metadata store.

A user's node holds quotas as well (`configs.py`), so both are written together. `handlers/access/alter_user_scram_credentials.py` checks
the form of a credential. This module checks that a credential exists before it is removed, and that no credential is altered twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.cluster_metadata import ScramPut
from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.api import ScramRequest, ScramResult
from ottla.controller.configs import announced, check_room
from ottla.controller.plans import Plan, Unit, check_whole, planned
from ottla.controller.quota_nodes import QuotaNodes
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes


def decide_alter_scram(state: ClusterState, config: BrokerConfig, requests: Sequence[ScramRequest]) -> Plan:
    """Answers with one result for each user, in the order of the request. All changes of one user are made, or none."""
    by_user: dict[str, list[ScramRequest]] = {}
    for request in requests:
        by_user.setdefault(request.user, []).append(request)
    nodes = QuotaNodes(state)
    units, results = [], []
    for user, wanted in by_user.items():
        try:
            check_whole(state, znodes.quota_path((("user", user),)))
            if any(request.credential is not None for request in wanted):
                check_room(nodes, (("user", user),))
        except ApiError as refusal:
            results.append(ScramResult(user=user, error=refusal.code, message=refusal.message))
            continue
        credentials = dict(state.scram.get(user, {}))
        missing = [request.mechanism for request in wanted if request.credential is None and request.mechanism not in credentials]
        if missing:
            message = "Attempt to delete a user credential that does not exist"
            results.append(ScramResult(user=user, error=ErrorCode.RESOURCE_NOT_FOUND, message=message))
            continue
        if len({request.mechanism for request in wanted}) < len(wanted):
            message = "A user credential cannot be altered twice in the same request"
            results.append(ScramResult(user=user, error=ErrorCode.DUPLICATE_RESOURCE, message=message))
            continue
        for request in wanted:
            if request.credential is None:
                del credentials[request.mechanism]
            else:
                credentials[request.mechanism] = request.credential
        units.append(_written(nodes, config, user, credentials))
        results.append(ScramResult(user=user))
    return planned(state, units, answer=results)


def _written(nodes: QuotaNodes, config: BrokerConfig, user: str, credentials: dict[str, str]) -> Unit:
    operations, changes = nodes.write_credentials(user, credentials)
    if not config.is_single_broker:
        operations.append(announced(znodes.quota_path((("user", user),))))
    return Unit(operations, [*changes, ScramPut(user, credentials)])
