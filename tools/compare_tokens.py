"""Compares delegation tokens on Apache Kafka and on Ottla, response by response: who may create, see, renew and end them.

`python -m tools.compare_tokens [--all]` starts one broker of each with the same users (PLAIN), the same key and an authorizer. It does the
same steps on both, and prints the answers that differ (with `--all` all answers). The exit code is 1 if an answer differs. It compares
error codes and, for each token, its owner, its requester and its renewers. `tools/compare_rights.py` does not cover tokens, because its
client has no login.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ottla.base.acls import AclOperation, ResourceType
from ottla.base.errors import ErrorCode, OttlaError
from ottla.client.addresses import parse_address
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.security import Security
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.wire.schema import Request
from tools.bench.brokers import start_kafka, start_ottla
from tools.bench.peer import JARS

USERS = ("admin", "alice", "bob", "carol")
KEY = "delegation.token.secret.key=of-both"
LOGINS = ("sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", "super.users=User:admin;User:ANONYMOUS")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOGIN_MODULES = "org.apache.kafka.common.security"
SECONDS_MAX = 30
WEEKS_MS = 1 << 40


class Side:
    """A broker, the connections of its users, and the tokens that it has created."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.tokens: dict[str, tuple[str, bytes]] = {}
        """Id and HMAC of each token, by the name that the steps give it."""
        self._connections: dict[str, BlockingConnection] = {}

    def ask(self, who: str, request: Request) -> Any:
        """Returns the response to a user, or to a client that has logged in with the token of that name."""
        if who not in self._connections:
            self._connections[who] = self._connect(who)
        return self._connections[who].request(request)

    def create(self, who: str, name: str, *renewers: str, owner: str | None = None, lifetime_ms: int = -1, kind: str = "User") -> str:
        listed = [CreatableRenewers(principal_type=kind, principal_name=renewer) for renewer in renewers]
        whose: dict[str, Any] = {} if owner is None else {"owner_principal_type": "User", "owner_principal_name": owner}
        answer = self.ask(who, CreateDelegationTokenRequest(renewers=listed, max_lifetime_ms=lifetime_ms, **whose))
        if answer.error_code == 0:
            self.tokens[name] = answer.token_id, bytes(answer.hmac)
            self._wait(lambda: self._known() >= {token_id for token_id, _ in self.tokens.values()})
        is_week = answer.max_timestamp_ms - answer.issue_timestamp_ms == 7 * 86_400_000
        return f"{_code(answer)} {answer.principal_name} by {answer.token_requester_principal_name}, a week: {is_week}"

    def describe(self, who: str, *owners: str, of_all: bool = False) -> str:
        listed = None if of_all else [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
        answer = self.ask(who, DescribeDelegationTokenRequest(owners=listed))
        names = {token_id: name for name, (token_id, _) in self.tokens.items()}
        return f"{_code(answer)} {sorted(f'{names[token.token_id]} {_described(token)}' for token in answer.tokens)}"

    def renew(self, who: str, name: str, period_ms: int = -1) -> str:
        answer = self.ask(who, RenewDelegationTokenRequest(hmac=self._hmac(name), renew_period_ms=period_ms))
        return _code(answer)

    def expire(self, who: str, name: str, period_ms: int = -1) -> str:
        answer = self.ask(who, ExpireDelegationTokenRequest(hmac=self._hmac(name), expiry_time_period_ms=period_ms))
        if answer.error_code == 0 and period_ms < 0:
            gone, _ = self.tokens.pop(name)
            self._wait(lambda: gone not in self._known())
        return _code(answer)

    def grant(self, who: str, *rights: tuple[ResourceType, AclOperation]) -> None:
        """Gives a user these rights, on all resources of the kind, and no others."""
        mine: dict[str, Any] = {
            "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": f"User:{who}",
            "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip
        self.ask("admin", DeleteAclsRequest(filters=[DeleteAclsFilter(**mine)]))
        creations = [
            AclCreation(
                resource_type=kind, resource_name="*", resource_pattern_type=3, principal=f"User:{who}", host="*", operation=operation,
                permission_type=3,
            )
            for kind, operation in rights
        ]  # fmt: skip
        if creations:
            self.ask("admin", CreateAclsRequest(creations=creations))
        self._wait(lambda: len(self.ask("admin", DescribeAclsRequest(**mine)).resources) == len(rights))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _connect(self, who: str) -> BlockingConnection:
        if who in USERS:
            properties = {"sasl.mechanism": "PLAIN", "sasl.username": who, "sasl.password": who}
        else:
            token_id, hmac = self.tokens[who]
            words = f'username="{token_id}" password="{base64.b64encode(hmac).decode()}" tokenauth="true"'
            module = f"{LOGIN_MODULES}.scram.ScramLoginModule"
            properties = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f"{module} required {words};"}
        security = Security({"security.protocol": "SASL_PLAINTEXT", **properties})
        return BlockingConnection(parse_address(self.address), security=security).open()

    def _hmac(self, name: str) -> bytes:
        return self.tokens[name][1] if name in self.tokens else b"of no token"

    def _known(self) -> set[str]:
        return {token.token_id for token in self.ask("admin", DescribeDelegationTokenRequest(owners=None)).tokens}

    def _wait(self, is_so: Callable[[], bool]) -> None:
        """Waits until `is_so()`: Kafka's broker applies a change a moment after its response."""
        deadline = time.monotonic() + SECONDS_MAX
        while not is_so():
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.address}: a change is not in force after {SECONDS_MAX} s")
            time.sleep(0.02)


