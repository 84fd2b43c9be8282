"""APIs that the broker can only refuse: access rules without an authorizer, SASL on a plain listener, changes of fixed features."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.handlers.admin_world import AdminWorld, DenyAll


@pytest.mark.parametrize("version", range(1, 4))
def test_access_rules(version: int) -> None:
    world = AdminWorld()
    described = world.ask(DescribeAclsRequest(), version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    created = world.ask(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version)
    assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = world.ask(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version)
    assert [(result.error_code, result.matching_acls) for result in deleted.filter_results] == [(ErrorCode.SECURITY_DISABLED, [])]


@pytest.mark.parametrize("version", range(2))
def test_sasl_handshake(version: int) -> None:
    answer = AdminWorld().ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", range(3))
def test_sasl_authenticate(version: int) -> None:
    assert AdminWorld().ask(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version).error_code == ErrorCode.ILLEGAL_SASL_STATE


UPGRADE, DOWNGRADE = 1, 2
FEATURES = [
    ("transaction.version", 2, UPGRADE, 0),
    ("transaction.version", 1, UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
    ("transaction.version", 1, DOWNGRADE, ErrorCode.FEATURE_UPDATE_FAILED),
    ("transaction.version", 9, UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
    ("transaction.version", -1, DOWNGRADE, ErrorCode.INVALID_UPDATE_VERSION),
    ("share.version", 2, UPGRADE, 0),
    ("share.version", 1, DOWNGRADE, ErrorCode.FEATURE_UPDATE_FAILED),
    ("share.version", 3, UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
    ("no.such", 1, UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("feature", "level", "kind", "code"), FEATURES)
def test_features(version: int, feature: str, level: int, kind: int, code: int) -> None:
    """One refused feature causes a refusal of the whole request, also in versions with a result for each feature. Needed by
    TestFuncAdminUpdateFeatures of sarama (Go)."""
    update = FeatureUpdateKey(feature=feature, max_version_level=level)
    if version:
        update.upgrade_type = kind
    else:
        update.allow_downgrade = kind == DOWNGRADE
    in_force = FeatureUpdateKey(feature="group.version", max_version_level=1)
    answer = AdminWorld().ask(UpdateFeaturesRequest(feature_updates=[in_force, update]), version)
    assert answer.error_code == code
    outcomes = [(result.feature, result.error_code) for result in answer.results]
    assert outcomes == ([] if code or version > 1 else [("group.version", 0), (feature, 0)])


def test_a_kind_of_upgrade_that_does_not_exist() -> None:
    update = FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=0)
    assert AdminWorld().ask(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_features_need_a_right() -> None:
    assert AdminWorld(authorizer=DenyAll()).ask(UpdateFeaturesRequest()).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
