"""AlterClientQuotas and DescribeClientQuotas: every filter shows the quotas that were set."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse
from tests.handlers.admin_world import AdminWorld, DenyAll

EXACT, DEFAULT, ANY = 0, 1, 2
Entity = dict[str, str | None]


def entry(entity: Entity, key: str = "producer_byte_rate", value: float = 1.0, *, is_removal: bool = False) -> EntryData:
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return EntryData(entity=parts, ops=[OpData(key=key, value=value, remove=is_removal)])


def alter(world: AdminWorld, *entries: EntryData, version: int = 1, validate_only: bool = False) -> list[int]:
    answer = world.ask(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), version)
    return [result.error_code for result in answer.entries]


def describe(world: AdminWorld, *components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasResponse:
    parts = [ComponentData(entity_type=kind, match_type=match_type, match=match) for kind, match_type, match in components]
    answer = world.ask(DescribeClientQuotasRequest(components=parts, strict=strict))
    assert isinstance(answer, DescribeClientQuotasResponse)
    return answer


def shown(answer: DescribeClientQuotasResponse) -> list[Entity]:
    return [{part.entity_type: part.entity_name for part in found.entity} for found in answer.entries or []]


BOB: Entity = {"user": "bob"}
ALL_USERS: Entity = {"user": None}
BOB_AT_C: Entity = {"client-id": "c", "user": "bob"}


@pytest.fixture
def world() -> AdminWorld:
    made = AdminWorld()
    assert alter(made, entry(BOB), entry(ALL_USERS), entry(BOB_AT_C)) == [0, 0, 0]
    return made


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [BOB, ALL_USERS, BOB_AT_C]),
        ([("user", EXACT, "bob")], False, [BOB, BOB_AT_C]),
        ([("user", EXACT, "bob")], True, [BOB]),
        ([("user", DEFAULT, None)], False, [ALL_USERS]),
        ([("user", ANY, None)], True, [BOB, ALL_USERS]),
        ([("user", ANY, None), ("client-id", EXACT, "c")], False, [BOB_AT_C]),
        ([("ip", ANY, None)], False, []),
    ],
)
def test_filters(world: AdminWorld, components: list[tuple[str, int, str | None]], strict: bool, expected: list[Entity]) -> None:
    found = shown(describe(world, *components, strict=strict))
    assert len(found) == len(expected)
    assert all(entity in found for entity in expected)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("tribe", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_are_refused(world: AdminWorld, components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    answer = describe(world, *components)
    assert (answer.error_code, answer.entries) == (code, None)


def test_values_and_removal(world: AdminWorld) -> None:
    alter(world, entry(BOB, "request_percentage", 2.5), version=0)
    (bob,) = describe(world, ("user", EXACT, "bob"), strict=True).entries or []
    assert {value.key: value.value for value in bob.values} == {"producer_byte_rate": 1.0, "request_percentage": 2.5}
    alter(world, entry(BOB, is_removal=True), entry(ALL_USERS, is_removal=True))
    assert BOB in shown(describe(world))
    assert ALL_USERS not in shown(describe(world))


def test_entries_fare_by_themselves(world: AdminWorld) -> None:
    twice = EntryData(entity=[EntityData(entity_type="user", entity_name="x")] * 2, ops=[])
    assert alter(world, entry(BOB), entry(BOB), twice, entry({"user": "ann"}, "made_up"), entry({"user": "eve"})) == [
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        0,
    ]


def test_a_value_that_is_named_twice_is_refused(world: AdminWorld) -> None:
    values = [OpData(key="producer_byte_rate", value=rate) for rate in (1.0, 2.0)]
    twice = EntryData(entity=[EntityData(entity_type="user", entity_name="ann")], ops=values)
    assert alter(world, twice) == [ErrorCode.INVALID_REQUEST]
    assert {"user": "ann"} not in shown(describe(world))


def test_validate_only_and_rights(world: AdminWorld) -> None:
    assert alter(world, entry({"user": "ann"}), validate_only=True) == [0]
    assert {"user": "ann"} not in shown(describe(world))
    denied = AdminWorld(authorizer=DenyAll(), cluster=world.cluster)
    assert alter(denied, entry(BOB)) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert describe(denied).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_there_is_a_message_only_beside_an_error() -> None:
    requests = (AlterClientQuotasRequest(entries=[entry(BOB, value=value)]) for value in (1.0, -1.0))
    accepted, refused = (AdminWorld().ask(request, 1).entries[0] for request in requests)
    assert (accepted.error_code, accepted.error_message) == (0, None)
    assert refused.error_code and refused.error_message


def test_an_entity_of_more_parts_than_there_are_types_is_refused_and_not_repeated_whole() -> None:
    parts = [EntityData(entity_type=f"type-{number}", entity_name="x") for number in range(5000)]
    answer = AdminWorld().ask(
        AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=[OpData(key="producer_byte_rate", value=1.0)])]), 1
    )
    (found,) = answer.entries
    assert found.error_code == ErrorCode.INVALID_REQUEST and len(found.entity) <= 3
