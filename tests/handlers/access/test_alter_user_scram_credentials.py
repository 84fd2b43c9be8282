"""AlterUserScramCredentials, and what DescribeUserScramCredentials answers afterwards: what is stored, what is refused, and which other
credentials remain."""

from __future__ import annotations

import hashlib

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.access.alter_user_scram_credentials import handle
from ottla.handlers.context import RequestContext
from ottla.security.credentials import credential_text, read_credential
from ottla.security.scram_server import make_credential
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.handlers.admin_world import AdminWorld, DenyAll

SHA256, SHA512, UNKNOWN = 1, 2, 3
SALT = b"salt"


def upsertion(name: str = "alice", mechanism: int = SHA256, *, iterations: int = 4096, salt: bytes = SALT) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == SHA256 else "sha512", b"pencil", SALT, 4096)
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted)


def deletion(name: str = "alice", mechanism: int = SHA256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def altered(world: AdminWorld, *changes: ScramCredentialDeletion | ScramCredentialUpsertion) -> list[tuple[str, int]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    return [(result.user, result.error_code) for result in world.ask(request).results]


def described(world: AdminWorld, *names: str) -> dict[str, list[tuple[int, int]] | int]:
    answer = world.ask(DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None))
    return {
        result.user: result.error_code or [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
    }


def test_what_is_stored_is_what_the_password_makes() -> None:
    world = AdminWorld()
    assert altered(world, upsertion(), upsertion(mechanism=SHA512)) == [("alice", 0)]
    stored = world.broker.metadata.scram["alice"]
    assert read_credential(stored["SCRAM-SHA-256"]) == make_credential("SCRAM-SHA-256", "pencil", SALT, 4096)
    assert stored["SCRAM-SHA-512"] == credential_text(make_credential("SCRAM-SHA-512", "pencil", SALT, 4096))
    assert described(world) == described(world, "alice") == {"alice": [(SHA256, 4096), (SHA512, 4096)]}


def test_credentials_are_removed() -> None:
    world = AdminWorld()
    altered(world, upsertion(), upsertion("bob"), upsertion(mechanism=SHA512))
    assert altered(world, deletion(), deletion("bob"), deletion("eve")) == [("alice", 0), ("bob", 0), ("eve", ErrorCode.RESOURCE_NOT_FOUND)]
    assert described(world) == {"alice": [(SHA512, 4096)]} and described(world, "bob") == {"bob": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=UNKNOWN), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion(mechanism=UNKNOWN), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_what_is_refused(change: ScramCredentialDeletion | ScramCredentialUpsertion, code: ErrorCode) -> None:
    world = AdminWorld()
    assert altered(world, change, upsertion("bob")) == [(change.name, code), ("bob", 0)] or altered(world, change) == [(change.name, code)]
    assert described(world) == {"bob": [(SHA256, 4096)]}


def test_a_users_changes_are_carried_out_together_or_not_at_all() -> None:
    world = AdminWorld()
    assert altered(world, upsertion(), upsertion()) == [("alice", ErrorCode.DUPLICATE_RESOURCE)]
    assert altered(world, upsertion(), deletion(mechanism=SHA512)) == [("alice", ErrorCode.RESOURCE_NOT_FOUND)]
    assert described(world) == {}


def test_a_credential_that_is_altered_twice_is_looked_up_first() -> None:
    world = AdminWorld()
    for changes in ([upsertion(), deletion()], [deletion(), deletion()]):
        assert altered(world, *changes) == [("alice", ErrorCode.RESOURCE_NOT_FOUND)], "as in Kafka 4"
    altered(world, upsertion())
    for changes in ([upsertion(), deletion()], [deletion(), deletion()]):
        assert altered(world, *changes) == [("alice", ErrorCode.DUPLICATE_RESOURCE)]
    assert described(world) == {"alice": [(SHA256, 4096)]}


def test_quotas_of_the_user_stay() -> None:
    world = AdminWorld()
    entry = EntryData(entity=[EntityData(entity_type="user", entity_name="alice")], ops=[OpData(key="producer_byte_rate", value=1e6)])
    world.ask(AlterClientQuotasRequest(entries=[entry]))
    altered(world, upsertion())
    asked = DescribeClientQuotasRequest(components=[ComponentData(entity_type="user", match_type=0, match="alice")])
    assert [value.key for found in world.ask(asked).entries for value in found.values] == ["producer_byte_rate"]
    entry.ops[0].remove = True
    world.ask(AlterClientQuotasRequest(entries=[entry]))
    assert described(world) == {"alice": [(SHA256, 4096)]} and not world.ask(asked).entries


def test_rights_and_bounds() -> None:
    denied = AdminWorld(authorizer=DenyAll())
    assert altered(denied, upsertion()) == [("alice", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    world = AdminWorld()
    assert {code for _, code in altered(world, *(deletion(str(number)) for number in range(501)))} == {ErrorCode.POLICY_VIOLATION}


@pytest.mark.parametrize(
    ("world", "code"),
    [(AdminWorld(), ErrorCode.POLICY_VIOLATION), (AdminWorld(authorizer=DenyAll()), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
)
def test_thousands_of_changes_are_refused_in_steps(world: AdminWorld, code: ErrorCode) -> None:
    body = AlterUserScramCredentialsRequest(deletions=[deletion(str(number // 2)) for number in range(3_000)])
    steps = handle(world.broker, RequestContext(0, "test", world.connection), body)
    count = 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as end:
        answer = end.value
    assert count == 6
    assert [(result.user, result.error_code) for result in answer.results] == [(str(user), code) for user in range(1_500)]


def test_names_and_secrets_that_fit_into_no_node_are_refused() -> None:
    world = AdminWorld()
    long, name = b"s" * 1_000_000, "n" * 32_767
    salted = ScramCredentialUpsertion(name="bob", mechanism=SHA256, iterations=4096, salt=SALT, salted_password=long)
    codes = dict(altered(world, upsertion(salt=long), salted, upsertion(name=name), upsertion(name="carol")))
    refused = ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert codes == {"alice": refused, "bob": refused, name: refused, "carol": ErrorCode.NONE}
