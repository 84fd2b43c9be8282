"""SCRAM credentials of users, as functions on a `Cluster`. A password stays in this process: the broker gets what PBKDF2 makes of it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.admin import check, refusal
from ottla.client.cluster import Cluster
from ottla.client.errors import KafkaError
from ottla.wire.schema import Request

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""By name; the numbers stand in the messages."""
MECHANISM_NAMES = {number: name for name, number in MECHANISMS.items()}
ITERATIONS_MIN, ITERATIONS_MAX, ITERATIONS = 4096, 16384, 4096
"""What brokers take, and what is taken where nobody says."""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SALT_BYTES = 24


class Credential(NamedTuple):
    mechanism: str
    iterations: int


def describe_scram(cluster: Cluster, users: Sequence[str] = ()) -> dict[str, list[Credential] | KafkaError]:
    """The credentials of some users, or of all that have any."""
    from ottla.wire.messages import describe_user_scram_credentials as wire

    answer = cluster.ask_any(wire.DescribeUserScramCredentialsRequest(users=[wire.UserName(name=name) for name in users] or None))
    check(answer.error_code, answer.error_message, "credentials")
    return {
        result.user: refusal(result.error_code, result.error_message, f"credentials of {result.user!r}")
        or [Credential(MECHANISM_NAMES.get(info.mechanism, "UNKNOWN"), info.iterations) for info in result.credential_infos]
        for result in answer.results
    }


def alter_scram(cluster: Cluster, user: str, *, passwords: dict[str, tuple[str, int]] | None = None, deletions: Sequence[str] = ()) -> None:
    """Sets credentials, (password, iterations) by mechanism, and removes those of other mechanisms.

    Each goes by itself: Apache Kafka refuses a request that names a user twice, even for two mechanisms.
    """
    from ottla.wire.messages import alter_user_scram_credentials as wire

    for mechanism in deletions:
        removed = wire.ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism])
        _alter(cluster, wire.AlterUserScramCredentialsRequest(deletions=[removed]))
    for mechanism, (password, iterations) in (passwords or {}).items():
        salt = secrets.token_bytes(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
        number = MECHANISMS[mechanism]
        made = wire.ScramCredentialUpsertion(name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted)
        _alter(cluster, wire.AlterUserScramCredentialsRequest(upsertions=[made]))


def _alter(cluster: Cluster, request: Request) -> None:
    for result in cluster.ask_controller(request).results:
        check(result.error_code, result.error_message, f"credentials of {result.user!r}")