def _code(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


def _described(token: Any) -> str:
    renewers = sorted(renewer.principal_name for renewer in token.renewers)
    return f"{token.principal_name} by {token.token_requester_principal_name}, renewers {renewers}"


OF_ALL_TOKENS = ResourceType.DELEGATION_TOKEN, AclOperation.DESCRIBE
OF_ALL_USERS = ResourceType.USER, AclOperation.DESCRIBE_TOKENS
FOR_OTHERS = ResourceType.USER, AclOperation.CREATE_TOKENS

Step = tuple[str, Callable[[Side], object]]


def steps() -> Iterator[Step]:
    """Yields the steps for both brokers, in order."""
    yield from _creating()
    for rights in ((), (OF_ALL_TOKENS,), (OF_ALL_USERS,)):
        words = " ".join(operation.name for _, operation in rights) or "no right"
        yield f"carol gets {words}", lambda side, rights=rights: side.grant("carol", *rights)  # type: ignore[misc]
        yield f"carol sees, with {words}", lambda side: side.describe("carol", of_all=True)
        yield f"carol sees those of alice and bob, with {words}", lambda side: side.describe("carol", "alice", "bob")
    yield from _seeing_and_changing()


def _creating() -> Iterator[Step]:
    yield "alice makes one", lambda side: side.create("alice", "first")
    yield "alice makes one that bob may renew", lambda side: side.create("alice", "second", "bob")
    yield "alice makes one that a group may renew", lambda side: side.create("alice", "none", "staff", kind="Group")
    yield "alice makes one for ever", lambda side: side.create("alice", "third", lifetime_ms=WEEKS_MS)
    yield "alice makes one for a minute", lambda side: side.create("alice", "fourth", lifetime_ms=60_000)
    yield "alice makes one for bob", lambda side: side.create("alice", "none", owner="bob")
    yield "alice gets CREATE_TOKENS", lambda side: side.grant("alice", FOR_OTHERS)
    yield "alice makes one for bob, with the right", lambda side: side.create("alice", "fifth", owner="bob")
    yield "alice loses it", lambda side: side.grant("alice")
    yield "by a token, another one", lambda side: side.create("first", "none")


def _seeing_and_changing() -> Iterator[Step]:
    for who in ("alice", "bob", "admin"):
        yield f"{who} sees", lambda side, who=who: side.describe(who, of_all=True)  # type: ignore[misc]
        yield f"{who} sees those of no owner", lambda side, who=who: side.describe(who)  # type: ignore[misc]
        yield f"{who} sees those of bob", lambda side, who=who: side.describe(who, "bob")  # type: ignore[misc]
    yield "by a token, all", lambda side: side.describe("first", of_all=True)
    for does, change in (("renews", Side.renew), ("ends", Side.expire)):
        for who, name in (("carol", "second"), ("bob", "first"), ("alice", "fifth"), ("admin", "second"), ("alice", "unknown")):
            yield f"{who} {does} {name}", lambda side, who=who, name=name, change=change: change(side, who, name)  # type: ignore[misc]
        yield f"by a token, somebody {does} it", lambda side, change=change: change(side, "first", "first")  # type: ignore[misc]
    yield "bob renews second, for a minute", lambda side: side.renew("bob", "second", 60_000)
    yield "bob lets second end in an hour", lambda side: side.expire("bob", "second", 3_600_000)
    yield "bob ends second", lambda side: side.expire("bob", "second")
    yield "alice ends first", lambda side: side.expire("alice", "first")
    yield "alice sees what is left", lambda side: side.describe("alice", of_all=True)


@contextlib.contextmanager
def _both() -> Iterator[tuple[Side, Side]]:
    passwords = " ".join(f'user_{user}="{user}"' for user in USERS)
    jaas = f'{LOGIN_MODULES}.plain.PlainLoginModule required username="admin" password="admin" {passwords};'
    theirs = (
        "sasl.mechanism.inter.broker.protocol=PLAIN", f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas}",
        f"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={LOGIN_MODULES}.scram.ScramLoginModule required;",
        f"authorizer.class.name={AUTHORIZER}",
    )  # fmt: skip
    ours = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0", "authorizer.class.name=acl",
        "ottla.sasl.plain.users=" + " ".join(f"{user}={user}" for user in USERS),
    )  # fmt: skip
    kafka = start_kafka(JARS.absolute(), KEY, *LOGINS, *theirs, protocol="SASL_PLAINTEXT")
    try:
        ottla = start_ottla(*[word for setting in (KEY, *LOGINS, *ours) for word in ("--set", setting)])
        try:
            sides = Side(kafka.address), Side(ottla.address)
            yield sides
            for side in sides:
                side.close()
        finally:
            ottla.stop()
    finally:
        kafka.stop()


def _done(side: Side, action: Callable[[Side], object]) -> str:
    try:
        return str(action(side))
    except OttlaError as error:
        return f"no answer: {error}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Delegation tokens on Apache Kafka and on this broker.")
    parser.add_argument("--all", action="store_true", help="the answers that are equal as well")
    shows_all = parser.parse_args(arguments).all
    same = differ = 0
    with _both() as (theirs, ours):
        for what, action in steps():
            wanted, found = (_done(side, action) for side in (theirs, ours))
            same, differ = (same + 1, differ) if wanted == found else (same, differ + 1)
            if wanted != found:
                sys.stdout.write(f"{what}: DIFFERS\n    kafka {wanted}\n    ottla {found}\n")
            elif shows_all:
                sys.stdout.write(f"{what}: {found}\n")
    sys.stdout.write(f"{same + differ} steps: {same} same, {differ} differ\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
