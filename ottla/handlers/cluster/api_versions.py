"""ApiVersions: the APIs, versions and features that this broker serves.

Behaviour: advertises the APIs of `handlers/served_apis.py`, limited by `ottla.advertise.level` (`handlers/advertised_levels.py`), and from
version 3 the finalised features. A request in an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the same table.
Ottla's own APIs are advertised only to a client whose request has our tagged field for extensions. From then on the connection serves them.
The APIs for clients' metrics are advertised while the cluster has a subscription. Kafka advertises them while a receiver is configured.
Clients that know these APIs ask on each connection, and librdkafka logs the answer.

Version notes: 3 has the client's software name and version, and features (KIP-511, KIP-584). From 4 on, the range of a feature may start at
0. 5 has the cluster id and node id that the client expects (KIP-1242); if one of them differs, the answer is REBOOTSTRAP_REQUIRED.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ottla.base.errors import ErrorCode
from ottla.base.features import FEATURES_EPOCH, Feature
from ottla.base.identifiers import CLIENT_ID_CHARACTERS_MAX
from ottla.handlers.advertised_levels import features, served
from ottla.handlers.context import Broker, RequestContext
from ottla.wire.apis import KEYS
from ottla.wire.messages.api_versions import (
    EXTENSIONS_VERSION,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

TELEMETRY = frozenset({KEYS["GetTelemetrySubscriptions"], KEYS["PushTelemetry"]})
FEATURES_SINCE = 3
ZERO_LEVEL_SINCE = 4
NODE_CHECK_SINCE = 5
is_software_name = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?").fullmatch


def handle(broker: Broker, request: RequestContext, body: ApiVersionsRequest) -> ApiVersionsResponse:
    if request.version >= FEATURES_SINCE:
        if not is_software_name(body.client_software_name) or not is_software_name(body.client_software_version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        request.connection.client_software_name = body.client_software_name[:CLIENT_ID_CHARACTERS_MAX]
        request.connection.client_software_version = body.client_software_version[:CLIENT_ID_CHARACTERS_MAX]
    if request.version >= NODE_CHECK_SINCE and is_for_another(broker, body):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    if body.ottla_extensions >= EXTENSIONS_VERSION:
        request.connection.has_extensions = True
    response = ApiVersionsResponse(api_keys=advertised(broker, with_extensions=body.ottla_extensions >= EXTENSIONS_VERSION))
    known = features(broker.config.ottla_advertise_level)
    if request.version >= FEATURES_SINCE and known:
        add_features(request, response, known.values())
    return response


def handle_unsupported_version(broker: Broker, _request: RequestContext, _body: None) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised(broker))


def advertised(broker: Broker, *, with_extensions: bool = False) -> list[ApiVersion]:
    hidden = () if broker.reporting_clients.has_subscriptions else TELEMETRY
    return [
        ApiVersion(api_key=api.key, min_version=api.advertised_from, max_version=api.max_version)
        for api in served(broker.config.ottla_advertise_level).values()
        if api.is_advertised and (with_extensions or not api.is_extension) and api.key not in hidden
    ]


def is_for_another(broker: Broker, body: ApiVersionsRequest) -> bool:
    """Whether the client expects another cluster or node at this address, which may have been reassigned."""
    if body.cluster_id is not None and body.cluster_id != broker.metadata.cluster_id:
        return True
    return body.node_id >= 0 and body.node_id != broker.broker_id


def add_features(request: RequestContext, response: ApiVersionsResponse, known: Collection[Feature]) -> None:
    """Adds supported ranges and finalised levels to the response. Below version 4, a range that starts at 0 is not allowed."""
    lowest = 0 if request.version >= ZERO_LEVEL_SINCE else 1
    response.supported_features = [
        SupportedFeatureKey(name=feature.name, min_version=max(lowest, feature.lowest), max_version=feature.highest)
        for feature in known
    ]
    response.finalized_features = [
        FinalizedFeatureKey(name=feature.name, max_version_level=feature.level, min_version_level=feature.level)
        for feature in known
        if feature.level > 0
    ]
    response.finalized_features_epoch = FEATURES_EPOCH
