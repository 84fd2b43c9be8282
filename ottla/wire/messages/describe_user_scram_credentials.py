"""DescribeUserScramCredentials: the SCRAM mechanisms of users, with their numbers of iterations, without secrets."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, string


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Request):
    users: list[UserName] | None = array(UserName, nullable=True)


class CredentialInfo(Struct):
    mechanism: int = i8()
    iterations: int = i32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
