"""AddRaftVoter: adds a controller to the quorum (KIP-853)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, string, u16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = u16()


class AddRaftVoterRequest(Request):
    cluster_id: str | None = string(nullable=True)
    timeout_ms: int = i32()
    voter_id: int = i32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean(since=1, default=True)


class AddRaftVoterResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, ignorable=True)
