"""Attacks by logins and by clients that have logged in: very many delegation tokens, credentials and failed logins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.security.credentials import ITERATIONS_STORED_MAX
from ottla.wire.codec import decoder
from ottla.wire.framing import load, read_response_header
from ottla.wire.messages import offset_commit
from ottla.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from ottla.wire.messages.create_delegation_token import CreatableRenewers
from ottla.wire.schema import Request
from tests.clients.wire_client import WireClient
from tests.hostile.attacks import ANSWER_SECONDS_MAX, OTHER_PORT, Target, attack
from tests.hostile.attacks_growth import make_topic, wait_for_coordinators
from tests.hostile.attacks_requests import invented

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LISTENERS = f"listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{OTHER_PORT}"
MECHANISMS = "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256"
USERS = f'listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN} required user_attacker="secret";'
NO_SUCH_KAFKA = "its login listener needs a configuration of its own"
TOKENS = 3000
IN_FLIGHT = 50


def logged_in(target: Target) -> WireClient:
    """Returns a connection that has logged in as a user."""
    client = connect(target)
    assert not client.ask(load(17)[0](mechanism="PLAIN"), 1).error_code
    assert not client.ask(load(36)[0](auth_bytes=b"\0attacker\0secret"), 2).error_code
    return client


def connect(target: Target) -> WireClient:
    return WireClient(target.other_port, timeout=ANSWER_SECONDS_MAX, client_id="attacker")


def ask_all(client: WireClient, requests: Iterable[Request], version: int) -> list[Any]:
    """Sends requests, a few at a time, and returns the answers."""
    answers: list[Any] = []
    waiting: list[int] = []
    for request in requests:
        client.send(client.frame(request, version))
        waiting.append(type(request).API_KEY)
        if len(waiting) == IN_FLIGHT:
            answers += [answer(client, key, version) for key in waiting]
            waiting = []
    return answers + [answer(client, key, version) for key in waiting]


def answer(client: WireClient, key: int, version: int) -> Any:
    """Returns the next answer, whatever its correlation id."""
    data = client.receive()
    assert data is not None, "the broker closed the connection"
    return decoder(load(key)[1], version)(data, read_response_header(key, version, data)[1])[0]


@attack(
    "3,000 delegation tokens of 100 renewers each, renewed, described 5 times and ended",
    LISTENERS, MECHANISMS, USERS, "delegation.token.secret.key=of-the-cluster", not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def many_tokens(target: Target) -> None:
    renewers = [CreatableRenewers(principal_type="User", principal_name=f"renewer-{number}") for number in range(100)]
    create, renew, expire, describe = (load(key)[0] for key in (38, 39, 40, 41))
    with logged_in(target) as client:
        target.begin()
        made = ask_all(client, (create(renewers=renewers, max_lifetime_ms=-1) for _ in target.numbers(TOKENS)), 3)
        assert not any(token.error_code for token in made)
        renewed = ask_all(client, (renew(hmac=token.hmac, renew_period_ms=-1) for token in made[:500]), 2)
        assert not any(found.error_code for found in renewed)
        for _ in range(5):
            assert len(client.ask(describe(owners=None), 3).tokens) == target.part(TOKENS)
        ended = ask_all(client, (expire(hmac=token.hmac, expiry_time_period_ms=-1) for token in made), 2)
        assert not any(found.error_code for found in ended)


@attack(
    "15,000 logins that are refused, under a name of 32 kB each", LISTENERS, MECHANISMS, USERS,
    "connection.failed.authentication.delay.ms=0", not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def refused_names(target: Target) -> None:
    """Causes refusals about very many names: the audit log remembers the lines that it has written."""
    handshake = target.request(17, 1, mechanism="PLAIN")
    target.begin()
    for number in target.numbers(15_000):
        token = b"\0" + f"{number}".ljust(32_000, "n").encode() + b"\0wrong"
        with contextlib.suppress(OSError), connect(target) as client:
            client.send(handshake + target.request(36, 2, auth_bytes=token))
            assert client.receive()


@attack(
    "15,000 logins by a token that there is not, under an id of 32 kB each, and 3,000 that keep their connection",
    LISTENERS, MECHANISMS, USERS, "delegation.token.secret.key=of-the-cluster", "connection.failed.authentication.delay.ms=0",
    not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def unknown_tokens(target: Target) -> None:
    """Logs in with very many unknown token ids: the broker derives a decoy secret from each id and caches both."""
    handshake = target.request(17, 1, mechanism="SCRAM-SHA-256")

    def begin_login(client: WireClient, number: int) -> None:
        token = b"n,,n=" + f"{number}".ljust(32_000, "t").encode() + b",r=0123456789abcdef,tokenauth=true"
        client.send(handshake + target.request(36, 2, auth_bytes=token))
        client.receive()
        client.receive()

    target.begin()
    with contextlib.ExitStack() as stack:
        for number in target.numbers(15_000):
            with contextlib.suppress(OSError), connect(target) as client:
                begin_login(client, number)
        for number in target.numbers(3_000):
            begin_login(stack.enter_context(connect(target)), number)
        target.hold(100)


ACLS = (
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS",
)  # fmt: skip
"""The honest client is anonymous, as is the attacker's preparation."""


