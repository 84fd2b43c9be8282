"""AlterUserScramCredentials: set or remove users' SCRAM credentials.

Behaviour: the client computes the salted password with PBKDF2 and sends it. The broker derives the keys from it, and stores only these
keys, the salt and the number of iterations (`security/credentials.py`). The changes of one user are carried out together or not at all;
each user has a result. Brokers close the connections that have logged in with a removed credential.

Version notes: KIP-554.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.api import ScramRequest, ScramResult
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.security.credentials import ITERATIONS_STORED_MAX, credential_of, credential_text
from ottla.security.scram import ITERATIONS_MIN, MECHANISM_NUMBERS
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

NAMES = {number: name for name, number in MECHANISM_NUMBERS.items()}
Entry = ScramCredentialDeletion | ScramCredentialUpsertion
ENTRIES_MAX = 500
"""Maximum number of changes in one request. 500 take a few milliseconds of hashing in one iteration of the event loop."""
NAME_BYTES_MAX, SECRET_BYTES_MAX = 1_024, 1_024
"""Maximum bytes of a user's name, and of a salt or salted password. Name and salt are stored in one node of the metadata store. A valid
salted password has 32 or 64 bytes, and is not stored."""
TOO_MANY = ScramResult(user="", error=ErrorCode.POLICY_VIOLATION, message=f"More than {ENTRIES_MAX} changes in one request")


def handle(
    broker: Broker, request: RequestContext, body: AlterUserScramCredentialsRequest
) -> Pending | Generator[None, None, AlterUserScramCredentialsResponse]:
    entries: list[Entry] = [*body.deletions, *body.upsertions]
    if not is_allowed_on_cluster(broker, request, AclOperation.ALTER):
        return _refused(entries, ScramResult(user="", error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if len(entries) > ENTRIES_MAX:
        return _refused(entries, TOO_MANY)
    users = list(dict.fromkeys(entry.name for entry in entries))
    refused: dict[str, ScramResult] = {}
    wanted: list[ScramRequest] = []
    for entry in entries:
        try:
            _check(entry)
        except ApiError as refusal:
            refused.setdefault(entry.name, ScramResult(user=entry.name, error=refusal.code, message=refusal.message))
            continue
        wanted.append(_request(entry))
    pending = Pending()

    def altered(results: list[ScramResult]) -> None:
        by_user = {result.user: result for result in results} | refused
        pending.complete(AlterUserScramCredentialsResponse(results=[_answer(user, by_user[user]) for user in users]))

    broker.controller.alter_scram([change for change in wanted if change.user not in refused], altered)
    return pending


def _refused(entries: list[Entry], refusal: ScramResult) -> Generator[None, None, AlterUserScramCredentialsResponse]:
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for number, entry in enumerate(entries, 1):
        if entry.name not in results:
            results[entry.name] = _answer(entry.name, refusal)
        if not number % ENTRIES_MAX:
            yield
    return AlterUserScramCredentialsResponse(results=list(results.values()))


def _check(entry: Entry) -> None:
    """Raises `ApiError` for an invalid change, with Kafka's error code."""
    if not entry.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(entry.name.encode()) > NAME_BYTES_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username must not be longer than {NAME_BYTES_MAX} bytes")
    if entry.mechanism not in NAMES:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(entry, ScramCredentialDeletion):
        return
    if entry.iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if entry.iterations > ITERATIONS_STORED_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    sizes = (len(entry.salt), len(entry.salted_password))
    if not all(sizes):
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
    if max(sizes) > SECRET_BYTES_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Salt and salted password must not be longer than {SECRET_BYTES_MAX} bytes")


def _request(entry: Entry) -> ScramRequest:
    name = NAMES[entry.mechanism]
    if isinstance(entry, ScramCredentialDeletion):
        return ScramRequest(user=entry.name, mechanism=name, credential=None)
    credential = credential_of(name, bytes(entry.salt), bytes(entry.salted_password), entry.iterations)
    return ScramRequest(user=entry.name, mechanism=name, credential=credential_text(credential))


def _answer(user: str, result: ScramResult) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=result.error, error_message=result.message)
