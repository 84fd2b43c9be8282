"""AlterUserScramCredentials: set or remove users' SCRAM credentials."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, octets, string


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = i8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = i8()
    iterations: int = i32()
    salt: bytes = octets()
    salted_password: bytes = octets()


class AlterUserScramCredentialsRequest(Request):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)


class AlterUserScramCredentialsResponse(Response):
    throttle_time_ms: int = i32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
