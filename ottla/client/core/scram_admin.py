"""Reads and changes SCRAM credentials of users, as conversations (`conversation.py`) on a `ClusterCore`. The broker gets the PBKDF2 hash of
a password, never the password.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.client.core.admin import check, checked, refusal
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.errors import KafkaError
from ottla.wire.schema import Request

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The numbers of the mechanisms in messages."""
MECHANISM_NAMES = {number: name for name, number in MECHANISMS.items()}
ITERATIONS_MIN, ITERATIONS_MAX, ITERATIONS = 4096, 16384, 4096
"""The limits that brokers accept, and the default."""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT_BYTES = 24


class Credential(NamedTuple):
    mechanism: str
    iterations: int


@operation
def describe_scram(cluster: ClusterCore, users: Sequence[str] = ()) -> Conversation[dict[str, list[Credential] | KafkaError]]:
    """Returns the credentials of some users, or of all users with credentials."""
    from ottla.wire.messages import describe_user_scram_credentials as wire

    request = wire.DescribeUserScramCredentialsRequest(users=[wire.UserName(name=name) for name in users] or None)
    answer = yield from checked(cluster.ask_any(request), "credentials")
    return {
        result.user: refusal(result.error_code, result.error_message, f"credentials of {result.user!r}")
        or [Credential(MECHANISM_NAMES.get(info.mechanism, "UNKNOWN"), info.iterations) for info in result.credential_infos]
        for result in answer.results
    }


def alter_scram(
    cluster: ClusterCore,
    user: str,
    *,
    new_salt: Callable[[], bytes],
    passwords: dict[str, tuple[str, int]] | None = None,
    deletions: Sequence[str] = (),
) -> Conversation[None]:
    """Removes the credentials of the mechanisms in `deletions`, then sets the credentials in `passwords`: (password, iterations) by
    mechanism. `new_salt` returns random bytes. Raises `KafkaError` at the first refused change; earlier changes are kept.

    Each change is a separate request: Apache Kafka refuses a request that names a user twice, even for two mechanisms.
    """
    from ottla.wire.messages import alter_user_scram_credentials as wire

    for mechanism in deletions:
        removed = wire.ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism])
        yield from _alter(cluster, wire.AlterUserScramCredentialsRequest(deletions=[removed]))
    for mechanism, (password, iterations) in (passwords or {}).items():
        salt = new_salt()
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
        number = MECHANISMS[mechanism]
        made = wire.ScramCredentialUpsertion(name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted)
        yield from _alter(cluster, wire.AlterUserScramCredentialsRequest(upsertions=[made]))


def _alter(cluster: ClusterCore, request: Request) -> Conversation[None]:
    for result in (yield from cluster.ask_controller(request)).results:
        check(result.error_code, result.error_message, f"credentials of {result.user!r}")
