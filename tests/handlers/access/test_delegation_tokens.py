"""Create, Renew, Expire and DescribeDelegationToken: the checks in Kafka's order, and the answers."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.loop.turns import run_steps
from ottla.cluster.delegation_tokens import DelegationTokens
from ottla.handlers.access import describe_delegation_token
from ottla.handlers.access.create_delegation_token import RENEWERS_MAX
from ottla.handlers.context import RequestContext
from ottla.security.acl import AclOperation
from ottla.security.authentication import Authentication
from ottla.security.delegation_token_logins import token_hmac
from ottla.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.wire.messages.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.fakes import ManualTimers, SeededRandom
from tests.fakes.memory_store import MemoryStore
from tests.handlers.admin_world import AdminWorld, DenyAll

DAY_MS = 86_400_000
KEY = {"delegation.token.secret.key": "the cluster's"}
NOT_ALLOWED, DISABLED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class TokenWorld(AdminWorld):
    """A broker with delegation tokens. Until the test calls `become`, the client is alice, who has logged in with a password."""

    def __init__(self, settings: dict[str, str] | None = None, authorizer: Any = None) -> None:
        config = BrokerConfig(KEY if settings is None else settings)
        super().__init__(config=config, authorizer=DenyAll() if authorizer is None else authorizer)
        self.timers = ManualTimers()
        store = MemoryStore()
        retries = StoreRetries(store, self.timers)
        self.broker.config, self.broker.clock, self.broker.random = config, self.timers.clock, SeededRandom(1)
        self.broker.delegation_tokens = None
        if settings is None:
            self.broker.delegation_tokens = DelegationTokens(
                store, retries, self.timers, self.timers.clock, is_alone=True, expiry_interval_ms=DAY_MS
            )
            self.broker.delegation_tokens.start(lambda: None)
        self.become("User:alice")

    def become(self, principal: str, *, is_by_token: bool = False) -> None:
        self.connection.principal = principal
        self.connection.authentication = Authentication({})
        self.connection.authentication.is_by_token = is_by_token

    def now_ms(self) -> int:
        return self.timers.clock.wall_ms()

    def create(self, *renewers: str, lifetime_ms: int = -1, owner: tuple[str | None, str | None] = (None, None), version: int = 3) -> Any:
        listed = [CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in (one.split(":") for one in renewers)]
        fields = {"owner_principal_type": owner[0], "owner_principal_name": owner[1]} if version >= 3 else {}
        return self.ask(CreateDelegationTokenRequest(renewers=listed, max_lifetime_ms=lifetime_ms, **fields), version)

    def renew(self, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        answer = self.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
        return answer.error_code, answer.expiry_timestamp_ms

    def expire(self, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        answer = self.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))
        return answer.error_code, answer.expiry_timestamp_ms

    def described(self, *owners: str, of_all: bool = False) -> list[str]:
        names = [owner.split(":") for owner in owners]
        listed = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in names]
        answer = self.ask(DescribeDelegationTokenRequest(owners=None if of_all else listed))
        assert answer.error_code == 0
        return [token.token_id for token in answer.tokens]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_of_ones_own(version: int) -> None:
    world = TokenWorld()
    answer = world.create("User:bob", version=version)
    assert (answer.error_code, answer.principal_type, answer.principal_name) == (0, "User", "alice")
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms) == (world.now_ms(), world.now_ms() + DAY_MS)
    assert answer.max_timestamp_ms == world.now_ms() + 7 * DAY_MS
    assert answer.hmac == token_hmac(b"the cluster's", answer.token_id) and len(answer.hmac) == 64
    token = world.ask(DescribeDelegationTokenRequest(owners=None)).tokens[0]
    assert (token.token_id, token.hmac, token.expiry_timestamp) == (answer.token_id, answer.hmac, answer.expiry_timestamp_ms)
    assert [(renewer.principal_type, renewer.principal_name) for renewer in token.renewers] == [("User", "bob")]
    assert token.token_requester_principal_name == "alice"


def test_lifetimes_are_the_shorter_of_what_is_asked_and_what_is_allowed() -> None:
    world = TokenWorld()
    short, long = world.create(lifetime_ms=1_000), world.create(lifetime_ms=1 << 50)
    assert (short.expiry_timestamp_ms, short.max_timestamp_ms) == (world.now_ms() + 1_000,) * 2
    assert long.max_timestamp_ms == world.now_ms() + 7 * DAY_MS


def test_for_another_owner_with_the_right_on_that_user() -> None:
    refused = TokenWorld().create(owner=("User", "bob"))
    assert (refused.error_code, refused.token_id, refused.hmac) == (ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "", b"")
    assert (refused.principal_name, refused.token_requester_principal_name, refused.issue_timestamp_ms) == ("bob", "alice", -1)
    world = TokenWorld(authorizer=DenyAll((AclOperation.CREATE_TOKENS, "User:bob")))
    answer = world.create(owner=("User", "bob"))
    assert (answer.error_code, answer.principal_name, answer.token_requester_principal_name) == (0, "bob", "alice")
    assert world.described("User:alice") == world.described("User:bob") == [answer.token_id]
    assert world.renew(answer.hmac)[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH  # the requester is not the owner


def test_many_tokens_are_described_in_steps() -> None:
    world = TokenWorld()
    made = sorted(world.create(*(["User:bob"] if number % 2 else [])).token_id for number in range(300))
    listing = DescribeDelegationTokenRequest(owners=None)
    steps = describe_delegation_token.handle(world.broker, RequestContext(3, "test", world.connection), listing)
    assert next(steps) is None and next(steps) is None, "300 tokens are no single step"
    assert [token.token_id for token in run_steps(steps).tokens] == made == world.described(of_all=True)
    assert len(world.described("User:bob", "User:carol")) == 150 and world.described("User:carol") == []


def test_renewers_are_bounded() -> None:
    answer = TokenWorld().create(*(f"User:{number}" for number in range(RENEWERS_MAX + 1)))
    assert answer.error_code == ErrorCode.POLICY_VIOLATION and not answer.token_id and not answer.hmac


def test_renewers_are_users() -> None:
    assert TokenWorld().create("Group:ops").error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def answers_of(world: TokenWorld) -> list[int]:
    described = world.ask(DescribeDelegationTokenRequest(owners=None))
    return [world.create().error_code, world.renew(b"x")[0], world.expire(b"x")[0], described.error_code]


def test_only_clients_that_have_logged_in_by_something_else_than_a_token() -> None:
    world = TokenWorld()
    world.become("User:alice", is_by_token=True)
    assert answers_of(world) == [NOT_ALLOWED] * 4
    world.connection.authentication, world.connection.principal = None, "User:ANONYMOUS"
    assert answers_of(world) == [NOT_ALLOWED] * 4
    world.connection.principal = "User:CN=alice"  # authenticated by a certificate
    assert answers_of(world) == [0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND, ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0]


def test_without_a_key_there_are_none() -> None:
    assert answers_of(TokenWorld({})) == [DISABLED] * 4
    assert BrokerConfig({"delegation.token.master.key": "old"}).delegation_token_key == "old"


def test_renewing_lasts_from_now_and_not_beyond_the_end() -> None:
    world = TokenWorld()
    token = world.create("User:bob", lifetime_ms=2 * DAY_MS)
    world.timers.advance(DAY_MS // 2)
    assert world.renew(token.hmac) == (0, world.now_ms() + DAY_MS)
    assert world.renew(token.hmac, 1_000) == (0, world.now_ms() + 1_000)
    world.become("User:bob")
    assert world.renew(token.hmac, 9 * DAY_MS) == (0, token.max_timestamp_ms)
    world.become("User:eve")
    assert world.renew(token.hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
    assert world.renew(bytes(64)) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)


def test_an_expired_token_stays_so() -> None:
    world = TokenWorld()
    token = world.create(lifetime_ms=1_000)
    world.timers.advance(1_001)
    assert world.renew(token.hmac) == world.expire(token.hmac) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)


def test_ending_a_token_later_and_at_once() -> None:
    world = TokenWorld()
    token = world.create()
    assert world.expire(token.hmac, 5_000) == (0, world.now_ms() + 5_000)
    world.become("User:eve")
    assert world.expire(token.hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
    world.become("User:alice")
    assert world.expire(token.hmac) == (0, world.now_ms()) and world.described(of_all=True) == []


def test_only_ones_own_tokens_are_shown_without_a_right() -> None:
    world = TokenWorld()
    own = world.create("User:bob").token_id
    world.become("User:carol")
    others = world.create().token_id
    assert world.described(of_all=True) == world.described("User:carol") == [others]
    assert world.described("User:alice") == world.described() == []
    world.become("User:bob")
    assert world.described(of_all=True) == world.described("User:alice") == [own]
    for right in ((AclOperation.DESCRIBE, others), (AclOperation.DESCRIBE_TOKENS, "User:carol")):
        world.broker.authorizer = DenyAll(right)
        assert sorted(world.described(of_all=True)) == sorted([own, others]) and world.described("User:carol") == [others]

