"""UpdateRaftVoter: a controller of the quorum changes its addresses or versions (KIP-853)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, nested, string, u16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = u16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = i16()
    max_supported_version: int = i16()


class UpdateRaftVoterRequest(Request):
    cluster_id: str | None = string(nullable=True)
    current_leader_epoch: int = i32()
    voter_id: int = i32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    kraft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = i32(default=-1)
    leader_epoch: int = i32(default=-1)
    host: str = string()
    port: int = i32()


class UpdateRaftVoterResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    current_leader: CurrentLeader = nested(CurrentLeader, tag=0)
