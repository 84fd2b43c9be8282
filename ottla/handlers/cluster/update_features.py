"""UpdateFeatures: raise or lower finalised features.

Behaviour: never changes a level, because the levels follow from the broker's version and configuration. The request succeeds if it names
the current levels. Another level fails with FEATURE_UPDATE_FAILED. An unknown feature, an unknown kind of upgrade, a level out of range,
and a downgrade without the flag for downgrades fail with INVALID_UPDATE_VERSION. One failure fails the whole request, in every version,
without results for the features.

Version notes: 1 has dry run and kinds of upgrade (KIP-778). 2 has no results for single features (KIP-1022).

Not done: changing a level while the broker runs.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.features import Feature
from ottla.handlers.advertised_levels import features
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

RESULTS_UNTIL = 1
KINDS_SINCE = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def handle(broker: Broker, request: RequestContext, body: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    try:
        require_on_cluster(broker, request, AclOperation.ALTER)
    except ApiError as refusal:
        return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)
    offered = features(broker.config.ottla_advertise_level)
    try:
        for update in body.feature_updates:
            _check(update, offered.get(update.feature), request.version, broker.metadata.controller_id)
    except ApiError as refusal:
        message = f"The update failed for all features since the following feature had an error: {refusal.message}"
        return UpdateFeaturesResponse(error_code=refusal.code, error_message=message)
    if request.version > RESULTS_UNTIL:
        return UpdateFeaturesResponse(error_message=None)
    results = [UpdatableFeatureResult(feature=update.feature, error_message=None) for update in body.feature_updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _check(update: FeatureUpdateKey, feature: Feature | None, version: int, controller_id: int) -> None:
    if feature is None:
        raise _invalid(update, f"Local controller {controller_id} does not support this feature.")
    if version >= KINDS_SINCE and update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    level = update.max_version_level
    if not feature.lowest <= level <= feature.highest:
        raise _invalid(update, f"Local controller {controller_id} only supports versions {feature.lowest}-{feature.highest}")
    is_downgrade_allowed = update.upgrade_type != UPGRADE if version >= KINDS_SINCE else update.allow_downgrade
    if level < feature.level and not is_downgrade_allowed:
        why = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
        raise _invalid(update, why)
    if level != feature.level:
        raise ApiError(ErrorCode.FEATURE_UPDATE_FAILED, f"The level of {update.feature} is {feature.level} and cannot be changed.")


def _invalid(update: FeatureUpdateKey, why: str) -> ApiError:
    message = f"Invalid update version {update.max_version_level} for feature {update.feature}. {why}"
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)