@attack(
    "20,000 questions about topics of 32 kB names by a user without any right, in requests of 50",
    LISTENERS, MECHANISMS, USERS, *ACLS, not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def questions_without_rights(target: Target) -> None:
    """Asks about very many names without permission: the authorizer caches its decisions by name."""
    group_ids = load(15)[0]
    with logged_in(target) as client:
        target.begin()
        for first in range(0, target.part(20_000), 50):
            names = [f"{number}".ljust(32_000, "q") for number in range(first, first + 50)]
            client.ask(group_ids(groups=names), 5)


@attack("FindCoordinator of 20,000 groups with names of 32 kB, in requests of 50")
def coordinators_of_long_names(target: Target) -> None:
    """Looks up coordinators of very long names. An earlier version kept a hash for each name."""
    find = load(10)[0]
    target.begin()
    for first in range(0, target.part(20_000), 50):
        names = [f"{number}".ljust(32_000, "f") for number in range(first, first + 50)]
        answer = target.client.ask(find(key_type=0, coordinator_keys=names), 4)
        assert len(answer.coordinators) == 50


@attack(
    "Produce of 150,000 invented producer ids by one user, then 1,000 new producers of another", LISTENERS, MECHANISMS, USERS,
    not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def producers_of_one_user(target: Target) -> None:
    """Makes one user use up the producer ids that the broker remembers: their number is limited for all users together."""
    make_topic(target, "invented", 1)
    with logged_in(target) as client:
        target.begin()
        mine = ask_all(client, (invented(number) for number in target.numbers(150_000)), 9)
    others = ask_all(target.client, (invented(1_000_000 + number) for number in target.numbers(1_000)), 9)
    codes = {result.error_code for answer in mine + others for topic in answer.responses for result in topic.partition_responses}
    assert codes == {ErrorCode.NONE}, codes


@attack(
    "InitProducerId of 20,000 ids by one user, OffsetCommit in as many groups, then 100 of each by another", LISTENERS, MECHANISMS, USERS,
    "ottla.transactions.max=10000", "ottla.memory.max.bytes=67108864", not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def coordinators_of_one_user(target: Target) -> None:
    """Makes one user use up transactional ids and the memory of groups and offsets, which are limited for all users together."""
    for kind in (0, 1):
        wait_for_coordinators(target, kind, "x")
    init = load(22)[0]
    with logged_in(target) as client:
        target.begin()
        ask_all(client, (init(transactional_id=f"mine-{number}", transaction_timeout_ms=60_000) for number in target.numbers(20_000)), 4)
        ask_all(client, (commit_in(f"mine-{number}", target.world.topic) for number in target.numbers(20_000)), 7)
    others = [init(transactional_id=f"other-{number}", transaction_timeout_ms=60_000) for number in range(100)]
    assert {found.error_code for found in ask_all(target.client, others, 4)} == {ErrorCode.NONE}
    committed = ask_all(target.client, (commit_in(f"other-{number}", target.world.topic) for number in range(100)), 7)
    assert {found.topics[0].partitions[0].error_code for found in committed} == {ErrorCode.NONE}


def commit_in(group_id: str, topic: str) -> Request:
    partition = offset_commit.OffsetCommitRequestPartition(committed_offset=1, committed_metadata="m" * 4000)
    return offset_commit.OffsetCommitRequest(
        group_id=group_id, generation_id_or_member_epoch=-1, member_id="",
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )  # fmt: skip


@attack(
    "AlterUserScramCredentials of 500 users of the most iterations, 40 times, and 2,000 logins of users that there are not",
    LISTENERS, MECHANISMS, USERS, not_on_kafka=NO_SUCH_KAFKA,
)  # fmt: skip
def many_credentials(target: Target) -> None:
    handshake, first = load(17)[0](mechanism="SCRAM-SHA-256"), load(36)[0](auth_bytes=b"n,,n=unknown,r=0123456789abcdef")
    target.begin()
    for first_user in range(0, target.part(20_000), 500):
        users = [credential(number) for number in range(first_user, first_user + 500)]
        assert not any(found.error_code for found in target.client.ask(load(51)[0](upsertions=users), 0).results)
    for _ in target.numbers(2000):
        with contextlib.suppress(OSError, AssertionError), connect(target) as client:
            client.ask(handshake, 1)
            client.ask(first, 2)


def credential(number: int) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=f"user-{number}", mechanism=1, iterations=ITERATIONS_STORED_MAX, salt=b"s" * 64, salted_password=b"p" * 32
    )
