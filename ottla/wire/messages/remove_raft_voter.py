"""RemoveRaftVoter: removes a controller from the quorum (KIP-853)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Uuid, i16, i32, string, uuid


class RemoveRaftVoterRequest(Request):
    cluster_id: str | None = string(nullable=True)
    voter_id: int = i32()
    voter_directory_id: Uuid = uuid()


class RemoveRaftVoterResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, ignorable=True)
