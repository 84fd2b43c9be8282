"""UpdateFeatures: raise or lower finalised features.

API and versions: UpdateFeatures (key 57), 0-2.

Behaviour: asks for other finalised levels. The levels of this broker follow its version and configuration: asking for the level in force
succeeds, another one fails with FEATURE_UPDATE_FAILED, an unknown feature or a level out of range with INVALID_UPDATE_VERSION. Nothing
changes in any case.

Version notes: 1 dry run and kinds of upgrade (KIP-778). 2 one error for the whole request instead of results (KIP-1022).

Not done: changing a level while the broker runs.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.features import Feature
from ottla.handlers.context import AclOperation, Broker, RequestContext, ResourceType, require
from ottla.handlers.levels import features
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

KEY, MIN_VERSION, MAX_VERSION = 57, 0, 2

RESULTS_UNTIL = 1


def handle(broker: Broker, request: RequestContext, body: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    try:
        require(broker, request, AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    except ApiError as refusal:
        return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)
    results = []
    for update in body.feature_updates:
        result = UpdatableFeatureResult(feature=update.feature, error_message=None)
        try:
            _check(update, features(broker.config.ottla_advertise_level).get(update.feature))
        except ApiError as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        results.append(result)
    if request.version <= RESULTS_UNTIL:
        return UpdateFeaturesResponse(error_message=None, results=results)
    failed = next((result for result in results if result.error_code), None)
    if failed is None:
        return UpdateFeaturesResponse(error_message=None)
    message = f"The update failed for all features since the following feature had an error: {failed.error_message}"
    return UpdateFeaturesResponse(error_code=failed.error_code, error_message=message)


def _check(update: FeatureUpdateKey, feature: Feature | None) -> None:
    if feature is None:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"The broker does not support the feature {update.feature}.")
    level = update.max_version_level
    if not feature.lowest <= level <= feature.highest:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"The level of {update.feature} must be between {feature.lowest} and {feature.highest}, not {level}.",
        )
    if level != feature.level:
        raise ApiError(ErrorCode.FEATURE_UPDATE_FAILED, f"The level of {update.feature} is {feature.level} and cannot be changed.")
